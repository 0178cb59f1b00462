"""A bundle under a million key presses: memory that stays flat, answers that stay the same, times that stay stable."""

import itertools
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from mtn_edge.runtime.suggester import Suggester

REQUESTS = 1_000_000
LOOK_EVERY = 1000
SESSIONS = ([], ["new york"], ["jaguar price", "jaguar dealer"], ["東京 weather", "paris hotels", "berlin jobs 🎉"])
TYPED = ("", "n", "new", "new y", "jaguar ", "JAG", "paris re", "東京", "москва ho", "zzz", "new york hot", "naïve")


@pytest.mark.slow
def test_a_million_requests_leave_memory_and_times_as_they_were(tiny_bundle: Path) -> None:
    command = [sys.executable, __file__, str(tiny_bundle), str(REQUESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    logging.getLogger(__name__).info("%s", figures)  # shown with --log-cli-level=INFO
    assert figures["different"] == 0
    warm = np.array(figures["memory_mb"])[REQUESTS // LOOK_EVERY // 10 :]
    tenth = len(warm) // 10
    assert warm[-tenth:].mean() <= 1.01 * warm[:tenth].mean()


def endure(bundle: Path, requests: int) -> dict[str, object]:
    """Answers `requests` key presses; memory now and then, p99 of each tenth, and how many lists ever changed."""
    suggester = Suggester.open(bundle)
    process = psutil.Process()
    sessions = [suggester.session(queries) for queries in SESSIONS]
    asked = list(itertools.product(range(len(sessions)), TYPED))
    first: dict[tuple[int, str], object] = {}
    times, memory = np.full(requests, 0.0, dtype=np.float32), []  # filled: its pages must not look like growth
    different = 0
    for number in range(requests):
        place, typed = asked[number % len(asked)]
        if number % 50 == 49:  # sessions come and go
            sessions[place] = suggester.session(SESSIONS[place])
        began = time.perf_counter()
        result = sessions[place].suggest(typed, 8, deadline_ms=60_000)
        times[number] = time.perf_counter() - began
        different += result.suggestions != first.setdefault((place, typed), result.suggestions)
        if number % LOOK_EVERY == 0:
            memory.append(round(process.memory_info().rss / 1e6, 3))
    tenths = np.array_split(times, 10)
    p99 = [round(float(np.percentile(tenth, 99)) * 1e3, 3) for tenth in tenths]
    return {"memory_mb": memory, "p99_ms": p99, "different": different}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(endure(Path(sys.argv[1]), int(sys.argv[2]))))
