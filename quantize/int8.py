"""Symmetric int8 weights with one scale for each output channel.

A weight matrix W [i, o] becomes integers in [-127, 127] and a scale s [o] with W ~ values * s. The integer product of
a device multiplies 8-bit unsigned activations (quantized as they come) by these values and scales each column once.

The range is symmetric (-128 is never used), so that a zero point is not needed. x86 processors without VNNI (AVX2, and
the first AVX-512) add the products of two neighbouring inputs in 16 bits, which saturate: an answer is wrong then and
nothing says so. The usual remedy, seven bits for all weights ("reduced range"), halves every step. Here the scale of a
column makes room for its largest pair instead: whatever the activations are, no pair leaves 16 bits, and all processors
compute the same integers.

Shapes: i inputs, o outputs (tokens for the embedding table).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError

LEVELS = 127
"""Largest absolute value of a quantized weight, and of the sum of a pair with the same sign (rounding may add 1)."""
PAIR = 128
"""Largest sum of a pair: 255 times this fits into 16 bits."""
SMALLEST_SCALE = np.float32(np.finfo(np.float32).tiny)
"""Below this a scale is no normal float any more and its inverse overflows."""


@dataclass(frozen=True)
class Activation:
    """How the inputs of a product become unsigned 8-bit integers: x ~ (q - zero_point) * scale.

    Attributes:
        scale: positive.
        zero_point: the integer that stands for zero, 0 to 255.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Int8Weight:
    """A quantized matrix.

    Attributes:
        values: int8 [i, o], each in [-127, 127].
        scale: float32 [o], positive.
        activation: of what is multiplied by it; None when the range is taken from each input as it comes.
    """

    values: NDArray[np.int8]
    scale: NDArray[np.float32]
    activation: Activation | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the integers and of the scales."""
        return self.values.nbytes + self.scale.nbytes

    def dequantize(self) -> NDArray[np.float32]:
        """The matrix that the integers stand for, float32 [i, o]."""
        return self.values.astype(np.float32) * self.scale


def quantize_weight(name: str, weight: NDArray[np.float32]) -> Int8Weight:
    """Quantizes `weight` [i, o] with one scale for each column, by its largest pair of neighbouring inputs.

    A column of zeros gets the smallest scale of the others: it stays zero and divides by nothing.

    Args:
        name: what to call the weight in an error.
        weight: a float matrix.

    Raises:
        UserError: a value is NaN or infinite, or the whole matrix is zero (a weight that was never trained or loaded).
    """
    require_weight(name, weight)
    largest = reach(weight).max(axis=0)
    alive = largest / LEVELS > SMALLEST_SCALE
    scale = np.where(alive, largest / LEVELS, largest[alive].min() / LEVELS).astype(np.float32)
    values = np.rint(weight / scale).clip(-LEVELS, LEVELS).astype(np.int8)
    return Int8Weight(np.ascontiguousarray(values), scale)


def reach(weight: NDArray[Any]) -> NDArray[Any]:
    """What the inputs of a pair can add up to with one sign, [ceil(i / 2), o] of [i, o] (an odd end is a pair with 0).

    Processors without VNNI take the products of inputs 0 and 1, 2 and 3, ... together.
    """
    padded = np.concatenate([weight, np.zeros_like(weight[: len(weight) % 2])])
    pairs = padded.reshape(-1, 2, weight.shape[1])  # [i / 2, 2, o]
    largest: NDArray[Any] = np.maximum(pairs.clip(min=0).sum(axis=1), (-pairs).clip(min=0).sum(axis=1))
    return largest


def require_weight(name: str, weight: NDArray[np.float32]) -> None:
    """Refuses what cannot be quantized.

    Raises:
        ValueError: it is no matrix.
        UserError: a value is NaN or infinite, or the whole matrix is zero (a weight that was never trained or loaded).
    """
    if weight.ndim != 2:
        raise ValueError(f"`weight` must be a matrix, and `{name}` has {weight.ndim} dimensions")
    if not np.isfinite(weight).all():
        raise UserError(
            f"weight `{name}` holds NaN or infinite values, and only finite ones can be quantized",
            code="bad-weight",
            hint="train again with a smaller learning rate",
        )
    if not np.abs(weight).max() / LEVELS > SMALLEST_SCALE:
        raise UserError(
            f"weight `{name}` is zero everywhere, so there is nothing to quantize",
            code="bad-weight",
            hint="take a checkpoint whose training has begun",
        )
