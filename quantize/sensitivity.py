"""What quantizing each group of tensors alone costs, and the plan that keeps a stated share of the quality.

Two measures. KL: how far the network's distribution over the next token moves, in nats a token, with float32 as the
truth; it sees changes long before a list does. MRR: what a user notices, and what `--max-drop` is about.

The search for a plan is greedy: all groups float32 at first, then one after the other in the smallest precision that
keeps within the drop, those first that cost the least KL for a byte saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.models.build import Network
from mtn_edge.tokenizer import PAD
from quantize.plan import GROUPS, PRECISIONS, Plan, Precision, uniform_plan


@dataclass(frozen=True)
class Effect:
    """A group of tensors quantized alone, everything else float32."""

    group: str
    precision: Precision
    kl: float
    """Nats a token."""
    mrr_loss: float | None
    """Relative to float32; None when it was not measured."""
    saved: int
    """Bytes less than in float32."""


@dataclass(frozen=True)
class Point:
    """A plan that was tried."""

    plan: dict[str, Precision]
    drop: float
    """Relative loss of MRR; below 0 when it gained."""


@torch.no_grad()
def mean_kl(reference: Network, other: Network, batches: Iterable[Batch]) -> float:
    """Mean of KL(reference, other) over the tokens to predict, nats a token; both in evaluation mode."""
    total, count = 0.0, 0
    for batch in batches:
        wanted = batch.target_out[batch.target_in != PAD] != IGNORE
        true, found = (
            F.log_softmax(model.logits(model.states(batch.source, batch.target_in, batch.user)[wanted]), dim=-1)
            for model in (reference, other)
        )
        total += float((true.exp() * (true - found)).sum())
        count += int(wanted.sum())
    return total / count


def alone(group: str, precision: Precision) -> dict[str, Precision]:
    """The plan that quantizes `group` and nothing else."""
    return uniform_plan("fp32") | {group: precision}


def mixed_plan(
    effects: Sequence[Effect], drop_of: Callable[[Plan], float], max_drop: float
) -> tuple[Point | None, list[Point]]:
    """Searches for the smallest plan whose loss of MRR is at most `max_drop`.

    Args:
        effects: each group alone in the smallest precision that is asked for it.
        drop_of: measures a plan.
        max_drop: the largest relative loss of MRR.

    Returns:
        The plan, or None when no group can be quantized; and every point that was tried.
    """
    all_of_them = uniform_plan("fp32") | {effect.group: effect.precision for effect in effects}
    tried = [Point(all_of_them, drop_of(all_of_them))]
    if tried[0].drop <= max_drop:
        return tried[0], tried
    best: Point | None = None
    for effect in sorted(effects, key=_price):
        for precision in PRECISIONS[PRECISIONS.index(effect.precision) : PRECISIONS.index("fp32")]:
            plan = dict(best.plan if best is not None else uniform_plan("fp32")) | {effect.group: precision}
            tried.append(Point(plan, drop_of(plan)))
            if tried[-1].drop <= max_drop:
                best = tried[-1]
                break
    return best, tried


def asked_groups(plan: Plan, bytes_by_group: Mapping[str, int]) -> dict[str, Precision]:
    """The groups of `plan` that a model has and that are to be quantized."""
    return {group: plan[group] for group in GROUPS if group in bytes_by_group and plan[group] != "fp32"}


def _price(effect: Effect) -> float:
    return effect.kl / max(effect.saved, 1)
