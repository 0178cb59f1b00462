"""The race: all systems type the same queries, session by session in turn: the machine's moods hit all alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from peers import System
from peers.ours import Ours
from peers.python_beam import PythonBeam


class Press(NamedTuple):
    """One key press of one system."""

    session: int
    milliseconds: float
    cpu_milliseconds: float
    """Of the whole process: what a busy machine adds by waiting is not in it."""
    steps: int | None
    """Decoder steps."""
    suggestions: int
    """Texts in the list."""
    found: bool
    """Whether the query that is being typed is among them."""
    multiplications: int | None
    """Int8 multiply-adds that a search as exact as ours needs for it; counted for ours only."""


Presses = dict[tuple[str, int], list[Press]]
"""By system and by number of earlier queries."""


def draw_sessions(sessions: Sequence[list[str]], count: int, *, seed: int = 1) -> list[list[str]]:
    """`count` sessions of at least two queries, at random."""
    able = [queries for queries in sessions if len(queries) > 1]
    order = np.random.default_rng(seed).permutation(len(able))[:count]
    return [able[number] for number in order.tolist()]


def lengthened(queries: Sequence[str], length: int) -> list[str]:
    """The last `length` queries of a session that goes round and round: real sessions of 50 queries are rare."""
    return (list(queries) * length)[-length:]


def race(
    systems: Sequence[System], sessions: Sequence[list[str]], lengths: Sequence[int], progress: Callable[[int], None]
) -> Presses:
    """Types the last query of each session, after its earlier ones brought to each of `lengths`.

    Every beginning of 1 to all but one of its characters is a key press. Systems take turns in changing order. One of
    them is a `PythonBeam`, which also counts the work that each of our searches needs, when nothing is timed.
    """
    presses: Presses = {(system.name, length): [] for system in systems for length in lengths}
    (counter,) = (system for system in systems if isinstance(system, PythonBeam))
    for system in systems:  # warm-up
        _type(system, lengthened(sessions[0][:-1], lengths[0]), sessions[0][-1], 0, counter)
    gc.disable()
    try:
        for number, (*earlier, query) in enumerate(sessions):
            for length in lengths:
                turn = number % len(systems)
                for system in [*systems[turn:], *systems[:turn]]:
                    found = _type(system, lengthened(earlier, length), query, number, counter)
                    presses[system.name, length] += found
            gc.collect()
            progress(number + 1)
    finally:
        gc.enable()
    return presses


def _type(system: System, earlier: list[str], query: str, session: int, counter: PythonBeam) -> list[Press]:
    """All key presses of `query`."""
    presses, floors = [], []
    typed = [query[:length] for length in range(1, len(query))]
    system.start(earlier)
    for prefix in typed:
        cpu_began, began = time.process_time(), time.perf_counter()
        texts = system.suggest(prefix)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        presses.append(Press(session, took * 1000, cpu * 1000, system.steps, len(texts), query in texts, None))
        if isinstance(system, Ours):
            floors.append(system.least)
    if not floors:
        return presses
    counter.start(earlier)
    return [
        press._replace(multiplications=counter.multiplications(prefix, least))
        for press, prefix, least in zip(presses, typed, floors, strict=True)
    ]
