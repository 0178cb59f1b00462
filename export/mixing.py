"""Which groups of a checkpoint are quantized how: as asked, or as many as keep within a drop of the quality.

The graphs themselves are measured, on held-out validation pairs, with the runtime that will run them; only the
distributions are compared in PyTorch, where all tokens of a batch are looked at together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from export.graphs import Graphs, build_graphs
from export.held_out import Pair, mean_reciprocal_rank
from export.simulation import simulated
from mtn_edge.config import ModelConfig
from mtn_edge.console import say
from mtn_edge.data.batches import Batch
from mtn_edge.errors import GateError, UserError
from mtn_edge.models.build import Network
from mtn_edge.models.fusion import Sources
from mtn_edge.runtime.engine import Engine, OnnxEngine
from mtn_edge.runtime.suggester import Suggester
from quantize.int8 import Activation
from quantize.plan import GROUPS, Plan, Precision, bytes_of, uniform_plan
from quantize.sensitivity import Effect, Point, alone, asked_groups, mean_kl, mixed_plan

DROP_PAIRS = 600
"""Validation pairs on which a drop of MRR is measured, at most."""
MIN_PAIRS = 50
"""Fewer say nothing about a drop of a per cent."""


@dataclass(frozen=True)
class Lowering:
    """What a plan is turned into graphs with."""

    model: Network
    config: ModelConfig
    sources: Sources | None
    activations: Mapping[str, Activation] | None
    """Fixed ranges of inputs; None for ranges as they come."""

    def graphs(self, plan: Plan) -> Graphs:
        """The graphs of a plan."""
        state = {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}
        return build_graphs(state, self.config, plan, self.sources, self.activations)

    def engine(self, graphs: Graphs) -> OnnxEngine:
        """Graphs that were not written anywhere, at work."""
        with tempfile.TemporaryDirectory() as folder:
            graphs.save(Path(folder))
            return OnnxEngine(Path(folder), asdict(self.config))


@dataclass(frozen=True)
class Mixing:
    """The plan that was chosen, and what it is known to cost."""

    plan: dict[str, Precision]
    effects: list[Effect] = field(default_factory=list)
    """Each group alone; empty without data."""
    tried: list[Point] = field(default_factory=list)
    """Plans whose drop was measured."""
    drop: float | None = None
    kl: float | None = None
    """Of all groups together, nats a token."""

    def to_json(self, graphs: Graphs, fp32: Graphs) -> dict[str, Any]:
        """What the manifest says of each group and of the whole."""
        now, before = bytes_of(graphs.weights), bytes_of(fp32.weights)
        scanned = {effect.group: effect for effect in self.effects}
        groups = {}
        for group, precision in graphs.precision.items():
            effect = scanned.get(group)
            groups[group] = {
                "precision": precision,
                "bytes": now[group],
                "bytes_fp32": before[group],
                "kl": _short(effect.kl) if effect is not None else None,
                "mrr_loss": _short(effect.mrr_loss) if effect is not None else None,
            }
        return {
            "groups": groups,
            "kl": _short(self.kl),
            "mrr_drop": _short(self.drop),
            "tried": [{"plan": _asked_only(point.plan), "mrr_drop": _short(point.drop)} for point in self.tried],
        }


def choose_plan(
    lowering: Lowering,
    reference: Network,
    precision: Precision,
    *,
    batches: Sequence[Batch] | None,
    max_drop: float | None,
    pairs: Sequence[Pair],
    open_suggester: Callable[[Engine], Suggester],
    fp32: Suggester,
) -> Mixing:
    """Finds the plan.

    Args:
        lowering: makes graphs.
        reference: the network in float32 whose distributions are the truth.
        precision: what is asked for.
        batches: of validation sessions, for distributions; None compares none.
        max_drop: the largest relative loss of MRR; None takes the plan as asked.
        pairs: validation pairs for the drop.
        open_suggester: makes a suggester of an engine.
        fp32: the suggester of `reference`.

    Raises:
        UserError: there are too few pairs for a drop, or none of them is found.
        GateError: nothing that is quantized keeps within the drop; the sentence has the best that was found.
    """
    plan = uniform_plan(precision)
    drop_of = _drop_measure(lowering, pairs, open_suggester, fp32) if max_drop is not None else None
    if batches is None:
        return Mixing(plan)
    config = lowering.config
    whole, floats = (bytes_of(lowering.graphs(each).weights) for each in (plan, uniform_plan("fp32")))
    asked = asked_groups(plan, {group: size for group, size in floats.items() if size != whole[group]})

    def kl_of(each: Plan) -> float:
        return mean_kl(reference, simulated(lowering.model, config, each, lowering.activations), batches)

    effects = []
    for group, kind in asked.items():
        say(f"quantizing {group.replace('_', ' ')} alone")
        one = alone(group, kind)
        loss = drop_of(one) if drop_of is not None else None
        effects.append(Effect(group, kind, kl_of(one), loss, floats[group] - whole[group]))
    if drop_of is None or max_drop is None:
        return Mixing(plan, effects, kl=kl_of(plan))
    best, tried = mixed_plan(effects, drop_of, max_drop)
    if best is None:
        raise _no_plan(tried, max_drop)
    return Mixing(plan | {group: best.plan[group] for group in asked}, effects, tried, best.drop, kl_of(best.plan))


def _drop_measure(
    lowering: Lowering, pairs: Sequence[Pair], open_suggester: Callable[[Engine], Suggester], fp32: Suggester
) -> Callable[[Plan], float]:
    if len(pairs) < MIN_PAIRS:
        raise UserError(
            f"`--max-drop` is measured on {MIN_PAIRS} validation sessions at least, and `--data` has {len(pairs)}",
            code="few-pairs",
            hint="prepare a larger log, or leave `--max-drop` out",
        )
    wanted = mean_reciprocal_rank(fp32, pairs)
    if not wanted:
        raise UserError(
            f"`--max-drop` is relative to what float32 finds, and it finds none of {len(pairs)} validation queries",
            code="nothing-found",
            hint="train longer, or leave `--max-drop` out",
        )

    known: dict[str, float] = {}

    def measure(plan: Plan) -> float:
        key = str(_asked_only(plan))
        if key not in known:
            suggester = open_suggester(lowering.engine(lowering.graphs(plan)))
            known[key] = (wanted - mean_reciprocal_rank(suggester, pairs)) / wanted
        return known[key]

    return measure


def _no_plan(tried: Sequence[Point], max_drop: float) -> GateError:
    best = min(tried, key=lambda point: point.drop)
    groups = ", ".join(f"{group} {precision}" for group, precision in _asked_only(best.plan).items())
    return GateError(
        f"no group of tensors can be quantized with a loss of MRR of at most {max_drop:.2%}: the best of "
        f"{len(tried)} plans, {groups}, loses {best.drop:.2%}",
        code="max-drop",
        hint="nothing was written; allow more, or take --method qat or --fp32",
    )


def _asked_only(plan: Plan) -> dict[str, Precision]:
    """The groups of a plan that it quantizes."""
    return {group: plan[group] for group in GROUPS if plan[group] != "fp32"}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
