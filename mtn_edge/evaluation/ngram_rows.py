"""Distributions of an n-gram, each worked out once and kept as a row of arrays while there is room.

Shapes: b contexts, R rows that fit, c tokens kept in order, V tokens.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from mtn_edge.ngram.model import NGram

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

_BYTES = 1 << 26
"""What the rows take, about."""


class Block:
    """Rows that are filled one by one and never changed after; when there is no room left a new block begins.

    Attributes:
        chance: [R, V] the probabilities after each context.
        best: [R, c] its most probable tokens, in order.
        of_best: [R, c] their probabilities.
        numbers: the row of each context.
    """

    def __init__(self, rows: int, vocab_size: int, width: int) -> None:
        self.chance: Floats = np.empty((rows, vocab_size), dtype=np.float32)
        self.best: Integers = np.empty((rows, width), dtype=np.int64)
        self.of_best: Floats = np.empty((rows, width), dtype=np.float32)
        self.numbers: dict[tuple[int, int], int] = {}


class Rows:
    """The rows of one n-gram; safe to call from several threads.

    Args:
        model: the n-gram.
        width: c, tokens that are kept in order; also the number of contexts that are asked for at once, at most.
    """

    def __init__(self, model: NGram, width: int) -> None:
        vocab_size = len(model.unigram)
        self._model, self._width = model, min(width, vocab_size)
        self._most = max(2 * width, _BYTES // (4 * vocab_size))
        self._lock = threading.Lock()
        self._block = self._new()

    def _new(self) -> Block:
        return Block(self._most, len(self._model.unigram), self._width)

    def of(self, contexts: Integers) -> tuple[Block, Integers]:
        """The block and the rows in it [b] of some contexts [b, order - 1]."""
        listed = contexts.tolist()
        keys = [self._model.longest(context) for context in listed]
        with self._lock:
            if len(self._block.numbers) + len(keys) > self._most:
                self._block = self._new()
            block = self._block
            for key, context in zip(keys, listed, strict=True):
                if key not in block.numbers:
                    self._fill(block, len(block.numbers), context)
                    block.numbers[key] = len(block.numbers)
            return block, np.array([block.numbers[key] for key in keys])

    def _fill(self, block: Block, row: int, context: list[int]) -> None:
        chance = self._model.distribution(context)
        best = highest(chance, self._width)
        block.chance[row], block.best[row], block.of_best[row] = chance, best, chance[best]


def highest(values: NDArray[np.floating], k: int) -> Integers:
    """The places of the `k` highest values, in order; of equal ones the first."""
    top = np.sort(np.argpartition(-values, k - 1)[:k]) if k < len(values) else np.arange(len(values))
    return top[np.argsort(-values[top], kind="stable")]
