"""Copying: what followed the same tokens earlier in the session, as a distribution to be mixed into a model's.

The last two tokens, the last one, and no token at all are looked for in the session's earlier queries, the longest
first. What followed there f(w), of `total` tokens and `distinct` different ones, counts with the weight
total / (total + 0.5 * distinct); the rest of the weight goes to the shorter match, and after the shortest to the model.
Of the whole, copying gets a fixed share that depends on the length of the longest match alone.

Shapes: m different tokens of a session, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtn_edge.tokenizer import BOS

Shares = tuple[float, float, float]
"""The share of copying when no token before matches, when the last one does, when the last two do."""
_NOVELTY = 0.5
"""Weight of a different token against an occurrence, where a match gives way to a shorter one."""


class SessionCopies:
    """What a session offers to copy.

    Args:
        text: tokens of the earlier queries, each between `<bos>` and `<eos>`.
        shares: see `Shares`.
    """

    def __init__(self, text: Sequence[int], shares: Shares) -> None:
        self.tokens = np.array(sorted({token for token in text if token != BOS}), dtype=np.int64)
        """[m] what can be copied, `<eos>` too; ascending."""
        self._shares = shares
        self._offered: NDArray[np.bool_] | None = None
        column = {token: number for number, token in enumerate(self.tokens.tolist())}
        followed: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        before: tuple[int, ...] = ()
        for token in text:
            if token == BOS:
                before = (BOS,)
                continue
            for length in range(len(before) + 1):
                followed[before[len(before) - length :]][column[token]] += 1
            before = (*before, token)[-2:]
        self._followed = dict(followed)  # a match of two tokens has matches of one and of none inside
        self._mixed: dict[tuple[int, ...], tuple[float, NDArray[np.float32]]] = {}

    def offered(self, vocab_size: int) -> NDArray[np.bool_]:
        """Whether each token of the vocabulary is one of `tokens`, [V]."""
        if self._offered is None:
            self._offered = np.zeros(vocab_size, dtype=bool)
            self._offered[self.tokens] = True
        return self._offered

    def mix(self, before: tuple[int, ...]) -> tuple[float, NDArray[np.float32]]:
        """How to mix after some tokens: the factor of the model's probabilities, and what `tokens` get beside, [m].

        Args:
            before: the last two tokens; `<bos>` alone at the start of a query.
        """
        if before not in self._mixed:
            self._mixed[before] = self._mix(before)
        return self._mixed[before]

    def longest(self, before: tuple[int, ...]) -> int:
        """The length of the longest match of `before`: 0, 1 or 2 tokens."""
        return next((length for length in range(len(before), 0, -1) if before[-length:] in self._followed), 0)

    def _mix(self, before: tuple[int, ...]) -> tuple[float, NDArray[np.float32]]:
        copied = np.zeros(len(self.tokens))
        if not self._followed:
            return 1.0, copied.astype(np.float32)
        longest, left = self.longest(before), 1.0
        for length in range(longest, -1, -1):
            followed = self._followed[before[len(before) - length :]]
            total = sum(followed.values())
            weight = total / (total + _NOVELTY * len(followed))
            copied[list(followed)] += left * weight * np.array(list(followed.values())) / total
            left *= 1 - weight
        share = self._shares[longest]
        return 1 - share + share * left, (share * copied).astype(np.float32)
