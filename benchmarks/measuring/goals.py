"""From presses to rows, and from rows to goals with their bounds: what is missed says so."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from peers.ours import FUSED, NO_FLOOR, WITHOUT_LISTS

from measuring.limits import Limits
from measuring.race import Press, Presses
from mtn_edge.profiling.protocol import percentiles

FOLDS = 5
"""Parts of the sessions that a spread is taken over."""
AGAINST_TRANSLATOR = 0.33
TAIL = 3.0
"""p99 over p50."""
AGAINST_LIMIT = 2.0
OVER_SESSION_LENGTH = 1.1
LOAD_MS = 50.0
MEMORY_GROWTH = 2.5
"""Growth of resident memory over the bundle's bytes."""
MIXED = 1.25
"""A key press with something mixed in, over one without."""
SCALING = 0.9
"""Throughput of most threads over that of one and the cores."""


def summarize(preset: str, presses: Presses, limits: Limits) -> list[dict[str, Any]]:
    """A row for each system and session length; ours carry the limits of their own work.

    Args:
        preset: what the rows are called.
        presses: what was raced.
        limits: of this machine.
    """
    rows = []
    for (system, length), found in presses.items():
        steps = [press.steps for press in found if press.steps is not None]
        row: dict[str, Any] = {
            "preset": preset,
            "system": system,
            "earlier_queries": length,
            "keystroke_ms": percentiles([press.milliseconds for press in found]),
            "cpu_ms": percentiles([press.cpu_milliseconds for press in found]),
            "steps": statistics.mean(steps) if steps else None,
            "suggestions": statistics.mean(press.suggestions for press in found),
            "found": statistics.mean(press.found for press in found),
        }
        needed = [press.multiplications for press in found if press.multiplications is not None]
        if needed:
            row["multiplications"] = statistics.median(needed)
            row["memory_limit_ms"] = limits.memory_ms(statistics.median(steps))
            row["arithmetic_limit_ms"] = limits.arithmetic_ms(row["multiplications"])
        rows.append(row)
    return rows


def race_goals(preset: str, ours: str, translator: str, presses: Presses, rows: list[dict[str, Any]]) -> list[Any]:
    """The goals of one way to open our bundle.

    Args:
        preset: what the goals begin with.
        ours: name of the system.
        translator: name of the one it is held against.
        presses: what was raced.
        rows: of `summarize`.
    """
    lengths = sorted({length for _, length in presses})
    goals = []
    for length in lengths:
        pair = presses[ours, length], presses[translator, length]
        spread = _spread(pair, lambda a, b: _p50(a) / _p50(b))
        name = f"{preset}: {ours}, p50 over {translator}'s, {length} earlier"
        goals.append(goal(name, _p50(pair[0]) / _p50(pair[1]), AGAINST_TRANSLATOR, spread))
    for length in lengths:
        mine = presses[ours, length]
        spread = _spread((mine,), lambda a: _p99(a) / _p50(a))
        goals.append(goal(f"{preset}: {ours}, p99 over p50, {length} earlier", _p99(mine) / _p50(mine), TAIL, spread))
    for row in rows:
        if row["system"] == ours:
            limit = max(row["memory_limit_ms"], row["arithmetic_limit_ms"])
            spread = _spread((presses[ours, row["earlier_queries"]],), lambda a, at=limit: _p50(a) / at)
            name = f"{preset}: {ours}, p50 over the larger limit, {row['earlier_queries']} earlier"
            goals.append(goal(name, row["keystroke_ms"]["p50"] / limit, AGAINST_LIMIT, spread))
    pair = presses[ours, lengths[-1]], presses[ours, lengths[0]]
    name = f"{preset}: {ours}, p50 at {lengths[-1]} over {lengths[0]} earlier"
    spread = _spread(pair, lambda a, b: _p50(a) / _p50(b))
    goals.append(goal(name, _p50(pair[0]) / _p50(pair[1]), OVER_SESSION_LENGTH, spread))
    return goals


def mixing_goals(preset: str, presses: Presses) -> list[dict[str, Any]]:
    """What a key press costs with something mixed in, against the network alone; nobody has a floor."""
    goals = []
    for length in sorted({length for _, length in presses}):
        for name, mixed, alone in (("lists", NO_FLOOR, WITHOUT_LISTS), ("n-gram and copying", FUSED, WITHOUT_LISTS)):
            pair = presses[mixed, length], presses[alone, length]
            spread = _spread(pair, lambda a, b: _p50(a) / _p50(b))
            title = f"{preset}: p50 with {name} over without, {length} earlier"
            goals.append(goal(title, _p50(pair[0]) / _p50(pair[1]), MIXED, spread))
    return goals


def capacity_goals(
    preset: str, loading: dict[str, Any], threads: dict[int, dict[str, float]], cores: int
) -> list[dict[str, Any]]:
    """The goals of loading, memory and threads."""
    most = max(threads)
    linear = min(most, cores) * threads[1]["per_s"]
    rates = threads[most]
    return [
        goal(f"{preset}: cold load, ms", loading["load_ms"], LOAD_MS, _ends(loading["load_ms_all"])),
        goal(f"{preset}: memory growth over bundle", loading["rss_mb"] * 1e6 / loading["bytes"], MEMORY_GROWTH),
        goal(
            f"{preset}: {most} threads over {min(most, cores)} x one thread (at least)",
            rates["per_s"] / linear,
            SCALING,
            [rates["least"] / linear, rates["most"] / linear],
            at_least=True,
        ),
    ]


def goal(
    name: str, value: float, bound: float, spread: list[float] | None = None, *, at_least: bool = False
) -> dict[str, Any]:
    """`value` against an upper bound, or a lower one; `spread` is its least and most over parts of the measurement."""
    ok = value >= bound if at_least else value <= bound
    return {"name": name, "value": value, "spread": spread or [value, value], "bound": bound, "ok": bool(ok)}


def _spread(found: Sequence[Sequence[Press]], figure: Callable[..., float]) -> list[float]:
    """Least and most of `figure` over parts of the sessions."""
    sessions = sorted({press.session for press in found[0]})
    values = []
    for fold in range(min(FOLDS, len(sessions))):
        kept = set(sessions[fold::FOLDS])
        values.append(figure(*([press for press in each if press.session in kept] for each in found)))
    return _ends(values)


def _ends(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)]


def _p50(presses: Sequence[Press]) -> float:
    return float(np.percentile([press.milliseconds for press in presses], 50))


def _p99(presses: Sequence[Press]) -> float:
    return float(np.percentile([press.milliseconds for press in presses], 99))
