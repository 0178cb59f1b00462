"""The search for the smallest bundle within the budgets: cheap proxies first, the best so far kept, a time limit.

1. Points that are larger than the budget by arithmetic are left out (`export.compress.sizes`).
2. Every other way to a network is gone a short part of (an eighth of the epochs; pruning without recovery), as in the
   first rung of successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943): its validation loss is the proxy.
3. In the order of the proxies, the best first and the larger first among equals, points are made whole and measured. A
   point that cannot be smaller than the best so far is passed over. After `PATIENCE` points in a row that lost more
   quality than they may, what comes later would lose more still: the search ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from export.compress.recipe import Budgets, Point
from export.compress.sizes import Expected
from mtn_edge.console import say

PATIENCE = 2
PROXY_SHARE = 8
"""A proxy trains for one epoch in so many."""


@dataclass(frozen=True)
class Measured:
    """A point that was made whole.

    Attributes:
        point: what was done.
        figures: `bytes`, `keystroke_ms`, `mrr@10` (validation, mean of both tasks) and `drop` beside the teacher.
        over: what it costs beyond each budget that it breaks, as a share of that budget; empty when it keeps all.
    """

    point: Point
    figures: dict[str, Any]
    over: dict[str, float]


def overdrawn(budgets: Budgets, figures: dict[str, Any]) -> dict[str, float]:
    """The budgets that a bundle breaks, and by how much, as a share of each."""
    spent = {
        "size_mb": figures["bytes"] / 1e6,
        "p95_ms": figures["keystroke_ms"]["p95"],
        "max_quality_drop": figures["drop"],
    }
    limits = {name: getattr(budgets, name) for name in spent}
    return {name: spent[name] / limit - 1 for name, limit in limits.items() if limit and spent[name] > limit}


def search(
    points: Sequence[Point],
    sizes: Sequence[Expected],
    *,
    budgets: Budgets,
    deadline: float,
    proxy: Callable[[Point], float],
    make: Callable[[Point], Measured],
) -> list[Measured]:
    """Makes points whole until the best is found.

    Args:
        points: all of them.
        sizes: of each, beforehand.
        budgets: what a bundle may cost.
        deadline: the moment of `time.monotonic` after which nothing new begins, once there is a point.
        proxy: the validation loss of a point after a short part of its way.
        make: goes the whole way.

    Returns:
        What was made whole, in that order; empty when no point can be small enough.
    """
    limit = budgets.size_mb * 1e6
    able = [(point, size) for point, size in zip(points, sizes, strict=True) if not limit or size.bundle <= limit]
    if len(able) > 1:
        losses = {}
        for number, (point, _) in enumerate(able, 1):
            say(f"proxy {number} of {len(able)}: {point.name}")
            losses[point.name] = proxy(point)
            if time.monotonic() > deadline:
                say("the time limit is reached: points without a proxy are left out")
                break
        able = [(point, size) for point, size in able if point.name in losses]
        able.sort(key=lambda each: (losses[each[0].name], -each[1].bundle))
    found: list[Measured] = []
    failed = 0
    for point, size in able:
        best = chosen(found)
        if best is not None and time.monotonic() > deadline:
            say("the time limit is reached: the best so far is taken")
            break
        if best is not None and not best.over and size.bundle >= best.figures["bytes"]:
            continue
        say(f"point: {point.name}, about {size.bundle / 1e6:.2f} MB")
        found.append(make(point))
        say(f"point: {point.name}: {figures_in_words(found[-1].figures)}{_broken(found[-1])}")
        failed = failed + 1 if "max_quality_drop" in found[-1].over else 0
        if failed == PATIENCE:
            break
    return found


def chosen(found: Sequence[Measured]) -> Measured | None:
    """The smallest that keeps all budgets; when none does, the one that is least beyond them."""
    if not found:
        return None
    return min(found, key=lambda each: (max(each.over.values(), default=0.0), each.figures["bytes"]))


def figures_in_words(figures: dict[str, Any]) -> str:
    """Size, time and quality of a bundle."""
    return (
        f"{figures['bytes'] / 1e6:.2f} MB, p95 {figures['keystroke_ms']['p95']:.1f} ms, "
        f"MRR@10 {figures['mrr@10']:.4f} ({-figures['drop']:+.1%})"
    )


def _broken(measured: Measured) -> str:
    return f"; beyond {', '.join(measured.over)}" if measured.over else ""
