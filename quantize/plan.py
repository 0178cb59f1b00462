"""Which group of tensors gets which precision.

The matrices of a network are named by where they stand: `query_layers.0.feed_forward.up.weight` belongs to the query
encoder. Matrices of a group share a precision; norms, biases and positions are vectors or tables that are added, and
the gate of the fusion is a few numbers: they cost next to nothing and stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quantize.int4 import Int4Weight, quantize_blocks
from quantize.int8 import Activation, Int8Weight, quantize_weight

Precision = Literal["int4", "int8", "fp32"]
PRECISIONS: tuple[Precision, ...] = ("int4", "int8", "fp32")
"""From the smallest to the largest."""
Weight = NDArray[np.float32] | Int8Weight | Int4Weight
Weights = dict[str, Weight]
"""Tensors by name: matrices [i, o] as float32, int8 or int4, everything else float32."""
Plan = Mapping[str, Precision]
"""The precision of each group."""

GROUPS = {
    "embedding": ("embedding.", "embedding_up.", "embedding_down."),
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
WIDE = ("embedding", "output")
"""Groups that get int8 where four bits are asked for. They meet the whole vocabulary: with eight rows the int8 product
is twice as fast as the one of blocks, and as a tied table is read by rows too, four bits would need a second operator
that unpacks them."""


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
    """The same precision for the matrices of all groups; those of `WIDE` get int8 at least, those of `KEPT` float32."""
    plan: dict[str, Precision] = dict.fromkeys(GROUPS, precision)
    if precision == "int4":
        plan |= dict.fromkeys(WIDE, "int8")
    return plan | dict.fromkeys(KEPT, "fp32")


def apply_plan(
    tensors: Mapping[str, NDArray[np.float32]], plan: Plan, activations: Mapping[str, Activation] | None = None
) -> Weights:
    """`tensors` with the matrices of the groups of `plan` quantized.

    A matrix with a single row (the query projection by position: one weight a position) stays float32.

    Args:
        tensors: as `export.weights.graph_tensors` names them.
        plan: the precision of each group.
        activations: how the inputs of int8 matrices are quantized, by the matrix; inputs of those that are not named
            have the range of each as it comes.

    Raises:
        UserError: a matrix cannot be quantized (see `require_weight`).
        ValueError: four bits for a group of `WIDE`.
    """
    if any(plan.get(group) == "int4" for group in WIDE):
        raise ValueError(f"the groups {' and '.join(WIDE)} have no four-bit form")
    weights: Weights = {}
    for name, tensor in tensors.items():
        match plan[group_of(name)] if can_be_quantized(tensor.shape) else "fp32":
            case "int8":
                weight = quantize_weight(name, tensor)
                weights[name] = weight if activations is None else replace(weight, activation=activations.get(name))
            case "int4":
                weights[name] = quantize_blocks(name, tensor)
            case _:
                weights[name] = tensor
    return weights


def precision_of(weights: Weights) -> dict[str, Precision]:
    """What each group that occurs in `weights` really holds: the largest precision of its tensors."""
    found: dict[str, Precision] = {}
    for name, weight in weights.items():
        group = group_of(name)
        found[group] = max(found.get(group, "int4"), kind_of(weight), key=PRECISIONS.index)
    return found


def bytes_of(weights: Weights) -> dict[str, int]:
    """Bytes of each group that occurs in `weights`."""
    total: dict[str, int] = {}
    for name, weight in weights.items():
        total[group_of(name)] = total.get(group_of(name), 0) + weight.nbytes
    return total


def kind_of(weight: Weight) -> Precision:
    """The precision of one tensor."""
    if isinstance(weight, Int4Weight):
        return "int4"
    return "int8" if isinstance(weight, Int8Weight) else "fp32"


def shape_of(weight: Weight) -> tuple[int, ...]:
    """The shape of a tensor, whatever it is stored as."""
    if isinstance(weight, Int4Weight):
        return weight.inputs, len(weight.scale)
    return weight.values.shape if isinstance(weight, Int8Weight) else weight.shape


def can_be_quantized(shape: Sequence[int]) -> bool:
    """Whether a tensor of this shape can be: it is a matrix of more than one row."""
    return len(shape) == 2 and shape[0] > 1
