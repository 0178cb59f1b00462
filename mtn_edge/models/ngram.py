"""A subword n-gram as sorted sparse arrays: interpolated modified Kneser-Ney, pruned by count, in few bytes.

Estimation follows Kneser and Ney 1995 and Chen and Goodman 1999 (section 3.6, three discounts an order): the highest
order counts occurrences, each lower one how many different tokens stand before a gram; a gram that begins with the one
start symbol has nothing before it and keeps its occurrences. A query is a sentence of its own, `<bos>` w_1 ... `<eos>`.

Each order k > 1 is a sparse matrix: one row for each gram of order k - 1 (its context), in their order, and in the row
the tokens that follow, ascending, each with its share alpha. So a gram's number in its order is also the number of the
row that it is the context of, and

    p_k(w | h) = alpha_k(h, w) + gamma_k(h) * p_(k-1)(w | h without its first token)
    gamma_k(h) = 1 - sum of row h

What is pruned is thereby given to the shorter context, and every distribution sums to one. A share is stored as one
byte: the number of one of 256 values in equal ratios.

Shapes: n grams of an order, r rows of an order (grams of the order below), V tokens, b contexts at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.tokenizer import BOS, EOS, PAD

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

ORDER = 4
"""The order that is usual here; the highest too, since four token numbers fill a key of 64 bits."""
MOST_TOKENS = 1 << 16
"""Tokens of a vocabulary at most."""
_BITS = 16
_CODES = 256
_FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where the counts of counts allow no estimate."""


class Grams(NamedTuple):
    """All different grams of one order."""

    keys: NDArray[np.uint64]
    """[n] ascending; 16 bits a token, the first token highest."""
    raw: Integers
    """[n] occurrences: pruning goes by them."""
    adjusted: Integers
    """[n] what the estimate counts."""


class Level(NamedTuple):
    """The kept grams of one order k > 1, as they are stored."""

    sizes: NDArray[np.uint16]
    """[r] entries of each row."""
    tokens: NDArray[np.uint16]
    """[n] last token of each gram."""
    codes: NDArray[np.uint8]
    """[n] its share, as a number of `values`."""
    values: Floats
    """[256] the shares that can be told apart."""


class NGram:
    """An n-gram that gives distributions.

    A context is a row [order - 1]: the row numbers of the last token (order 2), of the last two (order 3) and so on;
    -1 where those tokens are no context that was kept.

    Args:
        unigram: probability of each token [V]; what comes after no known context.
        levels: orders 2, 3, ..., lowest first.
    """

    def __init__(self, unigram: Floats, levels: tuple[Level, ...]) -> None:
        self.unigram, self.levels = unigram, levels
        self._wide = len(unigram)
        self._rows = [_Rows(level, self._wide) for level in levels]

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        return self.unigram.nbytes + sum(part.nbytes for level in self.levels for part in level)

    @property
    def start(self) -> Integers:
        """The context of a first token [1, order - 1]: `<bos>` alone."""
        context = np.full((1, len(self.levels)), -1, dtype=np.int64)
        context[0, 0] = BOS
        return context

    def advance(self, contexts: Integers, tokens: Integers) -> Integers:
        """The contexts [b, order - 1] after one more token each, from those before it and the tokens [b]."""
        after = np.empty_like(contexts)
        after[:, 0] = tokens
        for order, rows in enumerate(self._rows[:-1]):
            after[:, order + 1] = rows.find(contexts[:, order], tokens)
        return after

    def longest(self, context: list[int]) -> tuple[int, int]:
        """How many orders of a context tell anything, and the row number of the last of them."""
        for order in range(len(context) - 1, 0, -1):
            row = context[order]
            if row >= 0 and self._rows[order].sizes[row]:
                return order + 1, row
        return 1, context[0]

    def distribution(self, context: list[int]) -> Floats:
        """The probability of each token [V] after a context."""
        chance = self.unigram
        for rows, row in zip(self._rows, context, strict=True):
            if row < 0:
                break
            part = slice(rows.offsets[row], rows.offsets[row + 1])
            chance = chance * rows.gamma[row]
            chance[rows.tokens[part]] += rows.alpha[part]
        return chance

    def entries(self, contexts: Integers) -> tuple[Integers, Floats, Floats, Integers]:
        """All that the n-gram knows after contexts [b, order - 1], sparse, and what it leaves to single tokens.

        Returns:
            Tokens and their shares [b, k] (padded with `<pad>` and 0; a token stands there once for each order that
            knows it), what is left [b], and how many orders know the context [b].
        """
        found: list[tuple[list[Integers], list[Floats]]] = []
        left = np.ones(len(contexts), dtype=np.float32)
        matched = np.zeros(len(contexts), dtype=np.int64)
        for place, context in enumerate(contexts.tolist()):
            tokens, shares = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
            for rows, row in reversed(list(zip(self._rows, context, strict=True))):
                if row < 0 or not rows.sizes[row]:
                    continue
                part = slice(rows.offsets[row], rows.offsets[row + 1])
                tokens.append(rows.tokens[part].astype(np.int64))
                shares.append(left[place] * rows.alpha[part])
                left[place] *= rows.gamma[row]
                matched[place] += 1
            found.append((tokens, shares))
        width = max(sum(map(len, shares)) for _, shares in found)
        all_tokens = np.full((len(contexts), width), PAD)
        all_shares = np.zeros((len(contexts), width), dtype=np.float32)
        for place, (tokens, shares) in enumerate(found):
            count = sum(map(len, shares))
            all_tokens[place, :count], all_shares[place, :count] = np.concatenate(tokens), np.concatenate(shares)
        return all_tokens, all_shares, left, matched

    def probabilities(self, contexts: Integers, tokens: Integers) -> Floats:
        """The probability of one token each [b] after contexts [b, order - 1]."""
        chance = self.unigram[tokens]
        for order, rows in enumerate(self._rows):
            row = contexts[:, order]
            chance = rows.alpha[rows.find(row, tokens)] + rows.gamma[row] * chance
        return chance


class _Rows:
    """A level, ready to be looked up; the last share and the last gamma are those of what is not there (-1)."""

    def __init__(self, level: Level, vocab_size: int) -> None:
        self.sizes = level.sizes
        self.offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(level.sizes, dtype=np.int64)])
        self.tokens = level.tokens
        self.alpha = np.append(level.values[level.codes], np.float32(0))
        row = np.repeat(np.arange(len(level.sizes)), level.sizes)
        gamma = 1 - np.bincount(row, self.alpha[:-1], len(level.sizes))
        self.gamma = np.append(gamma, 1).astype(np.float32)
        self._vocab_size = vocab_size
        self._keys = row * vocab_size + level.tokens  # ascending

    def find(self, rows: Integers, tokens: Integers) -> Integers:
        """The number of the gram of each row and token [b]; -1 where there is none."""
        wanted = rows * self._vocab_size + tokens
        place = np.searchsorted(self._keys, wanted)
        if not len(self._keys):
            return np.full(len(rows), -1)
        there = (rows >= 0) & (self._keys[np.minimum(place, len(self._keys) - 1)] == wanted)
        return np.where(there, place, -1)


def count_grams(tokens: NDArray[np.integer], offsets: Integers, order: int = ORDER) -> list[Grams]:
    """Counts the grams of all orders.

    Args:
        tokens: token numbers of all queries, one after the other, without specials.
        offsets: query n is `tokens[offsets[n] : offsets[n + 1]]`.
        order: of the longest grams, 2 to 4.
    """
    text, place = _sentences(tokens, offsets)
    occurring = []
    for length in range(1, order + 1):
        ends = np.flatnonzero(place >= max(1, length - 1))
        keys = np.zeros(len(ends), dtype=np.uint64)
        for back in range(length - 1, -1, -1):
            keys = keys << np.uint64(_BITS) | text[ends - back]
        occurring.append(np.unique(keys, return_counts=True))
    grams = []
    for length, (keys, raw) in enumerate(occurring, start=1):
        adjusted = raw.copy()
        if length < order:
            mask = np.uint64((1 << _BITS * length) - 1)
            tails, before = np.unique(occurring[length][0] & mask, return_counts=True)
            adjusted[np.searchsorted(keys, tails)] = before
        grams.append(Grams(keys, raw, adjusted))
    return grams


def _sentences(tokens: NDArray[np.integer], offsets: Integers) -> tuple[NDArray[np.uint64], Integers]:
    """`<bos>`, the tokens and `<eos>` of each query, one after the other, and the place of each in its query."""
    lengths = np.diff(offsets) + 2
    starts = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    text = np.empty(len(place), dtype=np.uint64)
    text[starts], text[starts + lengths - 1] = BOS, EOS
    inner = np.ones(len(place), dtype=bool)
    inner[starts] = inner[starts + lengths - 1] = False
    text[inner] = tokens
    return text, place


def cut_offs() -> Iterator[tuple[int, int, int]]:
    """Least occurrences of grams of orders 2, 3 and 4, from keeping all on: (1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2).

    They never fall from one order to the next: so what a kept gram begins and ends with is kept too.
    """
    least = 1
    while True:
        yield least, least, least
        yield least, least, least + 1
        yield least, least + 1, least + 1
        least += 1


def size(grams: list[Grams], vocab_size: int, least: tuple[int, ...], spare: int = 0) -> int:
    """Bytes that `estimate` would store."""
    rows, stored = vocab_size, vocab_size * 4
    for number, (order, needed) in enumerate(zip(grams[1:], least, strict=True)):
        kept = int((order.raw >= needed).sum()) + spare * (number == _last_cut(least))
        stored += 2 * rows + 3 * kept + 4 * _CODES
        rows = kept
    return stored


def fit(grams: list[Grams], vocab_size: int, max_bytes: int | None = None) -> tuple[NGram, tuple[int, ...]]:
    """The n-gram with the weakest of `cut_offs` that stores `max_bytes` at most, and those cut-offs.

    Where some of what the last step cut fits too, it is kept, the highest shares first. When not even single tokens
    fit, single tokens are what comes out.
    """
    most = max(int(order.raw.max(initial=0)) for order in grams)
    for cut_off in cut_offs():
        least = cut_off[: len(grams) - 1]
        left = 0 if max_bytes is None else max_bytes - size(grams, vocab_size, least)
        if left >= 0 or least[0] > most:
            each = size(grams, vocab_size, least, 1) - size(grams, vocab_size, least)
            return estimate(grams, vocab_size, least, max(0, left // each)), least
    raise AssertionError("there is always a next cut-off")


def _last_cut(least: tuple[int, ...]) -> int:
    """Which of the cut-offs was raised last, by the order of `cut_offs`: the lowest of the highest."""
    return least.index(max(least))


def _kept(grams: list[Grams], least: tuple[int, ...], spare: int) -> list[NDArray[np.bool_]]:
    """Which grams of orders 2, 3, ... are kept: with each, what it begins and ends with."""
    kept = [order.raw >= needed for order, needed in zip(grams[1:], least, strict=True)]
    place = _last_cut(least)
    order = grams[1 + place]
    cut = np.flatnonzero(order.raw == least[place] - 1)
    kept[place][cut[np.argsort(-_shares(order)[cut], kind="stable")[:spare]]] = True
    return kept


def estimate(grams: list[Grams], vocab_size: int, least: tuple[int, ...] | None = None, spare: int = 0) -> NGram:
    """The n-gram of counted grams.

    Args:
        grams: what `count_grams` counted.
        vocab_size: V, at most 65,536.
        least: occurrences that a gram of order 2, 3, ... needs to be kept; never falling. None keeps all.
        spare: how many are kept of those that miss one occurrence, in the order of which `least` was raised last.

    Raises:
        ValueError: V is too large, or `least` falls.
    """
    if vocab_size > MOST_TOKENS:
        raise ValueError(f"`vocab_size` must be at most {MOST_TOKENS}, got {vocab_size}")
    least = (1,) * (len(grams) - 1) if least is None else least
    if list(least) != sorted(least):
        raise ValueError(f"`least` must not fall from one order to the next, got {least}")
    levels = []
    contexts = np.arange(vocab_size, dtype=np.uint64)
    for order, kept in zip(grams[1:], _kept(grams, least, spare), strict=True):
        row = np.searchsorted(contexts, order.keys[kept] >> np.uint64(_BITS))
        last = (order.keys[kept] & np.uint64(MOST_TOKENS - 1)).astype(np.uint16)
        sizes = np.bincount(row, minlength=len(contexts)).astype(np.uint16)
        codes, values = _quantize(_shares(order)[kept], row)
        levels.append(Level(sizes, last, codes, values))
        contexts = order.keys[kept]
    return NGram(_unigram(grams[0], vocab_size), tuple(levels))


def _unigram(grams: Grams, vocab_size: int) -> Floats:
    """Shares of single tokens; what the discount takes is spread evenly over all tokens that can come."""
    chance = np.zeros(vocab_size)
    chance[grams.keys.astype(np.int64)] = _shares(grams)
    can_come = np.ones(vocab_size, dtype=bool)
    can_come[[PAD, BOS]] = False
    chance[can_come] += (1 - chance.sum()) / can_come.sum()
    return chance.astype(np.float32)


def _shares(grams: Grams) -> NDArray[np.float64]:
    """(count - discount) / (all counts of the context) of each gram [n]."""
    context = grams.keys >> np.uint64(_BITS)
    first = np.flatnonzero(np.diff(context, prepend=np.uint64(MOST_TOKENS**ORDER - 1)))
    total = np.add.reduceat(grams.adjusted, first) if len(first) else np.zeros(0, np.int64)
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


def _quantize(shares: NDArray[np.float64], row: Integers) -> tuple[NDArray[np.uint8], Floats]:
    """The nearest of 256 values in equal ratios; the next lower one in rows that would leave too little for gamma."""
    if not len(shares):
        return np.zeros(0, np.uint8), np.ones(_CODES, np.float32)
    high, low = np.log(shares.max()), np.log(shares.min())
    step = max((high - low) / (_CODES - 1), 1e-9)
    values = np.exp(high - step * np.arange(_CODES)).astype(np.float32)
    exact = (high - np.log(shares)) / step
    codes = np.rint(exact)
    left, stays = (1 - np.bincount(row, taken) for taken in (shares, values[codes.astype(np.uint8)]))
    codes = np.where((stays < left / 2)[row], np.ceil(exact - 1e-9), codes)
    return codes.clip(0, _CODES - 1).astype(np.uint8), values
