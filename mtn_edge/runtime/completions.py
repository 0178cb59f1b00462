"""The popular queries of a bundle, found by the characters they begin with.

The queries lie in a MARISA trie, which gives each a number of its own. A query's *place* is its number in the order of
the texts: the queries under a prefix are a run of places. Equal counts form a *group*, and groups are numbered from the
highest count down. So a list of the best under a prefix costs one search for the run and one pass over small integers,
whatever the prefix.

Shapes: n queries, g groups.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import marisa_trie
import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError

FILE = "completions.marisa"
"""What a bundle calls its list."""
_MAGIC = b"mtnlist1"
_HEADER = struct.Struct("<I8sII4x")
"""CRC-32 of all that follows it, magic, queries, groups; what follows the header begins on a multiple of 8."""
_WIDE = 32
"""A run of more than 1/32 of all places is picked from the ranked list; a shorter one is ranked by itself."""

Numbers = NDArray[np.unsignedinteger[Any]]


class Completions:
    """Queries with counts; the most frequent ones under a prefix come first, equal counts in the order of their texts.

    Args:
        entries: queries in normal form and how often each was issued, in any order, each query once.
    """

    def __init__(self, entries: Iterable[tuple[str, int]]) -> None:
        pairs = sorted(entries)
        queries = [query for query, _ in pairs]
        trie = marisa_trie.Trie(queries)
        if len(trie) != len(queries):
            raise ValueError("`entries` must hold each query once")
        highest_first, groups = np.unique([-count for _, count in pairs], return_inverse=True)
        texts = [trie.restore_key(number) for number in range(len(trie))]
        ids = np.array(sorted(range(len(trie)), key=texts.__getitem__), dtype=_dtype(len(trie)))
        self._adopt(trie, -highest_first.astype(np.int64), groups.astype(_dtype(len(highest_first))), ids)

    def _adopt(self, trie: Any, counts: NDArray[np.int64], groups: Numbers, ids: Numbers) -> None:
        """Takes the parts of a list: count of each group [g], group and trie number of each place [n]."""
        self._trie, self._counts, self._groups, self._ids = trie, counts, groups, ids
        # Equal counts come in the order of their texts: every list is the only right one.
        self._ranked: Numbers = np.argsort(groups, kind="stable").astype(ids.dtype)  # [n] places, best first
        self._last: tuple[str, tuple[int, int]] = ("", (0, len(ids)))
        self.total = int(counts @ np.bincount(groups, minlength=len(counts)))
        """The sum of all counts."""

    @classmethod
    def load(cls, path: Path) -> Completions:
        """Reads what `save` wrote.

        Raises:
            UserError: the file is something else, or damaged.
        """
        raw = path.read_bytes()
        completions = cls.__new__(cls)
        try:
            crc, magic, queries, groups = _HEADER.unpack_from(raw)
            sound = magic == _MAGIC and zlib.crc32(raw[4:]) == crc and completions._parse(raw, queries, groups)
        except (struct.error, ValueError, RuntimeError):  # of the header, of the arrays, of the trie
            sound = False
        if not sound:
            raise UserError(
                f"`{path}` is not a list of popular queries, or it is damaged",
                code="bad-completions",
                hint="make the bundle again",
            )
        return completions

    def _parse(self, raw: bytes, queries: int, groups: int) -> bool:
        """Takes the parts of a file; returns whether they fit together."""
        parts: list[Any] = []
        at = _HEADER.size
        for dtype, count in ((np.int64, groups), (_dtype(queries), queries), (_dtype(groups), queries)):
            parts.append(np.frombuffer(raw, dtype, count, at).astype(dtype))  # a copy: `raw` itself can go
            at += parts[-1].nbytes
        counts, ids, numbers = parts
        trie = marisa_trie.Trie().frombytes(raw[at:])
        if len(trie) != queries or (counts < 1).any() or (ids >= queries).any() or (numbers >= groups).any():
            return False
        self._adopt(trie, counts, numbers, ids)
        return True

    def save(self, path: Path) -> None:
        """Writes one file: header, counts, trie numbers, groups, trie; the same list gives the same bytes."""
        body = b"".join((self._counts.tobytes(), self._ids.tobytes(), self._groups.tobytes(), self._trie.tobytes()))
        raw = _HEADER.pack(0, _MAGIC, len(self._ids), len(self._counts)) + body
        path.write_bytes(zlib.crc32(raw[4:]).to_bytes(4, "little") + raw[4:])

    @property
    def nbytes(self) -> int:
        """Bytes of the file that `save` writes."""
        arrays = (self._counts, self._ids, self._groups)
        return _HEADER.size + sum(part.nbytes for part in arrays) + len(self._trie.tobytes())

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, query: object) -> bool:
        try:
            return isinstance(query, str) and query in self._trie
        except UnicodeEncodeError:  # a lone surrogate
            return False

    def top(self, prefix: str, k: int) -> list[tuple[str, int]]:
        """The `k` most frequent queries that begin with `prefix` (in normal form), with their counts, best first."""
        # A text is typed letter by letter: the run of its beginning, when that was asked for last, holds its own.
        beginning, around = self._last
        run = self.run(prefix, around if prefix.startswith(beginning) else None)
        self._last = prefix, run
        first, last = run
        if (last - first) * _WIDE <= len(self):
            return self._entries(first + np.argsort(self._groups[first:last], kind="stable")[:k])
        # Unsigned differences wrap around: places before `first` come out beyond `last` too.
        found = self._ranked[np.flatnonzero(self._ranked - self._ranked.dtype.type(first) < last - first)[:k]]
        return self._entries(found)

    def weight(self, prefix: str) -> int:
        """The sum of the counts of all queries that begin with `prefix` (in normal form)."""
        beginning, around = self._last
        first, last = around if prefix == beginning else self.run(prefix)
        return int(self._counts[self._groups[first:last]].sum())

    def best(self, runs: Iterable[tuple[int, int]], k: int) -> list[tuple[str, int]]:
        """The `k` most frequent queries in any of `runs`, with their counts, best first."""
        places = np.sort(np.concatenate([np.arange(0), *(np.arange(*run) for run in runs)]))
        places = places[np.diff(places, prepend=-1) > 0]  # each once
        return self._entries(places[np.argsort(self._groups[places], kind="stable")[:k]])

    def run(self, prefix: str, within: tuple[int, int] | None = None) -> tuple[int, int]:
        """The places of the queries that begin with `prefix`: the first, and one after the last.

        Args:
            prefix: text in normal form.
            within: a run that holds them, when one is known: the search is shorter then.
        """
        first, last = within or (0, len(self))
        first = bisect_left(self._ids, prefix, first, last, key=self._query)
        length = len(prefix)
        last = bisect_right(self._ids, prefix, first, last, key=lambda number: self._query(number)[:length])
        return first, last

    def begins(self, prefix: str) -> bool:
        """Whether any query begins with `prefix`: what `run` says too, for the price of one look into the trie."""
        return next(self._trie.iterkeys(prefix), None) is not None

    def letters(self, run: tuple[int, int], at: int) -> list[tuple[str, tuple[int, int]]]:
        """The letters that follow the first `at` letters, which all queries of `run` share, each with its own run."""
        first, last = run
        found = []
        while first < last:
            letter = self._letter(self._ids[first], at)
            step = 1  # most runs are short: their ends are looked for nearby first
            while first + step < last and self._letter(self._ids[first + step], at) == letter:
                step *= 2
            low, high = first + step // 2, min(first + step, last)
            after = bisect_right(self._ids, letter, low, high, key=lambda number: self._letter(number, at))
            if letter:
                found.append((letter, (first, after)))
            first = after
        return found

    def _letter(self, number: Any, at: int) -> str:
        """The letter at `at`; nothing after the end."""
        return self._query(number)[at : at + 1]

    def _query(self, number: Any) -> str:
        query: str = self._trie.restore_key(number)
        return query

    def _entries(self, places: NDArray[Any]) -> list[tuple[str, int]]:
        counts = self._counts[self._groups[places]].tolist()
        return [(self._query(number), count) for number, count in zip(self._ids[places].tolist(), counts, strict=True)]


def _dtype(values: int) -> type[np.unsignedinteger[Any]]:
    """The smallest type for the numbers from 0 to `values` - 1."""
    return np.uint8 if values <= 1 << 8 else np.uint16 if values <= 1 << 16 else np.uint32
