"""Texts in their order, front-coded: found by bisection in the bytes of a file as they lie there, in any language.

The texts are sorted by their UTF-8 bytes, which is the order of their characters too, and cut into blocks of 16. Each
is written as the number of bytes that it shares with the text before it in its block, the number of its other bytes,
and these bytes (Witten, Moffat and Bell, "Managing Gigabytes", section 4.1). A number takes a byte for every 7 of its
bits, the lowest first; all but its last byte have the highest bit set. So the first text of a block stands there
whole, and one bisection over those, then over one block, finds any place.

Shapes: n texts, b blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BLOCK = 16
"""Texts of a block."""
AFTER_ALL = b"\xff"
"""No UTF-8 holds this byte: a beginning with it added comes after all texts that begin so."""
_KEPT = 64
"""Blocks that are kept as texts: who types goes through the same few again and again."""


class SortedTexts:
    """Texts, each with its place: its number in their order.

    Args:
        texts: sorted, each once.

    Raises:
        ValueError: they are not.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        spelt = [text.encode() for text in texts]
        if any(one >= other for one, other in pairwise(spelt)):
            raise ValueError("`texts` must be sorted and hold each text once")
        written = [_written(spelt[start : start + BLOCK]) for start in range(0, len(spelt), BLOCK)]
        starts = np.cumsum([0, *map(len, written)], dtype=np.uint32)[:-1]
        self._adopt(len(spelt), starts, b"".join(written))

    @classmethod
    def read(cls, raw: bytes, count: int) -> SortedTexts:
        """Reads what `tobytes` gave.

        Args:
            raw: all of it.
            count: how many texts it holds.

        Raises:
            ValueError: `raw` is something else.
        """
        blocks = -(-count // BLOCK)
        starts = np.frombuffer(raw, np.uint32, blocks)
        texts = cls.__new__(cls)
        texts._adopt(count, starts, raw[starts.nbytes :])
        ends = np.append(starts.astype(np.int64), len(texts._blocks))
        if ends[0] or (np.diff(ends) < 1).any():
            raise ValueError("`raw` must hold the start of every block")
        return texts

    def _adopt(self, count: int, starts: NDArray[np.uint32], blocks: bytes) -> None:
        self._count, self._starts, self._blocks = count, starts, blocks
        self._texts_of = lru_cache(maxsize=_KEPT)(partial(_read_block, blocks, starts, count))

    def tobytes(self) -> bytes:
        """Where each block starts, uint32 [b], and the blocks."""
        return self._starts.tobytes() + self._blocks

    @property
    def nbytes(self) -> int:
        """Bytes of `tobytes`."""
        return self._starts.nbytes + len(self._blocks)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> str:
        block, number = divmod(place, BLOCK)
        return self._texts_of(block)[number].decode()

    def find(self, text: str) -> int | None:
        """The place of `text`; None when it is not there."""
        place = self.place(text.encode())
        return place if place < len(self) and self[place] == text else None

    def place(self, spelt: bytes, within: tuple[int, int] | None = None) -> int:
        """The place of the first text whose UTF-8 is not below `spelt`; one after the last when there is none.

        Args:
            spelt: any bytes.
            within: the first place to look at, and one after the last.
        """
        first, last = within or (0, len(self))
        if first >= last:
            return first
        begins_after = bisect_left(
            range(len(self._starts)), spelt, first // BLOCK + 1, -(-last // BLOCK), key=self._head
        )
        block = begins_after - 1
        place = BLOCK * block + bisect_left(self._texts_of(block), spelt)
        return min(max(place, first), last)

    def _head(self, block: int) -> bytes:
        """The first text of a block."""
        length, at = _number(self._blocks, int(self._starts[block]) + 1)
        return self._blocks[at : at + length]


def _read_block(blocks: bytes, starts: NDArray[np.uint32], count: int, block: int) -> list[bytes]:
    at, text, texts = int(starts[block]), b"", []
    for _ in range(min(BLOCK, count - BLOCK * block)):
        shared, at = _number(blocks, at)
        rest, at = _number(blocks, at)
        text = text[:shared] + blocks[at : at + rest]
        at += rest
        texts.append(text)
    return texts


def _written(texts: list[bytes]) -> bytes:
    """One block."""
    parts, before = [], b""
    for text in texts:
        differ = (at for at, (one, other) in enumerate(zip(before, text, strict=False)) if one != other)
        shared = next(differ, min(len(before), len(text)))
        parts += [_spelt(shared), _spelt(len(text) - shared), text[shared:]]
        before = text
    return b"".join(parts)


def _spelt(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + _spelt(high) if high else bytes([low])


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """The number that is written at `at`, and what comes after it."""
    number = raw[at]
    if number < 128:
        return number, at + 1
    high, after = _number(raw, at + 1)
    return number - 128 + (high << 7), after
