"""The measured process: opens one bundle, types what it is told, and prints the times.

Run as `python -m mtn_edge.profiling.worker` with a `Job` as JSON on standard input. Each line of standard output is a
JSON document: `{"done": n}` now and then, at last `{"result": ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mtn_edge.errors import UserError
from mtn_edge.profiling.cases import presses

SUGGESTIONS = 8
"""Suggestions asked for at each key press."""
WARM_UP = 50
"""Requests answered before the first one that counts."""
_REPORT_EVERY = 100


@dataclass(frozen=True)
class Job:
    """What one process measures.

    Attributes:
        bundle: folder of the bundle.
        threads: threads of one call.
        sessions: queries to type, session by session; none when only opening is measured.
    """

    bundle: str
    threads: int
    sessions: list[list[str]]


def measure(job: Job) -> dict[str, Any]:
    """Opens the bundle and answers every key press of the job.

    Returns:
        `import_ms`, `load_ms` (with the check of all hashes), `open_rss_mb` and `rss_mb` (growth of resident memory
        since the libraries were there, by opening and in all), `process_mb` (all of the process), and in milliseconds
        `encode` (a list), `requests` (session number, earlier queries, characters typed, milliseconds for each).
    """
    began = time.perf_counter()
    # Everything that opening needs, so that loading measures the bundle and not Python's imports.
    import onnxruntime  # noqa: F401

    from mtn_edge.runtime.suggester import Suggester

    import_ms = _since(began)
    process = psutil.Process()
    before = process.memory_info().rss
    began = time.perf_counter()
    suggester = Suggester.open(Path(job.bundle), threads=job.threads)
    load_ms = _since(began)
    opened = process.memory_info().rss

    for press in list(presses(job.sessions))[:WARM_UP]:
        suggester.session(job.sessions[press.session][: press.earlier]).suggest(press.prefix, SUGGESTIONS)
    encode: list[float] = []
    requests: list[tuple[int, int, int, float]] = []
    number, session = -1, suggester.session()
    earlier = 0
    for press in presses(job.sessions):
        if press.session != number:
            number, earlier, session = press.session, 0, suggester.session()
        if press.earlier != earlier:
            query = job.sessions[number][earlier]
            began = time.perf_counter()
            session.append(query)
            encode.append(_since(began))
            earlier = press.earlier
        began = time.perf_counter()
        session.suggest(press.prefix, SUGGESTIONS)
        requests.append((number, earlier, len(press.prefix), _since(began)))
        if len(requests) % _REPORT_EVERY == 0:
            _tell({"done": len(requests)})
    after = process.memory_info().rss
    return {
        "import_ms": import_ms,
        "load_ms": load_ms,
        "open_rss_mb": (opened - before) / 1e6,
        "rss_mb": (after - before) / 1e6,
        "process_mb": after / 1e6,
        "encode": encode,
        "requests": requests,
    }


def main() -> int:
    """Reads the job, measures, prints; the exit status is that of the command line."""
    job = Job(**json.load(sys.stdin))
    try:
        _tell({"result": measure(job)})
    except UserError as error:
        _tell({"error": {"message": error.message, "code": error.code, "hint": error.hint}})
        return error.exit_code
    return 0


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _tell(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
