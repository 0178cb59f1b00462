"""What the MTN's choices cost and save: quality from the cells, the time of a key press from int8 graphs in one race.

All variants answer the same key presses in turn on one thread, so that only their ratios to the default are kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from comparing.cells import Cell, lowered
from comparing.corpora import Corpus
from comparing.figures import REFERENCE
from mtn_edge.data.dataset import Dataset
from mtn_edge.runtime.suggester import Session, Suggester

PRESSES = 400
"""Key presses of the race."""
SUGGESTIONS = 8


def front_of(corpora: Sequence[Corpus], figures: dict[str, Any], work: Path) -> list[dict[str, Any]]:
    """A row for each choice whose cell is done: parameters, quality, key press against the default's.

    Args:
        corpora: the one with variants first, then those that are its sessions with another vocabulary.
        figures: of all corpora by name (see `figures.figures_of`).
        work: where the cells are.
    """
    names = [(corpora[0], name) for name in (REFERENCE, *corpora[0].variants)]
    names += [(corpus, REFERENCE) for corpus in corpora[1:]]
    done = [(corpus, name) for corpus, name in names if Cell(corpus.name, name, 1).is_done(work, corpus)]
    if len(done) < 2 or done[0][1] != REFERENCE:
        return []
    suggesters = [lowered(Cell(corpus.name, name, 1).checkpoint(work), "int8") for corpus, name in done]
    times = race(suggesters, Dataset.open(corpora[0].dataset(work)).sessions("test"))
    rows = []
    for (corpus, name), row in zip(done, times, strict=True):
        found = figures[corpus.name]
        rows.append(
            {
                "corpus": corpus.name,
                "system": name,
                "parameters": found["systems"][name][0]["parameters"],
                # The first training of each: the variants have no other.
                "suggest": found["tasks"]["suggest"][name]["seeds"][0],
                "complete": found["tasks"]["complete"][name]["seeds"][0],
                "keystroke": float(np.median(row / times[0])),
            }
        )
    return rows


def race(suggesters: Sequence[Suggester], sessions: Sequence[list[str]]) -> np.ndarray:
    """Seconds of each key press [suggesters, presses], the sessions typed key by key."""
    times: list[list[float]] = []
    for queries in sessions:
        running = [suggester.session() for suggester in suggesters]
        for before, query in pairwise(queries):
            for session in running:
                session.append(before)
            times += [[_press(session, query[:typed]) for session in running] for typed in range(len(query))]
            if len(times) >= PRESSES:
                return np.array(times).T
    return np.array(times).T


def _press(session: Session, typed: str) -> float:
    began = time.perf_counter()
    session.suggest(typed, SUGGESTIONS)
    return time.perf_counter() - began
