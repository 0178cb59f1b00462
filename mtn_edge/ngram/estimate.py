"""Interpolated modified Kneser-Ney estimates of counted grams (Kneser and Ney 1995; Chen and Goodman 1999).

Three discounts an order (Chen and Goodman, section 3.6). The highest order counts occurrences, each lower one how many
different tokens stand before a gram; a gram that begins with the one start symbol has nothing before it and keeps its
occurrences.

Shapes: n grams of an order, V tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.ngram.counting import BITS, MOST_TOKENS, Counts
from mtn_edge.tokenizer import BOS, PAD

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
Shares = NDArray[np.float64]

_FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where the counts of counts allow no estimate."""


class Grams(NamedTuple):
    """All different grams of one order."""

    keys: NDArray[np.uint64]
    """[n] ascending; 16 bits a token, the first token highest."""
    raw: Integers
    """[n] occurrences."""
    adjusted: Integers
    """[n] what the estimate counts."""


def orders(counts: Counts) -> list[Grams]:
    """The grams of orders 1, 2, ... from what was counted, lowest first."""
    keys, raw, adjusted = counts.keys, counts.times.astype(np.int64), counts.times.astype(np.int64)
    grams = []
    for order in range(counts.order, 0, -1):
        whole = int(np.searchsorted(keys, np.uint64(1 << BITS * (order - 1))))  # before it `<pad>` begins them
        grams.append(Grams(keys[whole:], raw[whole:], adjusted[whole:]))
        if order > 1:
            tails = keys & np.uint64((1 << BITS * (order - 1)) - 1)
            by_tail = np.argsort(tails, kind="stable")
            tails = tails[by_tail]
            first = np.flatnonzero(np.diff(tails, prepend=~tails[:1]))
            before = np.where(by_tail < whole, raw[by_tail], 1)
            keys, adjusted = tails[first], _sums(before, first)
            raw = _sums(raw[by_tail], first)
    return grams[::-1]


def _sums(values: Integers, first: Integers) -> Integers:
    return np.add.reduceat(values, first) if len(first) else np.zeros(0, np.int64)


def unigram(grams: Grams, vocab_size: int) -> Floats:
    """Shares of single tokens [V]; what the discount takes is spread evenly over all tokens that can come."""
    if vocab_size > MOST_TOKENS:
        raise ValueError(f"`vocab_size` must be at most {MOST_TOKENS}, got {vocab_size}")
    chance = np.zeros(vocab_size)
    chance[grams.keys.astype(np.int64)] = shares(grams)
    can_come = np.ones(vocab_size, dtype=bool)
    can_come[[PAD, BOS]] = False
    chance[can_come] += (1 - chance.sum()) / can_come.sum()
    return chance.astype(np.float32)


def shares(grams: Grams) -> Shares:
    """(count - discount) / (all counts of the context) of each gram [n]."""
    context = grams.keys >> np.uint64(BITS)
    first = np.flatnonzero(np.diff(context, prepend=~context[:1]))
    total = _sums(grams.adjusted, first)
    lengths = np.diff(np.append(first, len(context)))
    discount = np.array([0.0, *_discounts(grams.adjusted)])[np.minimum(grams.adjusted, 3)]
    return np.asarray((grams.adjusted - discount) / np.repeat(total, lengths))


def _discounts(counts: Integers) -> tuple[float, float, float]:
    """Discounts of counts of 1, 2, and 3 or more (Chen and Goodman 1999, equation 26)."""
    once, twice, thrice, often = (int((counts == times).sum()) for times in (1, 2, 3, 4))
    if not min(once, twice, thrice, often):
        return _FALLBACK
    base = once / (once + 2 * twice)
    found = (1 - 2 * base * twice / once, 2 - 3 * base * thrice / twice, 3 - 4 * base * often / thrice)
    return found if all(0 < discount < times for times, discount in enumerate(found, start=1)) else _FALLBACK
