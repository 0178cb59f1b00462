"""Fixed ranges for the inputs of int8 products, found on sessions: what is observed, and how a range is drawn from it.

An observer keeps one histogram for each product, of a fixed number of bins between the smallest and the largest value
so far, so that its memory does not grow with the sessions. Three calibrators draw a range from it:

- `minmax`: all that was seen. Nothing is clipped, and one outlier makes every step coarse.
- `percentile`: all but the outermost part in ten thousand.
- `mse`: the range with the smallest squared error, of what it rounds and of what it clips together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.models.build import Network, narrowed
from mtn_edge.tokenizer import PAD
from quantize.int8 import SMALLEST_SCALE, Activation

BINS = 2048
"""Bins of a histogram."""
OUTLIERS = 1e-4
"""Part of the values that `percentile` leaves outside, half of it on each side."""
PARTS = tuple(np.geomspace(0.05, 1.0, 45).tolist())
"""Parts of either side of the range that `mse` tries."""
Take = Callable[[str, Tensor], None]
"""Takes the inputs [..., i] of the product of that name."""


class Observer:
    """A histogram of all values that a product was given."""

    def __init__(self) -> None:
        self.low, self.high = 0.0, 0.0
        self.counts: NDArray[np.float64] = np.zeros(BINS)

    def add(self, values: NDArray[np.float32]) -> None:
        """Counts `values`; the range grows as it must, and what was counted is sorted into the new bins."""
        low, high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if (low, high) != (self.low, self.high):
            moved = np.histogram(self.centres(), BINS, (low, high), weights=self.counts)[0]
            self.low, self.high, self.counts = low, high, moved
        if high > low:
            self.counts += np.histogram(values, BINS, (low, high))[0]

    def centres(self) -> NDArray[np.float64]:
        """The value in the middle of each bin."""
        return self.low + (np.arange(BINS) + 0.5) * (self.high - self.low) / BINS


def minmax(seen: Observer) -> tuple[float, float]:
    """Everything."""
    return seen.low, seen.high


def percentile(seen: Observer) -> tuple[float, float]:
    """All but the outermost `OUTLIERS`."""
    share = np.cumsum(seen.counts) / seen.counts.sum()
    first, last = np.searchsorted(share, [OUTLIERS / 2, 1 - OUTLIERS / 2])
    centres = seen.centres()
    return float(centres[first]), float(centres[min(last, BINS - 1)])


def least_squares(seen: Observer) -> tuple[float, float]:
    """The range with the smallest squared error."""
    centres, counts = seen.centres(), seen.counts
    clipped_low = [np.dot(counts, np.square(np.minimum(centres - seen.low * part, 0))) for part in PARTS]
    clipped_high = [np.dot(counts, np.square(np.maximum(centres - seen.high * part, 0))) for part in PARTS]
    parts = np.array(PARTS)
    step = (seen.high * parts[None] - seen.low * parts[:, None]) / 255
    # Within the range a rounding error is spread evenly over a step.
    error = np.array(clipped_low)[:, None] + np.array(clipped_high)[None] + counts.sum() * np.square(step) / 12
    low, high = np.unravel_index(int(error.argmin()), error.shape)
    return seen.low * PARTS[int(low)], seen.high * PARTS[int(high)]


CALIBRATORS: Mapping[str, Callable[[Observer], tuple[float, float]]] = {
    "minmax": minmax,
    "percentile": percentile,
    "mse": least_squares,
}
"""How a range is drawn from what was seen."""


def calibrated(seen: Mapping[str, Observer], calibrator: str) -> dict[str, Activation]:
    """How the inputs of each product are quantized, by one of `CALIBRATORS`."""
    return {name: activation_of(*CALIBRATORS[calibrator](observer)) for name, observer in seen.items()}


def activation_of(low: float, high: float) -> Activation:
    """Unsigned 8 bits for a range, which is made to hold zero: zero is exact."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / 255, float(SMALLEST_SCALE))
    return Activation(scale, round(-low / scale))


@torch.no_grad()
def feed(
    model: Network, batches: Iterable[Batch], named: Mapping[nn.Linear, str], table: str | None, take: Take
) -> None:
    """Runs `model` over `batches`, and gives away what each product is given.

    Args:
        model: the network, in evaluation mode.
        batches: sessions.
        named: the name of each linear layer; layers with the same name are seen as one.
        table: the name of the tied output product; None where there is none.
        take: gets the inputs.
    """
    with ExitStack() as stack:
        for module, name in named.items():
            handle = module.register_forward_pre_hook(lambda _, inputs, name=name: take(name, inputs[0]))
            stack.callback(handle.remove)
        for batch in batches:
            wanted = batch.target_out[batch.target_in != PAD] != IGNORE
            states = model.states(batch.source, batch.target_in, batch.user)[wanted]
            if table is not None:
                take(table, narrowed(model, states))
            else:
                model.logits(states)


def observe(
    model: Network, batches: Iterable[Batch], named: Mapping[nn.Linear, str], table: str | None
) -> dict[str, Observer]:
    """A histogram for each product, see `feed`."""
    seen: dict[str, Observer] = {}

    def take(name: str, x: Tensor) -> None:
        seen.setdefault(name, Observer()).add(x.numpy().ravel())

    feed(model, batches, named, table, take)
    return seen
