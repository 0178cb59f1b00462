"""The batches of a whole run, from wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mtn_edge.data.batches import Batch, Batches
from mtn_edge.training.state import Progress


class Micro(NamedTuple):
    """One batch of a step."""

    batch: Batch
    tokens: int
    """Tokens to predict in all batches of the step, on all processes."""
    queries: int
    """Queries to predict in them."""
    numbers: Tensor
    """[g] int64: the numbers of the queries to predict in this batch, in the order of its rows."""


class Stream:
    """The batches of all epochs from a step on: the order depends on the seed and the step alone.

    Args:
        batches: of the training split.
        progress: where the run stands when one begins to iterate.
        seed: of the order.
        epochs: passes over the training split.
        accumulate: batches of a step on one process.
        rank: the process.
        world: how many there are.
    """

    def __init__(
        self,
        batches: Batches,
        progress: Progress,
        *,
        seed: int,
        epochs: int,
        accumulate: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self._batches, self._progress = batches, progress
        self._seed, self._epochs, self._accumulate = seed, epochs, accumulate
        self._rank, self._world = rank, world

    def __len__(self) -> int:
        steps = 0 if self._progress.ended else len(self._batches) * self._epochs - self._progress.step
        return steps * self._accumulate

    def __iter__(self) -> Iterator[Micro]:
        first, position = divmod(self._progress.step, len(self._batches))
        for epoch in range(first, self._epochs):
            start = position if epoch == first else 0
            for step in self._batches.steps(self._seed, epoch, start, rank=self._rank, world=self._world):
                for batch, numbers in zip(step.batches, step.numbers, strict=True):
                    yield Micro(batch, step.tokens, step.queries, torch.from_numpy(numbers))
