"""A checkpoint's quantized graphs: ranges calibrated or weights trained, a plan chosen, every guard looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from export.checks import Check, at_most
from export.graphs import Graphs
from export.guards import check_quantization, count_products
from export.held_out import Pair
from export.mixing import Lowering, choose_plan
from export.ranges import find_ranges
from export.sessions import batches_of, read_sessions
from mtn_edge.console import say
from mtn_edge.data.batches import Batch
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.models.build import Network
from mtn_edge.models.fusion import Sources
from mtn_edge.runtime.engine import Engine
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.training.checkpoint import Checkpoint
from quantize.int8 import Activation
from quantize.plan import Precision, uniform_plan

Method = Literal["dynamic", "static", "qat"]
"""How the inputs of int8 products are treated."""
KL_SESSIONS = 200
"""Validation sessions on which distributions are compared, at most."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a checkpoint is to be quantized."""

    precision: Precision
    method: Method = "dynamic"
    """Of int8: the range of each input as it comes, ranges fixed beforehand, or as it comes and trained for."""
    max_drop: float | None = None
    """Largest loss of MRR, relative to float32; groups that cost more stay larger. None takes all as asked."""


class Quantized(NamedTuple):
    """What came of it."""

    graphs: Graphs
    model: Network
    """The network whose weights they hold: trained on, or as it was."""
    about: dict[str, Any]
    """For the manifest."""
    checks: list[Check]


def quantize_checkpoint(
    checkpoint: Checkpoint,
    sources: Sources | None,
    asked: Asked,
    *,
    data: Dataset | None,
    fp32: Graphs,
    reference: Suggester,
    open_suggester: Callable[[Engine], Suggester],
    pairs: Sequence[Pair],
    scratch: Path,
    seed: int,
) -> Quantized:
    """Quantizes.

    Args:
        checkpoint: what is quantized.
        sources: what its network is mixed with.
        asked: how.
        data: for ranges, training, and the comparison of distributions; None compares none.
        fp32: the graphs in float32.
        reference: their suggester.
        open_suggester: makes a suggester of an engine.
        pairs: validation pairs, for `asked.max_drop`.
        scratch: a folder for what is thrown away.
        seed: of training.

    Raises:
        UserError: see `export.bundle.write_bundle`.
        GateError: no plan keeps within `asked.max_drop`.
    """
    if data is None and (asked.method != "dynamic" or asked.max_drop is not None):
        raise UserError(
            f"`--{'max-drop' if asked.max_drop is not None else f'method {asked.method}'}` was given without a dataset",
            code="no-data",
            hint="name one with --data",
        )
    valid = _valid(data, checkpoint) if data is not None else None
    model = checkpoint.model
    activations: Mapping[str, Activation] | None = None
    about: dict[str, Any] = {}
    if asked.method == "qat" and data is not None:
        model, about = _train(checkpoint, data, scratch, seed)
    if asked.method == "static" and data is not None:
        if valid is None:
            raise UserError(
                f"`{data.path}` has no validation sessions, and --method static compares its calibrators on them",
                code="no-sessions",
                hint="prepare a larger log, or take --method dynamic",
            )
        activations, about = find_ranges(checkpoint, data, valid)
    lowering = Lowering(model, checkpoint.config.model, sources, activations)
    mixing = choose_plan(
        lowering,
        checkpoint.model,
        asked.precision,
        batches=valid,
        max_drop=asked.max_drop,
        pairs=pairs,
        open_suggester=open_suggester,
        fp32=reference,
    )
    graphs = lowering.graphs(mixing.plan)
    checks = check_quantization(graphs, mixing.plan)
    if asked.max_drop is not None and mixing.drop is not None:
        checks.append(at_most("loss of MRR relative to float32, validation", mixing.drop, asked.max_drop))
    products = count_products(graphs)
    found = mixing.to_json(graphs, fp32)
    for group, entry in found["groups"].items():
        entry["products"] = products.get(group, {})
    whole = {
        "asked": asked.precision,
        "method": asked.method if asked.precision == "int8" else "dynamic",
        "max_drop": asked.max_drop,
        "mixed": mixing.plan != uniform_plan(asked.precision),
    }
    return Quantized(graphs, model, whole | found | about, checks)


def _valid(data: Dataset, checkpoint: Checkpoint) -> list[Batch] | None:
    """Batches of the validation split; None when it is empty."""
    sessions = read_sessions(data, "valid", KL_SESSIONS)
    return batches_of(sessions, checkpoint) if sessions else None


def _train(checkpoint: Checkpoint, data: Dataset, scratch: Path, seed: int) -> tuple[Network, dict[str, Any]]:
    from quantize.qat import fine_tune

    own, given = checkpoint.tokenizer, data.tokenizer
    if (own.token_bytes, own.merges()) != (given.token_bytes, given.merges()):
        raise UserError(
            f"`{data.path}` has another tokenizer than `{checkpoint.path}`, and --method qat trains on its tokens",
            code="other-tokenizer",
            hint="name the dataset that the checkpoint was trained on",
        )
    say("training with every product in int8")
    model, facts = fine_tune(checkpoint, data, scratch, seed=seed)
    return model, {"training": facts}
