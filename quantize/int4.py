"""Four-bit weights in blocks of 32 inputs: one scale, and optionally one zero point, for each block of each output.

A weight matrix W [i, o] becomes codes in 0 ... 15 with W ~ (code - zero point) * scale. The range of a block is not
simply its largest weight: `FACTORS` of it are tried, and the one with the smallest squared error is kept, which trades
a clipped outlier for finer steps everywhere else. Symmetric blocks have their zero at code 8; asymmetric ones put it
where their weights need it, for half a byte a block.

The runtime (`MatMulNBits`) multiplies such blocks without unpacking the matrix first. It wants codes by outputs, two
to a byte, the first of a pair in the lower half.

Shapes: i inputs, o outputs, n = i / 32 blocks, rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantize.int8 import require_weight

BLOCK = 32
"""Inputs that share a scale."""
LEVELS = 15
"""Largest code."""
CENTRE = 8
"""The code of zero in symmetric blocks, which the runtime assumes."""
FACTORS = tuple(np.linspace(0.70, 1.10, 17).tolist())
"""Parts of a block's range that are tried as its range."""


@dataclass(frozen=True)
class Int4Weight:
    """A matrix in blocks of four-bit codes.

    Attributes:
        codes: uint8 [o, n, 32], each in 0 ... 15; inputs beyond the last have the code of zero.
        scale: float32 [o, n], positive.
        zero_point: uint8 [o, n], or None when it is 8 everywhere.
        inputs: i.
    """

    codes: NDArray[np.uint8]
    scale: NDArray[np.float32]
    zero_point: NDArray[np.uint8] | None
    inputs: int

    @property
    def packed(self) -> NDArray[np.uint8]:
        """The codes, two to a byte: uint8 [o, n, 16]."""
        return _pairs(self.codes)

    @property
    def packed_zero_point(self) -> NDArray[np.uint8] | None:
        """The zero points, two to a byte: uint8 [o, ceil(n / 2)]; None when they are 8 everywhere."""
        if self.zero_point is None:
            return None
        odd = self.zero_point.shape[1] % 2
        return _pairs(np.pad(self.zero_point, ((0, 0), (0, odd)), constant_values=CENTRE))

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points."""
        zero_points = self.packed_zero_point
        return self.codes.size // 2 + self.scale.nbytes + (0 if zero_points is None else zero_points.nbytes)

    def dequantize(self) -> NDArray[np.float32]:
        """The matrix that the codes stand for, float32 [i, o]."""
        zero = CENTRE if self.zero_point is None else self.zero_point[..., None].astype(np.float32)
        blocks = (self.codes.astype(np.float32) - zero) * self.scale[..., None]
        return np.ascontiguousarray(blocks.reshape(len(blocks), -1)[:, : self.inputs].T)


def quantize_blocks(name: str, weight: NDArray[np.float32], *, symmetric: bool = False) -> Int4Weight:
    """Quantizes `weight` [i, o] in blocks of 32 inputs.

    Args:
        name: what to call the weight in an error.
        weight: a float matrix.
        symmetric: zero is code 8 in every block.

    Raises:
        UserError: a value is NaN or infinite, or the whole matrix is zero.
    """
    require_weight(name, weight)
    inputs, outputs = weight.shape
    count = -(-inputs // BLOCK)
    padded = np.pad(weight, ((0, count * BLOCK - inputs), (0, 0)))
    blocks = np.ascontiguousarray(padded.T).reshape(outputs, count, BLOCK)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    # Where there is nothing but zeros any scale does; it must be a normal float.
    span = (high - low) / np.float32(LEVELS)
    dead = span <= np.finfo(np.float32).tiny
    span = np.where(dead, span[~dead].min(), span).astype(np.float32)
    best = _coded(blocks, low, span, symmetric)
    for factor in FACTORS:
        tried = _coded(blocks, low * np.float32(factor), span * np.float32(factor), symmetric)
        better = tried[3] < best[3]
        best = tuple(
            np.where(better.reshape(better.shape + (1,) * (new.ndim - 2)), new, old)
            for new, old in zip(tried, best, strict=True)
        )
    codes, scale, zero, _ = best
    return Int4Weight(codes.astype(np.uint8), scale, None if symmetric else zero.astype(np.uint8), inputs)


def _coded(
    blocks: NDArray[np.float32], low: NDArray[np.float32], scale: NDArray[np.float32], symmetric: bool
) -> tuple[NDArray[np.float32], ...]:
    """Codes [o, n, 32], scales, zero points and squared errors [o, n] of `blocks` with a range that begins at `low`."""
    zero = np.full_like(scale, CENTRE) if symmetric else np.rint(-low / scale).clip(0, LEVELS)
    codes = (np.rint(blocks / scale[..., None]) + zero[..., None]).clip(0, LEVELS)
    error = np.square((codes - zero[..., None]) * scale[..., None] - blocks).sum(axis=2)
    return codes, scale, zero, error


def _pairs(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Neighbours along the last axis in one byte."""
    return np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)
