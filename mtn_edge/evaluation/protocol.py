"""Which questions are put to a system, and its answers: the same questions for all systems.

Two tasks. *suggest*: nothing is typed; which query comes next, given the session so far? Asked at every position from
the second query on. *complete*: some characters of the query are typed; how does it end? Asked at every position, the
first included, with one prefix length drawn in each of 1-3, 4-7 and 8 or more characters that is shorter than the
query; and once more key by key, from no character on, until the bar of 3 shows the whole query.

When the split holds more queries than the cap, sessions are drawn at random and taken whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError
from mtn_edge.evaluation import metrics
from mtn_edge.evaluation.metrics import Floats, Integers
from mtn_edge.evaluation.systems import System, SystemSession

Task = Literal["suggest", "complete"]
TASKS: tuple[Task, ...] = ("suggest", "complete")
PREFIX_LENGTHS: dict[str, tuple[int, int | None]] = {"1-3": (1, 3), "4-7": (4, 7), "8+": (8, None)}
"""Groups of prefix lengths in characters; one prefix is drawn in each that a query allows."""


@dataclass(frozen=True)
class Questions:
    """One task's questions on some sessions.

    Attributes:
        task: which task.
        sessions: the sessions asked about, whole.
        prefixes: for each query of each session, what is typed of it at each question; empty where nothing is asked.
        session, position, prefix_length: number of the session, place of the query in it (from 0) and characters typed
            of each question, [n].
        seen: whether the query of each question is in the popularity list of the training split, [n].
        repeat: whether the query of each question equals the one before it, [n].
        target_session: number of the session of each query asked about, [targets].
        available: queries that could have been asked about; more than there are targets when the cap cut.
    """

    task: Task
    sessions: list[list[str]]
    prefixes: list[list[tuple[str, ...]]]
    session: Integers
    position: Integers
    prefix_length: Integers
    seen: NDArray[np.bool_]
    repeat: NDArray[np.bool_]
    target_session: Integers
    available: int


@dataclass(frozen=True)
class Answers:
    """What one system answered.

    Attributes:
        rank, partial_rank: place of the query, and of its first word-end prefix, for each question, [n].
        best: the first candidate of each question, empty when there was none.
        log_probability: log-probability (nats) and tokens of each target, [targets, 2]; None for lists and for
            completion, where the model is not asked.
        keys: keys to search each target with the bar and without it, [targets, 2]; None for suggestion.
    """

    rank: Integers
    partial_rank: Integers
    best: list[str]
    log_probability: Floats | None
    keys: Floats | None


def draw_questions(
    sessions: Sequence[list[str]], task: Task, *, popular: Collection[str], max_queries: int, seed: int
) -> Questions:
    """Chooses sessions and prefixes.

    Args:
        sessions: the split, queries in normal form.
        task: which task.
        popular: queries that count as seen.
        max_queries: queries that are asked about at most; one session is taken even when it has more.
        seed: seed of the choice; the same one gives the same questions.

    Raises:
        UserError: the split holds nothing to ask about.
    """
    first = 1 if task == "suggest" else 0
    usable = [number for number, queries in enumerate(sessions) if len(queries) > first]
    if not usable:
        what = "session of two queries" if first else "session"
        raise UserError(
            f"task `{task}` needs a {what}, and the split has none",
            code="nothing-to-evaluate",
            hint="take another split or a larger log" if not first else "take --task complete or another split",
        )
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    targets = 0
    for number in rng.permutation(usable).tolist():
        targets += len(sessions[number]) - first
        if chosen and targets > max_queries:
            break
        chosen.append(number)
    taken = [sessions[number] for number in sorted(chosen)]

    def typed(number: int, query: str) -> tuple[str, ...]:
        if number < first:
            return ()
        return ("",) if task == "suggest" else draw_prefixes(query, rng)

    prefixes = [[typed(number, query) for number, query in enumerate(queries)] for queries in taken]
    rows = [
        (s, i, len(prefix), query in popular, i > 0 and query == taken[s][i - 1])
        for s, queries in enumerate(taken)
        for i, query in enumerate(queries)
        for prefix in prefixes[s][i]
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return Questions(
        task=task,
        sessions=taken,
        prefixes=prefixes,
        session=table[:, 0],
        position=table[:, 1],
        prefix_length=table[:, 2],
        seen=table[:, 3].astype(bool),
        repeat=table[:, 4].astype(bool),
        target_session=np.array([s for s, queries in enumerate(taken) for _ in queries[first:]], dtype=np.int64),
        available=sum(len(sessions[number]) - first for number in usable),
    )


def draw_prefixes(query: str, rng: np.random.Generator) -> tuple[str, ...]:
    """One prefix of `query` in each group of `PREFIX_LENGTHS` that has one, never the whole query."""
    prefixes = []
    for low, high in PREFIX_LENGTHS.values():
        longest = min(len(query) - 1, high if high is not None else len(query))
        if longest >= low:
            prefixes.append(query[: int(rng.integers(low, longest + 1))])
    return tuple(prefixes)


def ask(system: System, questions: Questions, *, progress: Callable[[int], None]) -> Answers:
    """Puts all questions to `system`, session by session, each query appended once it has been asked about.

    Args:
        system: what is measured.
        questions: of one task.
        progress: called with the number of targets done.
    """
    suggest = questions.task == "suggest"
    ranks: list[tuple[int, int]] = []
    best: list[str] = []
    scores: list[tuple[float, int] | None] = []
    keys: list[tuple[int, int]] = []
    done = 0
    for queries, prefixes_of in zip(questions.sessions, questions.prefixes, strict=True):
        session = system.start()
        for number, (query, prefixes) in enumerate(zip(queries, prefixes_of, strict=True)):
            if number or not suggest:
                known: dict[str, list[str]] = {}
                for prefix in prefixes:
                    known[prefix] = candidates = session.candidates(prefix)
                    ranks.append((metrics.rank(query, candidates), metrics.partial_rank(query, candidates)))
                    best.append(candidates[0] if candidates else "")
                if suggest:
                    scores.append(session.log_probability(query))
                else:
                    shown = _first_shown(session, query, known)
                    keys.append((metrics.keys_to_search(len(query), shown), metrics.keys_to_search(len(query), None)))
                done += 1
                progress(done)
            session.append(query)
    table = np.array(ranks, dtype=np.int64).reshape(-1, 2)
    scored = [score for score in scores if score is not None]
    return Answers(
        rank=table[:, 0],
        partial_rank=table[:, 1],
        best=best,
        log_probability=np.array(scored, dtype=np.float64) if scored else None,
        keys=np.array(keys, dtype=np.float64) if keys else None,
    )


def _first_shown(session: SystemSession, query: str, known: dict[str, list[str]]) -> int | None:
    """Characters of `query` typed when the bar first shows the whole of it; None when it never does."""
    for typed in range(len(query)):
        prefix = query[:typed]
        candidates = known[prefix] if prefix in known else session.candidates(prefix)
        if query in candidates[: metrics.BAR]:
            return typed
    return None
