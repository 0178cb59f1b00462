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

_FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where the counts of counts allow no estimate."""


class Grams(NamedTuple):
    """All different grams of one order k > 1."""

    keys: NDArray[np.uint64]
    """[n] ascending; 16 bits a token, the first token highest."""
    raw: NDArray[np.uint32]
    """[n] occurrences."""
    row: Integers
    """[n] the number of its context among the grams of the order below; of order 2 the first token."""
    share: NDArray[np.float64]
    """[n] (count - discount) / (all counts of the context)."""


def estimate(counts: Counts, vocab_size: int) -> tuple[Floats, list[Grams]]:
    """The probabilities of single tokens [V] and the grams of orders 2, 3, ..., lowest first.

    Raises:
        ValueError: there are too many tokens for keys of 16 bits, or a token that the vocabulary has not.
    """
    if vocab_size > MOST_TOKENS:
        raise ValueError(f"`vocab_size` must be at most {MOST_TOKENS}, got {vocab_size}")
    single, *orders = _orders(counts)
    if len(single.keys) and single.keys[-1] >= vocab_size:
        raise ValueError(f"token {int(single.keys[-1])} was counted and `vocab_size` is {vocab_size}")
    grams = []
    below = _Order(np.arange(vocab_size, dtype=np.uint64), np.zeros(vocab_size, np.uint32), single.adjusted)
    for number, order in enumerate(orders, start=2):
        order, row = _of_known_contexts(order, below.keys)
        total = np.bincount(row, order.adjusted, len(below.keys))
        unseen = 0
        if number == counts.order:
            # What a context lost by forgetting is still its own, and goes to shorter contexts.
            total, unseen = np.maximum(total, below.raw), counts.forgotten
        discounts = np.array([0.0, *_discounts(order.adjusted, unseen)])
        share = (order.adjusted - discounts[np.minimum(order.adjusted, 3)]) / total[row]
        grams.append(Grams(order.keys, order.raw, row, share))
        below = order
    return _unigram(single, vocab_size), grams


class _Order(NamedTuple):
    keys: NDArray[np.uint64]
    raw: NDArray[np.uint32]
    adjusted: NDArray[np.uint32]


def _of_known_contexts(order: _Order, contexts: NDArray[np.uint64]) -> tuple[_Order, Integers]:
    """The grams whose context is there, which all have unless some were forgotten; and the numbers of the contexts."""
    wanted = order.keys >> np.uint64(BITS)
    row = np.searchsorted(contexts, wanted)
    known = contexts[np.minimum(row, len(contexts) - 1)] == wanted if len(contexts) else np.zeros(len(row), bool)
    return (order, row) if known.all() else (_Order(*(part[known] for part in order)), row[known])


def _orders(counts: Counts) -> list[_Order]:
    """The grams of orders 1, 2, ... with what they count, lowest first."""
    keys, raw, adjusted = counts.keys, counts.times, counts.times
    orders = []
    for order in range(counts.order, 0, -1):
        whole = int(np.searchsorted(keys, np.uint64(1 << BITS * (order - 1))))  # before it `<pad>` begins them
        orders.append(_Order(keys[whole:], raw[whole:], adjusted[whole:]))
        if order > 1:
            tails = keys & np.uint64((1 << BITS * (order - 1)) - 1)
            by_tail = np.argsort(tails, kind="stable")
            tails = tails[by_tail]
            first = np.flatnonzero(np.diff(tails, prepend=~tails[:1]))
            raw = raw[by_tail]
            adjusted = _sums(np.where(by_tail < whole, raw, np.uint32(1)), first)
            keys, raw = tails[first], _sums(raw, first)
    return orders[::-1]


def _sums(values: NDArray[np.uint32], first: Integers) -> NDArray[np.uint32]:
    """The sums of the neighbours that begin at `first`."""
    return np.add.reduceat(values, first, dtype=np.uint32) if len(first) else values[:0]


def _unigram(single: _Order, vocab_size: int) -> Floats:
    """What the discount takes is spread evenly over all tokens that can come."""
    chance = np.zeros(vocab_size)
    discount = np.array([0.0, *_discounts(single.adjusted)])[np.minimum(single.adjusted, 3)]
    chance[single.keys.astype(np.int64)] = (single.adjusted - discount) / max(1, int(single.adjusted.sum()))
    can_come = np.ones(vocab_size, dtype=bool)
    can_come[[PAD, BOS]] = False
    chance[can_come] += (1 - chance.sum()) / can_come.sum()
    return chance.astype(np.float32)


def _discounts(counts: NDArray[np.uint32], forgotten: int = 0) -> tuple[float, float, float]:
    """Discounts of counts of 1, 2, and 3 or more (Chen and Goodman 1999, equation 26).

    Args:
        counts: of all grams of an order.
        forgotten: grams that are missing, which occurred once.
    """
    once, twice, thrice, often = (int((counts == times).sum()) for times in (1, 2, 3, 4))
    once += forgotten
    if not min(once, twice, thrice, often):
        return _FALLBACK
    base = once / (once + 2 * twice)
    found = (1 - 2 * base * twice / once, 2 - 3 * base * thrice / twice, 3 - 4 * base * often / thrice)
    return found if all(0 < discount < times for times, discount in enumerate(found, start=1)) else _FALLBACK
