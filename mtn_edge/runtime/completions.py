"""The popular queries of a bundle, found by the characters they begin with.

A query's *place* is its number in the order of the texts (`sorted_texts.SortedTexts`): the queries under a prefix are a
run of places. Equal counts form a *group*, and groups are numbered from the highest count down. So a list of the best
under a prefix costs one search for the run and one pass over small integers, whatever the prefix.

A file holds, little-endian: CRC-32 of all that follows it (uint32), the magic `mtnlist2`, n and g (uint32 each), the
count of each group (int64 [g]), the group of each place ([n], of one, two or four bytes, whatever g needs), the texts.

Shapes: n queries, g groups.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError
from mtn_edge.runtime.sorted_texts import AFTER_ALL, SortedTexts

FILE = "completions.list"
"""What a bundle calls its list."""
_MAGIC = b"mtnlist2"
_HEADER = struct.Struct("<I8sII")
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
        if len({query for query, _ in pairs}) != len(pairs):
            raise ValueError("`entries` must hold each query once")
        highest_first, groups = np.unique([-count for _, count in pairs], return_inverse=True)
        texts = SortedTexts(query for query, _ in pairs)
        self._adopt(texts, -highest_first.astype(np.int64), groups.astype(_dtype(len(highest_first))))

    def _adopt(self, texts: SortedTexts, counts: NDArray[np.int64], groups: Numbers) -> None:
        """Takes the parts of a list: the texts [n], count of each group [g], group of each place [n]."""
        self._texts, self._counts, self._groups = texts, counts, groups
        # Equal counts come in the order of their texts: every list is the only right one.
        self._ranked: Numbers = np.argsort(groups, kind="stable").astype(_dtype(len(texts)))  # [n] places, best first
        self._last: tuple[str, tuple[int, int]] = ("", (0, len(texts)))
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
        except (struct.error, ValueError):  # of the header, of the arrays, of the texts
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
        counts = np.frombuffer(raw, np.int64, groups, _HEADER.size)
        numbers = np.frombuffer(raw, _dtype(groups), queries, _HEADER.size + counts.nbytes)
        if (counts < 1).any() or (numbers >= groups).any():
            return False
        texts = SortedTexts.read(raw[_HEADER.size + counts.nbytes + numbers.nbytes :], queries)
        self._adopt(texts, counts.copy(), numbers.copy())  # `raw` itself can go
        return True

    def save(self, path: Path) -> None:
        """Writes one file; the same list gives the same bytes."""
        body = b"".join((self._counts.tobytes(), self._groups.tobytes(), self._texts.tobytes()))
        raw = _HEADER.pack(0, _MAGIC, len(self), len(self._counts)) + body
        path.write_bytes(zlib.crc32(raw[4:]).to_bytes(4, "little") + raw[4:])

    @property
    def nbytes(self) -> int:
        """Bytes of the file that `save` writes."""
        return _HEADER.size + self._counts.nbytes + self._groups.nbytes + self._texts.nbytes

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, query: object) -> bool:
        try:
            return isinstance(query, str) and self._texts.find(query) is not None
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
        beginning = prefix.encode()
        first = self._texts.place(beginning, (first, last))
        return first, self._texts.place(beginning + AFTER_ALL, (first, last))

    def begins(self, prefix: str) -> bool:
        """Whether any query begins with `prefix`: what `run` says too, in half the time."""
        first = self._texts.place(prefix.encode())
        return first < len(self) and self._texts[first].startswith(prefix)

    def letters(self, run: tuple[int, int], at: int) -> list[tuple[str, tuple[int, int]]]:
        """The letters that follow the first `at` letters, which all queries of `run` share, each with its own run."""
        first, last = run
        found = []
        while first < last:
            beginning = self._texts[first][: at + 1]
            if len(beginning) <= at:  # the shared letters and nothing more
                first += 1
                continue
            after = self._texts.place(beginning.encode() + AFTER_ALL, (first, last))
            found.append((beginning[at], (first, after)))
            first = after
        return found

    def _entries(self, places: NDArray[Any]) -> list[tuple[str, int]]:
        counts = self._counts[self._groups[places]].tolist()
        return [(self._texts[place], count) for place, count in zip(places.tolist(), counts, strict=True)]


def _dtype(values: int) -> type[np.unsignedinteger[Any]]:
    """The smallest type for the numbers from 0 to `values` - 1."""
    return np.uint8 if values <= 1 << 8 else np.uint16 if values <= 1 << 16 else np.uint32
