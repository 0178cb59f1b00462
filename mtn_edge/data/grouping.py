"""Which sessions make a batch: like sizes together, in an order that is a pure function of (seed, epoch).

A session of more queries than the network's context holds is cut to windows, by the rule of the runtime
(`runtime.context.context_start`): each query is predicted exactly once, from the context that a device would give it.
With three levels the windows of one user stay together, as a group; a user of more sessions than the network's history
holds is cut to groups by the same rule. With two levels every window is a group of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BUCKET = 4
"""Lengths that a bucket of the token budget spans."""


class Pieces(NamedTuple):
    """Parts of longer rows that the network takes in one piece; all arrays [n]."""

    first: NDArray[np.int64]
    """The first member."""
    size: NDArray[np.int64]
    """How many members."""
    context: NDArray[np.int64]
    """How many of them at the start are context only: an earlier piece predicts them."""


def cut(offsets: NDArray[np.int64], most: int) -> Pieces:
    """Pieces of at most `most` + 1 members, each half a context after the one before.

    A member is a target of the first piece that holds it, so its context starts where `context_start` says.

    Args:
        offsets: [rows + 1] row n has members `offsets[n]` to `offsets[n + 1] - 1`.
        most: earlier members that are seen, at most.
    """
    sizes, half = np.diff(offsets), max(1, most // 2)
    pieces = 1 + np.maximum(0, -(-(sizes - 1 - most) // half))
    row = np.repeat(np.arange(len(sizes)), pieces)
    number = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = number * half
    size = np.minimum(sizes[row] - first, most + 1)
    context = np.where(number > 0, most + 1 - half, 0)
    return Pieces(offsets[row] + first, size, context)


def singles(count: int) -> Pieces:
    """Every member by itself."""
    return Pieces(np.arange(count), np.ones(count, np.int64), np.zeros(count, np.int64))


def reduce_pieces(function: np.ufunc, values: NDArray[np.int64], pieces: Pieces) -> NDArray[np.int64]:
    """`function` (`np.maximum`, `np.add`) over the values of each piece's members."""
    if not len(pieces.first):
        return np.zeros(0, np.int64)
    # reduceat over [first, end) pairs; every other segment lies between pieces and is dropped.
    edges = np.stack([pieces.first, pieces.first + pieces.size], axis=1).ravel()
    return np.asarray(function.reduceat(np.append(values, 0), edges)[::2])


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """Sizes of the groups of a split; all arrays [groups]."""

    queries: NDArray[np.int64]
    """Queries in all."""
    rows: NDArray[np.int64]
    """Windows."""
    size: NDArray[np.int64]
    """Queries of the largest window."""
    longest: NDArray[np.int64]
    """Tokens of the longest query."""


class ByQueries:
    """Batches of about equally many queries.

    Args:
        shapes: of the groups.
        queries: in a batch, about.
    """

    def __init__(self, shapes: Shapes, queries: int) -> None:
        self._shapes = shapes
        # Sorting by queries first gives every epoch the same sequence of sizes, hence the same number of batches.
        counts = np.sort(shapes.queries)
        before = np.cumsum(counts) - counts
        self.bounds = np.append(np.flatnonzero(np.diff(before // queries, prepend=-1)), len(counts))

    def sort(self, random: np.random.Generator) -> NDArray[np.int64]:
        """The groups in the order in which `bounds` cuts them: like lengths together, but never the same neighbours."""
        length = self._shapes.longest * random.uniform(0.8, 1.25, len(self._shapes.longest))
        return np.lexsort((length, self._shapes.queries))


class ByTokens:
    """Batches of at most so many tokens, read and written, with padding; lengths of one bucket together.

    Args:
        shapes: of the groups.
        tokens: in each part of a batch, at most; a group that is larger makes a part of its own.
        parts: pieces that a batch is divided into.
        max_tokens: tokens of a query that are read or written, at most.
        reads_last: whether the last query of a window is read too, and not only written.
    """

    def __init__(self, shapes: Shapes, tokens: int, *, parts: int, max_tokens: int, reads_last: bool) -> None:
        self._shapes = shapes
        self._bucket = np.minimum(-(-shapes.longest // BUCKET) * BUCKET, max_tokens)
        order = np.lexsort((self._bucket, shapes.size, shapes.rows))
        sizes = zip(*(x[order].tolist() for x in (shapes.rows, shapes.size, self._bucket)), strict=True)
        bounds, most = [0], (0, 0, 0)
        for number, found in enumerate(sizes):
            count = number + 1 - bounds[-1]
            wider = (max(a, b) for a, b in zip(most, found, strict=True))
            rows, size, bucket = most = tuple(wider)
            # Read tokens (the start query among them), and written ones with `<bos>` or `<eos>`.
            row = (size + reads_last) * bucket + size * (bucket + 1)
            if count > 1 and -(-count // parts) * rows * row > tokens:
                bounds.append(number)
                most = found
        self.bounds = np.array([*bounds, len(order)] if len(order) else [0])

    def sort(self, random: np.random.Generator) -> NDArray[np.int64]:
        """The groups in the order in which `bounds` cuts them; those of equal sizes change places."""
        chance = random.random(len(self._bucket))
        return np.lexsort((chance, self._bucket, self._shapes.size, self._shapes.rows))


def order(plan: ByQueries | ByTokens, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Which groups each batch of an epoch holds, batches in random order."""
    random = np.random.default_rng((seed, epoch))
    groups, bounds = plan.sort(random), plan.bounds
    batches = [groups[a:b] for a, b in itertools.pairwise(bounds.tolist())]
    return [batches[n] for n in random.permutation(len(batches))]
