"""A bundle under a million key presses: memory that stays flat, answers that stay the same, times that stay stable."""

import itertools
import logging
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from mtn_edge.runtime.suggester import Suggester

REQUESTS = 1_000_000
SHARE = REQUESTS // 10
WARM_UP = SHARE
SESSIONS = ([], ["new york"], ["jaguar price", "jaguar dealer"], ["東京 weather", "paris hotels", "berlin jobs 🎉"])
TYPED = ("", "n", "new", "new y", "jaguar ", "JAG", "paris re", "東京", "москва ho", "zzz", "new york hot", "naïve")


@pytest.mark.slow
def test_a_million_requests_leave_memory_and_times_as_they_were(tiny_bundle: Path) -> None:
    suggester = Suggester.open(tiny_bundle)
    process = psutil.Process()
    sessions = [suggester.session(queries) for queries in SESSIONS]
    asked = list(itertools.product(range(len(sessions)), TYPED))
    first: dict[tuple[int, str], object] = {}
    memory, times = [], np.empty(REQUESTS, dtype=np.float32)
    for number in range(REQUESTS):
        place, typed = asked[number % len(asked)]
        if number % 50 == 49:  # sessions come and go
            sessions[place] = suggester.session(SESSIONS[place])
        began = time.perf_counter()
        result = sessions[place].suggest(typed, 8, deadline_ms=60_000)
        times[number] = time.perf_counter() - began
        assert result.suggestions == first.setdefault((place, typed), result.suggestions)
        if number % 1000 == 0:
            memory.append(process.memory_info().rss)
    warm = np.array(memory[WARM_UP // 1000 :], dtype=float)
    tenth = len(warm) // 10
    before, after = warm[:tenth].mean(), warm[-tenth:].mean()
    assert after <= 1.01 * before, f"{before / 1e6:.1f} MB became {after / 1e6:.1f} MB"
    p99 = [np.percentile(times[start : start + SHARE], 99) for start in range(WARM_UP, REQUESTS, SHARE)]
    logging.getLogger(__name__).info(  # shown with --log-cli-level=INFO
        "memory %.2f to %.2f MB, p99 of each tenth %s ms",
        before / 1e6,
        after / 1e6,
        ", ".join(f"{each * 1e3:.2f}" for each in p99),
    )
