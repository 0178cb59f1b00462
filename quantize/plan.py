"""Which group of tensors gets which precision.

The matrices of a network are named by where they stand: `query_layers.0.feed_forward.up.weight` belongs to the query
encoder. Matrices of a group share a precision; norms, biases and positions are vectors or tables that are added, and
the gate of the fusion is a few numbers: they cost next to nothing and stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quantize.int8 import Int8Weight, quantize_weight

Precision = Literal["int8", "fp32"]
Weights = dict[str, NDArray[np.float32] | Int8Weight]
"""Tensors by name: matrices [i, o] as float32 or int8, everything else float32."""

GROUPS = {
    "embedding": ("embedding.",),
    "query_encoder": ("query_layers.", "query_encoder.", "encoder_layers.", "encoder.", "context."),
    "projection": ("projection.",),
    "session_encoder": ("session_layers.", "session_encoder."),
    "history": ("history.",),
    "memory": ("memory.", "bridge.", "output_session."),
    "decoder": (
        *("decoder_layers.", "decoder_convolution.", "decoder.", "lstm."),
        *("attention.", "combine.", "output.", "output_embedding."),
    ),
    "output": ("scores.",),
}
"""Groups of matrices, and how the names of their tensors begin."""
KEPT = ("norms", "biases", "positions", "gate")
"""Groups that stay float32."""


def group_of(name: str) -> str:
    """The group of the tensor `name`.

    Raises:
        ValueError: no group claims it.
    """
    if name.endswith(".bias") and "norm" not in name:
        return "biases"
    if "norm" in name:
        return "norms"
    if "_positions." in name:
        return "positions"
    if name.startswith("gate."):
        return "gate"
    for group, beginnings in GROUPS.items():
        if name.startswith(beginnings):
            return group
    raise ValueError(f"tensor `{name}` belongs to no group of {', '.join(GROUPS)}")


def uniform_plan(precision: Precision) -> dict[str, Precision]:
    """The same precision for the matrices of all groups; norms, biases and positions float32."""
    plan: dict[str, Precision] = dict.fromkeys(GROUPS, precision)
    return plan | dict.fromkeys(KEPT, "fp32")


def apply_plan(tensors: Mapping[str, NDArray[np.float32]], plan: Mapping[str, Precision]) -> Weights:
    """`tensors` with the matrices of the int8 groups of `plan` quantized.

    A matrix with a single row (the query projection by position: one weight a position) stays float32.

    Raises:
        UserError: a matrix cannot be quantized (see `quantize_weight`).
    """
    return {
        name: quantize_weight(name, tensor) if plan[group_of(name)] == "int8" and _is_matrix(tensor) else tensor
        for name, tensor in tensors.items()
    }


def precision_of(weights: Weights) -> dict[str, Precision]:
    """What each group that occurs in `weights` really holds: int8 when all its matrices are."""
    found: dict[str, Precision] = {}
    for name, weight in weights.items():
        group = group_of(name)
        is_int8 = isinstance(weight, Int8Weight) and found.get(group, "int8") == "int8"
        found[group] = "int8" if is_int8 else "fp32"
    return found


def _is_matrix(tensor: NDArray[np.float32]) -> bool:
    return tensor.ndim == 2 and tensor.shape[0] > 1
