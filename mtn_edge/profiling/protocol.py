"""How a bundle is measured: in processes of its own, so that loading and memory are those of that bundle alone.

Five fresh processes open it and end; a sixth opens it, answers a warm-up of 50 requests that does not count, and then
every key press of some sessions with 8 suggestions each. The machine's file cache is warm.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtn_edge.errors import UserError
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.profiling.worker import SUGGESTIONS, WARM_UP, Job

LOADS = 5
"""Processes that open the bundle and end."""
PERCENTILES = (50, 95, 99)
PREFIX_GROUPS = {"1": (1, 1), "2-3": (2, 3), "4-7": (4, 7), "8-15": (8, 15), "16+": (16, sys.maxsize)}
"""Groups of characters typed."""
SESSION_GROUPS = {"0": (0, 0), "1": (1, 1), "2-3": (2, 3), "4-7": (4, 7), "8+": (8, sys.maxsize)}
"""Groups of earlier queries."""


@dataclass(frozen=True)
class Profile:
    """What was measured of one bundle.

    Attributes:
        figures: the document of `profile --json` for it.
        keystroke_ms: every key press's milliseconds, for plots.
    """

    figures: dict[str, Any]
    keystroke_ms: list[float]


def profile_bundle(
    bundle: Path, sessions: Sequence[list[str]], *, threads: int, progress: Callable[[int], None]
) -> Profile:
    """Measures one bundle.

    Args:
        bundle: its folder.
        sessions: queries to type, session by session, in normal form.
        threads: threads of one call.
        progress: called with the requests answered so far.

    Raises:
        UserError: the bundle does not open, or a measuring process broke down.
    """
    opening = Job(bundle=str(bundle), threads=threads, sessions=[])
    loads = [_run(opening, lambda _: None) for _ in range(LOADS)]
    measured = _run(Job(bundle=str(bundle), threads=threads, sessions=list(sessions)), progress)
    surroundings = {"machine": describe_machine(), "versions": describe_versions()}
    return summarize(bundle, loads, measured, {"threads": threads, "sessions": len(sessions), **surroundings})


def summarize(
    bundle: Path, loads: Sequence[dict[str, Any]], measured: dict[str, Any], given: dict[str, Any]
) -> Profile:
    """The figures of what the processes measured.

    Args:
        bundle: its folder.
        loads: results of the processes that opened it and ended (see `worker.measure`).
        measured: the result of the one that answered requests.
        given: what stands in the figures as it is: `threads`, `sessions`, `machine`, `versions`.
    """
    table = np.array(measured["requests"]).reshape(-1, 4)
    earlier, typed, took = table[:, 1], table[:, 2], table[:, 3]
    pressed = typed > 0
    files = {
        file.relative_to(bundle).as_posix(): file.stat().st_size for file in sorted(bundle.rglob("*")) if file.is_file()
    }
    figures = {
        "bytes": sum(files.values()),
        "files": files,
        "load_ms": statistics.median(load["load_ms"] for load in loads),
        "load_ms_all": [load["load_ms"] for load in loads],
        "import_ms": statistics.median(load["import_ms"] for load in loads),
        "open_rss_mb": statistics.median(load["open_rss_mb"] for load in loads),
        "rss_mb": measured["rss_mb"],
        "process_mb": measured["process_mb"],
        "encode_ms": percentiles(measured["encode"]),
        "suggest_ms": percentiles(took[~pressed]),
        "keystroke_ms": percentiles(took[pressed])
        | {
            "by_prefix_length": _grouped(PREFIX_GROUPS, typed[pressed], took[pressed]),
            "by_session_length": _grouped(SESSION_GROUPS, earlier[pressed], took[pressed]),
        },
        "suggestions": SUGGESTIONS,
        "warm_up": WARM_UP,
    }
    return Profile(figures | given, took[pressed].tolist())


def percentiles(values: Sequence[float] | np.ndarray[Any, Any]) -> dict[str, Any]:
    """`p50`, `p95`, `p99` (None without values) and `count`."""
    if not len(values):
        return {f"p{share}": None for share in PERCENTILES} | {"count": 0}
    found = np.percentile(np.asarray(values), PERCENTILES)
    return {f"p{share}": float(value) for share, value in zip(PERCENTILES, found, strict=True)} | {"count": len(values)}


def _grouped(
    groups: dict[str, tuple[int, int]], keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """Percentiles of each group that has values."""
    masks = {name: (keys >= low) & (keys <= high) for name, (low, high) in groups.items()}
    return {name: percentiles(values[mask]) for name, mask in masks.items() if mask.any()}


def read_result(lines: Iterable[str], progress: Callable[[int], None]) -> dict[str, Any] | None:
    """The result among the lines that a measuring process prints (see `worker`); None when it ended without one.

    Raises:
        UserError: what it met.
    """
    for line in lines:
        if not line.startswith("{") or not line.endswith("\n"):
            continue  # of a library that talks, or cut off
        document = json.loads(line)
        if "done" in document:
            progress(document["done"])
        elif "error" in document:
            raise UserError(**document["error"])
        else:
            result: dict[str, Any] = document["result"]
            return result
    return None


def _run(job: Job, progress: Callable[[int], None]) -> dict[str, Any]:
    command = [sys.executable, "-m", "mtn_edge.profiling.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:  # noqa: S603
        assert worker.stdin is not None
        assert worker.stdout is not None
        json.dump(asdict(job), worker.stdin)
        worker.stdin.close()
        try:
            result = read_result(worker.stdout, progress)
        except BaseException:
            worker.kill()
            raise
    if result is not None:
        return result
    raise UserError(
        f"the process that measures `{job.bundle}` ended with status {worker.returncode} and no result",
        code="worker-failed",
        hint="its own words stand above",
    )
