"""The popular queries of a bundle, found by the characters they begin with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mtn_edge.errors import UserError


class Completions:
    """Queries with counts; the most frequent ones under a prefix come first.

    Args:
        entries: queries in normal form and how often each was issued, in any order.
    """

    def __init__(self, entries: Iterable[tuple[str, int]]) -> None:
        pairs = sorted((query.encode(), count) for query, count in entries)
        self._queries = [query for query, _ in pairs]
        self._counts = np.array([count for _, count in pairs], dtype=np.int64)
        self.total = int(self._counts.sum())
        """The sum of all counts."""
        # Equal counts come in the order of their bytes: ranks are distinct, so every list is the only right one.
        by_count = np.argsort(-self._counts, kind="stable")
        self._rank = np.empty(len(pairs), dtype=np.int32)
        self._rank[by_count] = np.arange(len(pairs), dtype=np.int32)

    @classmethod
    def load(cls, path: Path) -> Completions:
        """Reads a `completions.tsv`: a query, a tab and its count on each line.

        Raises:
            UserError: a line is something else; the sentence gives its number.
        """
        entries: list[tuple[str, int]] = []
        for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), 1):
            if not line:
                continue
            try:
                query, count = line.decode().split("\t")
                entries.append((query, int(count)))
            except ValueError as error:
                raise UserError(
                    f"line {number} of `{path}` is not a query, a tab and a count",
                    code="bad-completions",
                    hint="make the bundle again",
                ) from error
        return cls(entries)

    def __len__(self) -> int:
        return len(self._queries)

    def top(self, prefix: str, k: int) -> list[tuple[str, int]]:
        """The `k` most frequent queries that begin with `prefix` (in normal form), with their counts, best first."""
        start = prefix.encode()
        first = bisect_left(self._queries, start)
        last = bisect_left(self._queries, start + b"\xff", first)  # no UTF-8 text holds the byte FF
        ranks = self._rank[first:last]
        if len(ranks) > k:
            best = np.argpartition(ranks, k)[:k]
            best = best[np.argsort(ranks[best])]
        else:
            best = np.argsort(ranks)
        return [(self._queries[place].decode(), int(self._counts[place])) for place in (first + best).tolist()]
