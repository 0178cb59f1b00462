"""A subword n-gram as sorted sparse arrays, in few bytes.

Each order k > 1 is a sparse matrix: one row for each gram of order k - 1 (its context), in their order, and in the row
the tokens that follow, ascending, each with its share alpha. So a gram's number in its order is also the number of the
row that it is the context of, and

    p_k(w | h) = alpha_k(h, w) + gamma_k(h) * p_(k-1)(w | h without its first token)
    gamma_k(h) = 1 - sum of row h

What is pruned is thereby given to the shorter context, and every distribution sums to one. Seen from single tokens,

    p(w | h) = share + left * p_1(w)

where `left`, the product of the gammas, is the same for all w. A share is stored as one byte: the number of one of 256
values in equal ratios.

Shapes: n grams of an order, r rows of an order (grams of the order below), V tokens, b contexts at once, m targets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.ngram.counting import sentences
from mtn_edge.tokenizer import BOS, PAD

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

CODES = 256


class Level(NamedTuple):
    """The kept grams of one order k > 1, as they are stored."""

    sizes: NDArray[np.unsignedinteger[Any]]
    """[r] entries of each row; one byte where 255 are the most."""
    tokens: NDArray[np.uint16]
    """[n] last token of each gram."""
    codes: NDArray[np.uint8]
    """[n] its share, as a number of `values`."""
    values: Floats
    """[256] the shares that can be told apart."""


class Evidence(NamedTuple):
    """What the contexts of some tokens say about them: the probability is share + left * unigram[token]."""

    share: Floats
    """[b] what orders 2, 3, ... give to the token."""
    left: Floats
    """[b] what they leave to single tokens."""
    matched: NDArray[np.uint8]
    """[b] how many orders have an entry after the context."""


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

    def walk(self, tokens: NDArray[np.integer], offsets: Integers) -> tuple[Integers, Integers]:
        """The contexts [m, order - 1] of all tokens of some queries, the `<eos>` of each included, and the tokens [m].

        Args:
            tokens: token numbers of all queries, one after the other, without specials.
            offsets: query n is `tokens[offsets[n] : offsets[n + 1]]`.
        """
        text, place = sentences(tokens, offsets)
        ends = np.flatnonzero(place)
        last = text[ends - 1]
        contexts = np.full((len(ends), len(self.levels)), -1, dtype=np.int64)
        contexts[:, 0] = last
        opens = place[ends] == 1
        for order, rows in enumerate(self._rows[:-1]):
            earlier = np.where(opens, -1, np.roll(contexts[:, order], 1))
            contexts[:, order + 1] = rows.find(earlier, last)
        return contexts, text[ends]

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
                continue  # a longer one can be known: what it ends with was pruned
            part = slice(rows.offsets[row], rows.offsets[row + 1])
            chance = chance * rows.gamma[row]
            chance[rows.tokens[part]] += rows.alpha[part]
        return chance

    def probabilities(self, contexts: Integers, tokens: Integers) -> Floats:
        """The probability of one token each [b] after contexts [b, order - 1]."""
        share, left, _ = self.evidence(contexts, tokens)
        return share + left * self.unigram[tokens]

    def evidence(self, contexts: Integers, tokens: Integers) -> Evidence:
        """What contexts [b, order - 1] say about one token each [b]."""
        share, left = np.zeros(len(tokens), np.float32), np.ones(len(tokens), np.float32)
        matched = np.zeros(len(tokens), np.uint8)
        for order, rows in enumerate(self._rows):
            row = contexts[:, order]
            gamma = rows.gamma[row]
            share = rows.alpha[rows.find(row, tokens)] + gamma * share
            left = left * gamma
            matched += rows.sizes[row] > 0
        return Evidence(share, left, matched)

    def entries(self, contexts: Integers) -> tuple[Integers, Floats, Floats, Integers]:
        """All that contexts [b, order - 1] say, sparse, and what they leave to single tokens.

        Returns:
            Tokens and their shares [b, k] (padded with `<pad>` and 0; a token stands there once for each order that
            knows it), what is left [b], and how many orders have an entry [b].
        """
        found = []
        left, matched = np.ones(len(contexts), np.float32), np.zeros(len(contexts), np.int64)
        for place, context in enumerate(contexts.tolist()):
            tokens, shares = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
            for rows, row in reversed(list(zip(self._rows, context, strict=True))):
                if row < 0 or not rows.sizes[row]:
                    continue
                entries = slice(rows.offsets[row], rows.offsets[row + 1])
                tokens.append(rows.tokens[entries].astype(np.int64))
                shares.append(left[place] * rows.alpha[entries])
                left[place] *= rows.gamma[row]
                matched[place] += 1
            found.append((np.concatenate(tokens), np.concatenate(shares)))
        width = max(len(shares) for _, shares in found)
        all_tokens = np.full((len(contexts), width), PAD)
        all_shares = np.zeros((len(contexts), width), dtype=np.float32)
        for place, (row_tokens, row_shares) in enumerate(found):
            all_tokens[place, : len(row_tokens)], all_shares[place, : len(row_shares)] = row_tokens, row_shares
        return all_tokens, all_shares, left, matched

    def top_shares(self, contexts: Integers) -> Floats:
        """The largest share that any token has after each context [b], as `entries` lists them."""
        top, left = np.zeros(len(contexts), np.float32), np.ones(len(contexts), np.float32)
        for order in reversed(range(len(self._rows))):
            rows, row = self._rows[order], contexts[:, order]
            top = np.maximum(top, left * rows.top[row])
            left = left * rows.gamma[row]
        return top


class _Rows:
    """A level, ready to be looked up; the last size, share, gamma and top are those of what is not there (-1)."""

    def __init__(self, level: Level, vocab_size: int) -> None:
        self.sizes = np.append(level.sizes, level.sizes.dtype.type(0))
        self.offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(level.sizes, dtype=np.int64)])
        self.tokens = level.tokens
        self.alpha = np.append(level.values[level.codes], np.float32(0))
        row = np.repeat(np.arange(len(level.sizes)), level.sizes)
        gamma = 1 - np.bincount(row, self.alpha[:-1], len(level.sizes))
        self.gamma = np.append(gamma, 1).astype(np.float32)
        top = np.zeros(len(level.sizes), np.float32)
        np.maximum.at(top, row, self.alpha[:-1])
        self.top = np.append(top, np.float32(0))
        self._vocab_size = vocab_size
        self._keys = row * vocab_size + level.tokens  # ascending

    def find(self, rows: Integers, tokens: Integers) -> Integers:
        """The number of the gram of each row and token [b]; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(rows), -1)
        wanted = rows * self._vocab_size + tokens
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where((rows >= 0) & (self._keys[place] == wanted), place, -1)


def quantize(shares: NDArray[np.float64], row: Integers) -> tuple[NDArray[np.uint8], Floats]:
    """The nearest of 256 values in equal ratios; the next lower one in rows that would leave too little for gamma."""
    if not len(shares):
        return np.zeros(0, np.uint8), np.ones(CODES, np.float32)
    high, low = np.log(shares.max()), np.log(shares.min())
    step = max((high - low) / (CODES - 1), 1e-9)
    values = np.exp(high - step * np.arange(CODES)).astype(np.float32)
    exact = (high - np.log(shares)) / step
    codes = np.rint(exact)
    left, stays = (1 - np.bincount(row, taken) for taken in (shares, values[codes.astype(np.uint8)]))
    codes = np.where((stays < left / 2)[row], np.ceil(exact - 1e-9), codes)
    return codes.clip(0, CODES - 1).astype(np.uint8), values
