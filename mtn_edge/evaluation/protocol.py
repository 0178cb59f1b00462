"""Which questions are put to a system, and its answers: the same questions for all systems.

Two tasks. *suggest*: nothing is typed; which query comes next, given the session so far? Asked at every position from
the second query on. *complete*: some characters of the query are typed; how does it end? Asked at every position, the
first included, with the prefixes that `prefix_lengths` gives; and for the first key press after which the bar of 3, and
the whole list, show the query. `docs/evaluation.md` says the rest.

When the split holds more queries than the cap, sessions are drawn at random and taken whole.

Shapes: t queries asked about (targets), n questions about them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError
from mtn_edge.evaluation import metrics
from mtn_edge.evaluation.metrics import Floats, Integers
from mtn_edge.evaluation.navigational import Navigational
from mtn_edge.evaluation.prefixes import prefix_lengths
from mtn_edge.evaluation.systems import Candidates, System, SystemSession

Task = Literal["suggest", "complete"]
TASKS: tuple[Task, ...] = ("suggest", "complete")
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Questions:
    """One task's questions on some sessions.

    Attributes:
        task: which task.
        sessions: the sessions asked about, whole.
        prefixes: for each query of each session, what is typed of it at each question; empty where nothing is asked.
        target_session, position, length: number of the session, place in it (from 0) and characters of each target [t].
        seen: whether each target is in the popularity list of the training split, [t].
        repeat: whether each target equals the query before it, [t].
        navigational: whether each target is navigational, [t].
        target: number of the target of each question, [n].
        prefix_length: characters typed at each question, [n].
        seen_prefix: whether some query of the training split starts with what is typed at each question, [n].
        available: queries that could have been asked about; more than there are targets when the cap cut.
    """

    task: Task
    sessions: list[list[str]]
    prefixes: list[list[tuple[str, ...]]]
    target_session: Integers
    position: Integers
    length: Integers
    seen: Mask
    repeat: Mask
    navigational: Mask
    target: Integers
    prefix_length: Integers
    seen_prefix: Mask
    available: int

    @property
    def session(self) -> Integers:
        """Number of the session of each question, [n]."""
        return self.target_session[self.target]


@dataclass(frozen=True)
class Answers:
    """What one system answered.

    Attributes:
        rank, partial_rank: place of the query, and of its first word-end prefix, for each question, [n].
        best: the first candidate of each question, empty when there was none.
        probability: how probable the system says each candidate in the bar is, [n, 3], NaN where there is none; None
            for systems that do not say.
        log_probability: log-probability (nats) and tokens of each target, [t, 2]; None for lists.
        keys: keys to search each target with the bar and without it, [t, 2]; None for suggestion.
        recovered: characters at the end of each target that need not be typed, [t]; None for suggestion.
    """

    rank: Integers
    partial_rank: Integers
    best: list[str]
    probability: Floats | None
    log_probability: Floats | None
    keys: Floats | None
    recovered: Integers | None


def draw_questions(
    sessions: Sequence[list[str]], task: Task, *, popular: Collection[str], max_queries: int, seed: int
) -> Questions:
    """Chooses sessions and prefixes.

    Args:
        sessions: the split, queries in normal form.
        task: which task.
        popular: queries that count as seen.
        max_queries: queries that are asked about at most; one session is taken even when it has more.
        seed: seed of the choice of sessions, where the cap makes one.

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
    available = sum(len(sessions[number]) - first for number in usable)
    return _describe([sessions[number] for number in sorted(chosen)], task, popular, available)


def _describe(sessions: list[list[str]], task: Task, popular: Collection[str], available: int) -> Questions:
    """All questions about some sessions."""
    navigational, ordered = Navigational(popular), sorted(popular)
    first = 1 if task == "suggest" else 0
    prefixes: list[list[tuple[str, ...]]] = []
    targets: list[tuple[int, int, int, bool, bool, bool]] = []
    questions: list[tuple[int, int, bool]] = []
    for number, queries in enumerate(sessions):
        prefixes.append([()] * len(queries))
        for place, query in enumerate(queries[first:], start=first):
            asked = ("",) if task == "suggest" else tuple(query[:length] for length in prefix_lengths(query))
            prefixes[-1][place] = asked
            questions += [(len(targets), len(prefix), _begins(ordered, prefix)) for prefix in asked]
            repeat = place > 0 and query == queries[place - 1]
            targets.append((number, place, len(query), query in popular, repeat, navigational(query)))
    of_target = np.array(targets, dtype=np.int64).reshape(-1, 6)
    of_question = np.array(questions, dtype=np.int64).reshape(-1, 3)
    return Questions(
        task=task,
        sessions=sessions,
        prefixes=prefixes,
        target_session=of_target[:, 0],
        position=of_target[:, 1],
        length=of_target[:, 2],
        seen=of_target[:, 3].astype(bool),
        repeat=of_target[:, 4].astype(bool),
        navigational=of_target[:, 5].astype(bool),
        target=of_question[:, 0],
        prefix_length=of_question[:, 1],
        seen_prefix=of_question[:, 2].astype(bool),
        available=available,
    )


def _begins(ordered: list[str], prefix: str) -> bool:
    """Whether one of some sorted texts starts with `prefix`."""
    place = bisect_left(ordered, prefix)
    return place < len(ordered) and ordered[place].startswith(prefix)


def ask(system: System, questions: Questions, *, progress: Callable[[int], None]) -> Answers:
    """Puts all questions to `system`, session by session, each query appended once it has been asked about.

    Args:
        system: what is measured.
        questions: of one task.
        progress: called with the number of targets done.
    """
    complete = questions.task == "complete"
    first = 0 if complete else 1
    ranks: list[tuple[int, int]] = []
    best: list[str] = []
    scores: list[tuple[float, int] | None] = []
    keys: list[tuple[int, int, int]] = []
    shown_probabilities: list[list[float]] = []
    for queries, prefixes_of in zip(questions.sessions, questions.prefixes, strict=True):
        session = system.start()
        for number, (query, prefixes) in enumerate(zip(queries, prefixes_of, strict=True)):
            if number >= first:
                lists = _Lists(session)
                for prefix in prefixes:
                    candidates, said = lists.of(prefix)
                    ranks.append((metrics.rank(query, candidates), metrics.partial_rank(query, candidates)))
                    best.append(candidates[0] if candidates else "")
                    if said is not None:
                        shown_probabilities.append((said + [math.nan] * metrics.BAR)[: metrics.BAR])
                if complete:
                    shown, held = (lists.least_typed(query, places) for places in (metrics.BAR, metrics.CUT))
                    pressed = metrics.keys_to_search(len(query), shown), metrics.keys_to_search(len(query), None)
                    keys.append((*pressed, 0 if held is None else len(query) - held))
                scores.append(session.log_probability(query))
                progress(len(scores))
            if number + 1 < len(queries):
                session.append(query)
    table = np.array(ranks, dtype=np.int64).reshape(-1, 2)
    pressed_keys = np.array(keys, dtype=np.int64).reshape(-1, 3)
    scored = [score for score in scores if score is not None]
    return Answers(
        rank=table[:, 0],
        partial_rank=table[:, 1],
        best=best,
        probability=np.array(shown_probabilities) if shown_probabilities else None,
        log_probability=np.array(scored, dtype=np.float64) if scored else None,
        keys=pressed_keys[:, :2].astype(np.float64) if complete else None,
        recovered=pressed_keys[:, 2] if complete else None,
    )


class _Lists:
    """The lists at one place of a session: each is asked for once."""

    def __init__(self, session: SystemSession) -> None:
        self._session = session
        self._known: dict[str, Candidates] = {}

    def of(self, prefix: str) -> Candidates:
        if prefix not in self._known:
            self._known[prefix] = self._session.candidates(prefix)
        return self._known[prefix]

    def least_typed(self, query: str, places: int) -> int | None:
        """The fewest characters of `query` after which it stands in the first `places`; None when it never does.

        Found by bisection: as more is typed, rivals drop out of the list and none comes in, so that a query which is
        there stays there. (Of a list that is ranked by one score for each query this is true; of a beam search nearly.)
        """
        low, high = -1, len(query)
        for prefix, candidates in self._known.items():
            if query in candidates.texts[:places]:
                high = min(high, len(prefix))
            else:
                low = max(low, len(prefix))
        while high - low > 1:
            middle = (low + high) // 2
            if query in self.of(query[:middle]).texts[:places]:
                high = middle
            else:
                low = middle
        return high if high < len(query) else None
