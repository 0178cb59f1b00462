"""Loading, memory, and how many key presses a second one open bundle answers from several threads."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers import SUGGESTIONS

from measuring.race import lengthened
from mtn_edge.profiling.protocol import profile_bundle
from mtn_edge.runtime.suggester import Suggester

THREADS = (1, 2, 4, 8)
EARLIER = 5
"""Queries before the one that is typed."""


def loading(bundle: Path, sessions: Sequence[list[str]]) -> dict[str, Any]:
    """`load_ms`, `rss_mb` (growth by opening and typing `sessions`) and `bytes`, in fresh processes of their own."""
    figures = profile_bundle(bundle, sessions, threads=1, progress=lambda _: None).figures
    return {key: figures[key] for key in ("load_ms", "load_ms_all", "import_ms", "rss_mb", "bytes")}


def throughput(
    bundle: Path, sessions: Sequence[list[str]], *, seconds: float, rounds: int
) -> dict[int, dict[str, float]]:
    """Key presses a second for each number of threads: median, least and most of the rounds, which alternate."""
    suggester = Suggester.open(bundle, threads=1)
    rates: dict[int, list[float]] = {count: [] for count in THREADS}
    for _ in range(rounds):
        for count in THREADS:
            rates[count].append(_rate(suggester, sessions, count, seconds))
    return {
        count: {"per_s": statistics.median(found), "least": min(found), "most": max(found)}
        for count, found in rates.items()
    }


def _rate(suggester: Suggester, sessions: Sequence[list[str]], count: int, seconds: float) -> float:
    """Key presses a second of `count` threads that all type for `seconds`."""
    done = [0] * count
    elapsed = [0.0] * count
    ready = threading.Barrier(count)

    def work(number: int) -> None:
        ready.wait()
        began = time.perf_counter()
        place = number
        while True:
            *earlier, query = sessions[place % len(sessions)]
            session = suggester.session(lengthened(earlier, EARLIER))
            for typed in range(1, len(query)):
                session.suggest(query[:typed], SUGGESTIONS)
                done[number] += 1
                elapsed[number] = time.perf_counter() - began
                if elapsed[number] > seconds:
                    return
            place += count

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(presses / took for presses, took in zip(done, elapsed, strict=True))
