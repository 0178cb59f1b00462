"""From counted grams to an n-gram of a number of bytes: the grams stay that tell the most about the counted text.

The worth of a gram is its occurrences times log(p / p'), p its probability and p' what shorter contexts would give it
if its share went to them: the weighted difference of Seymore and Rosenfeld 1996. Relative entropy (Stolcke 1998) does
as well on held-out text with more code; fewest occurrences first does worse.

Shapes: n grams of an order, r rows of an order (its contexts), V tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtn_edge.ngram.counting import BITS, MOST_TOKENS, Counts
from mtn_edge.ngram.estimate import Floats, Grams, Integers, estimate
from mtn_edge.ngram.model import CODES, Level, NGram, quantize

MOST_FOLLOWERS = 64
"""Entries of a row, where a search in a graph looks at all of them at once."""
_BYTE = 255

Kept = NDArray[np.bool_]
Worth = NDArray[np.float64]

_ENTRY, _SINGLE = 3, 4
"""Bytes that an entry and a single token are stored in; a row has one byte for its size, or two."""
_NEVER = -1.0
"""The worth of a gram that no budget keeps; that of others is not negative."""


def fit(
    counts: Counts, vocab_size: int, max_bytes: int | None = None, *, most_followers: int | None = MOST_FOLLOWERS
) -> NGram:
    """The n-gram that stores `max_bytes` at most; when not even single tokens fit, single tokens alone.

    Args:
        counts: of the training text.
        vocab_size: V, at most 65,536.
        max_bytes: of `NGram.nbytes`; None keeps all that `most_followers` leaves.
        most_followers: entries of a row at most: of a longer one the highest shares stay. None leaves rows as they are.

    Raises:
        ValueError: an argument is out of its range, or a token was counted that the vocabulary has not.
    """
    if most_followers is not None and most_followers < 1:
        raise ValueError(f"`most_followers` must be at least 1, got {most_followers}")
    most = most_followers or vocab_size
    size_type: type[np.unsignedinteger[Any]] = np.uint8 if most <= _BYTE else np.uint16
    unigram, grams = estimate(counts, vocab_size)
    worth = _worth(unigram, grams, most)
    size = np.dtype(size_type).itemsize
    fixed = vocab_size * (_SINGLE + size) + len(grams) * CODES * 4
    kept = _affordable(worth, None if max_bytes is None else max_bytes - fixed, size)
    return _stored(unigram, grams, kept, size_type)


def _worth(unigram: Floats, grams: list[Grams], most_followers: int) -> list[Worth]:
    """The worth of the grams of each order; a gram is worth no less than those that it is the context of."""
    worth = []
    shorter, shorter_keys = unigram.astype(np.float64), np.arange(len(unigram), dtype=np.uint64)
    cut = np.zeros(len(unigram), dtype=bool)
    for order, level in enumerate(grams, start=2):
        tail = np.searchsorted(shorter_keys, level.keys & np.uint64((1 << BITS * (order - 1)) - 1))
        left = 1 - np.bincount(level.row, level.share, len(cut))
        without = shorter[tail]
        shorter = level.share + left[level.row] * without
        gain = level.raw * np.log(shorter / ((level.share + left[level.row]) * without))
        cut = cut[level.row] | (_rank(level.share, level.row) >= most_followers)
        worth.append(np.where(cut, _NEVER, np.maximum(gain, 0)))
        shorter_keys = level.keys
    for below, level, own in zip(worth[-2::-1], grams[:0:-1], worth[:0:-1], strict=True):
        np.maximum.at(below, level.row, own)
    return worth


def _rank(share: NDArray[np.float64], row: Integers) -> Integers:
    """The place of each gram [n] in its row, from the highest share down; of equal ones the lower token first."""
    rank = np.empty(len(row), dtype=np.int64)
    rank[np.lexsort((-share, row))] = np.arange(len(row)) - np.searchsorted(row, row)
    return rank


def _affordable(worth: list[Worth], room: int | None, size: int) -> list[Kept]:
    """Which grams of each order are kept: the worthiest that `room` bytes hold, each after its context."""
    price = [_ENTRY + size] * (len(worth) - 1) + [_ENTRY]  # all but the longest are contexts, with rows of their own
    everything = np.concatenate(worth)
    best = np.argsort(-everything, kind="stable")  # lower orders first where equal
    best = best[: int((everything > _NEVER).sum())]
    if room is not None:
        prices = np.repeat(price, [len(order) for order in worth])
        best = best[: int(np.searchsorted(np.cumsum(prices[best]), room, side="right"))]
    kept = np.zeros(len(everything), dtype=bool)
    kept[best] = True
    return np.split(kept, np.cumsum([len(order) for order in worth])[:-1])


def _stored(unigram: Floats, grams: list[Grams], kept: list[Kept], size_type: type[np.unsignedinteger[Any]]) -> NGram:
    levels = []
    rows, number = len(unigram), np.arange(len(unigram))
    for level, stays in zip(grams, kept, strict=True):
        row = number[level.row[stays]]
        sizes = np.bincount(row, minlength=rows).astype(size_type)
        tokens = (level.keys[stays] & np.uint64(MOST_TOKENS - 1)).astype(np.uint16)
        levels.append(Level(sizes, tokens, *quantize(level.share[stays], row)))
        rows, number = int(stays.sum()), np.cumsum(stays) - 1
    return NGram(unigram, tuple(levels))
