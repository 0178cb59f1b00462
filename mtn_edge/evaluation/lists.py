"""Baselines that look a list up: popularity, popularity with the last query's terms, adjacency, popular suffixes.

Each lists queries that start with what is typed and are longer, blanks at the end aside; none twice; ten at most. Equal
counts come in the order of their texts.

Shapes: n popular queries in the order of their texts, w words, p postings, q queries of the training split.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtn_edge.evaluation.metrics import CUT
from mtn_edge.evaluation.systems import Candidates, SystemSession
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.sorted_texts import SortedTexts

Popularity = Sequence[tuple[str, int]]
"""Queries of the training split with their counts, most frequent first."""

COMMON = 0.01
"""A word in more than this share of the popular queries is no term (`how`, `the`, `free`)."""
SUFFIXES = 100_000
"""Popular suffixes that are kept (Mitra and Craswell 2015 keep as many in their larger list)."""

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
"""Lists have nothing to be chosen."""

_Complete = Callable[[str | None, str], list[str]]
"""From the last query, None in an empty session, and what is typed to the candidates."""


class _LastQuery:
    """A session of which a list sees the last query at most."""

    def __init__(self, complete: _Complete) -> None:
        self._complete = complete
        self._last: str | None = None

    def append(self, query: str) -> None:
        self._last = query

    def candidates(self, prefix: str) -> Candidates:
        return Candidates(self._complete(self._last, prefix))

    def log_probability(self, query: str) -> None:
        """A list has no probabilities."""


class MostPopularCompletion:
    """MPC: the most frequent queries of the training split that start with what is typed, whatever the session.

    With nothing typed these are the most frequent queries of all. The whole popularity list of the dataset is used,
    not the part of it that a bundle carries.
    """

    settings = NO_SETTINGS

    def __init__(self, popularity: Popularity) -> None:
        self.list = Completions(popularity)
        self.nbytes = self.list.nbytes

    def start(self) -> SystemSession:
        """An empty session; this baseline keeps nothing in it."""
        return _LastQuery(lambda _, prefix: self.complete(prefix))

    def complete(self, prefix: str) -> list[str]:
        """The ten most frequent queries that start with `prefix` and are longer, blanks at the end aside."""
        echo = prefix.rstrip(" ")
        return [query for query, _ in self.list.top(prefix, CUT + 1) if query != echo][:CUT]


class MostPopularWithTerms:
    """MPC with the last query's terms: of the popular queries that fit, those that share terms with it come first.

    Those with the most terms of the last query first, equal ones by frequency; then plain MPC. A term is a word, what
    stands between blanks, that at most 1 % of the popular queries hold.
    """

    settings = NO_SETTINGS

    def __init__(self, popularity: Popularity) -> None:
        self._popular = MostPopularCompletion(popularity)
        pairs = sorted(popularity)
        self._texts = [query for query, _ in pairs]
        self._counts = np.array([count for _, count in pairs], dtype=np.int64)
        holders: dict[str, list[int]] = defaultdict(list)
        for place, query in enumerate(self._texts):
            for word in set(query.split(" ")):
                holders[word].append(place)
        most = max(1, COMMON * len(pairs))
        # What one query alone holds could only bring that query back.
        terms = sorted(word for word, places in holders.items() if 2 <= len(places) <= most)
        self._terms = SortedTexts(terms)
        self._offsets = np.cumsum([0, *(len(holders[word]) for word in terms)])
        self._places = np.array([place for word in terms for place in holders[word]], dtype=np.uint32)
        postings = 4 * (len(self._offsets) + len(self._places))
        self.nbytes = self._popular.nbytes + self._terms.nbytes + postings

    def start(self) -> SystemSession:
        """An empty session; this baseline keeps the last query in it."""
        return _LastQuery(self.complete)

    def complete(self, last: str | None, prefix: str) -> list[str]:
        """The ten candidates for `prefix` after the query `last`."""
        popular = self._popular.complete(prefix)
        if last is None:
            return popular
        related = [self._texts[place] for place in self._related(last, self._popular.list.run(prefix))]
        return _listed(prefix, [*related, *popular])

    def _related(self, last: str, run: tuple[int, int]) -> list[int]:
        """The best places within `run` that share terms with `last`."""
        parts = []
        for word in set(last.split(" ")):
            number = self._terms.find(word)
            if number is not None:
                places = self._places[self._offsets[number] : self._offsets[number + 1]]
                parts.append(places[slice(*np.searchsorted(places, run))])
        if not parts:
            return []
        found, shared = np.unique(np.concatenate(parts), return_counts=True)
        order = np.lexsort((found, -self._counts[found], -shared))
        return [int(place) for place in found[order[: CUT + 1]]]


class Adjacency:
    """What followed the last query in the training sessions, most often first; then MPC."""

    settings = NO_SETTINGS

    def __init__(self, popularity: Popularity, sessions: Iterable[Sequence[str]]) -> None:
        self._popular = MostPopularCompletion(popularity)
        pairs = Counter(pair for queries in sessions for pair in pairwise(queries))
        queries = sorted({query for pair in pairs for query in pair})
        self._queries = SortedTexts(queries)
        ids = {query: place for place, query in enumerate(queries)}
        rows = sorted((ids[last], -count, following) for (last, following), count in pairs.items())
        self._offsets = np.searchsorted([row for row, _, _ in rows], np.arange(len(ids) + 1)).astype(np.uint32)
        self._following: NDArray[np.uint32] = np.array([ids[text] for _, _, text in rows], dtype=np.uint32)
        # The order says all that the counts said.
        stored = self._queries.nbytes + self._offsets.nbytes + self._following.nbytes
        self.nbytes = self._popular.nbytes + stored

    def start(self) -> SystemSession:
        """An empty session; this baseline keeps the last query in it."""
        return _LastQuery(self.complete)

    def complete(self, last: str | None, prefix: str) -> list[str]:
        """The ten candidates for `prefix` after the query `last`."""
        popular = self._popular.complete(prefix)
        number = self._queries.find(last) if last is not None else None
        if number is None:
            return popular
        numbers = self._following[self._offsets[number] : self._offsets[number + 1]].tolist()
        followed = (self._queries[each] for each in numbers)
        return _listed(prefix, [*(query for query in followed if query.startswith(prefix)), *popular])


class MostPopularSuffix:
    """MCG: MPC; where no popular query starts with what is typed, its longest suffix that begins a popular suffix.

    A suffix begins at a word. The list holds the most common suffixes of the training queries, and a candidate is what
    is typed with the found suffix completed (after Mitra and Craswell, "Query Auto-Completion for Rare Prefixes", CIKM
    2015, who rank the same candidates by a network).
    """

    settings = NO_SETTINGS

    def __init__(self, popularity: Popularity) -> None:
        self._popular = MostPopularCompletion(popularity)
        counts: Counter[str] = Counter()
        for query, count in popularity:
            for suffix in _suffixes(query):
                counts[suffix] += count
        kept = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:SUFFIXES]
        self._suffixes = MostPopularCompletion(kept)
        self.nbytes = self._popular.nbytes + self._suffixes.nbytes

    def start(self) -> SystemSession:
        """An empty session; this baseline keeps nothing in it."""
        return _LastQuery(lambda _, prefix: self.complete(prefix))

    def complete(self, prefix: str) -> list[str]:
        """The ten candidates for `prefix`."""
        if self._popular.list.begins(prefix):
            return self._popular.complete(prefix)
        for suffix in _suffixes(prefix):
            if found := self._suffixes.complete(suffix):
                head = prefix[: len(prefix) - len(suffix)]
                return [head + text for text in found]
        return []


def _suffixes(text: str) -> list[str]:
    """What is left of `text` from each word on, the longest first; a blank at the end stays."""
    words = text.split(" ")
    return [suffix for first in range(len(words)) if (suffix := " ".join(words[first:]))]


def _listed(prefix: str, queries: Iterable[str]) -> list[str]:
    """The first ten different queries, the echo of what is typed left out."""
    unique = dict.fromkeys(queries)
    unique.pop(prefix.rstrip(" "), None)
    return list(unique)[:CUT]
