"""Single weights of the layers' matrices become zero, and what that gives: smaller downloads, and nothing faster here.

The smallest go (magnitude; gradient times weight was measured and is no better: docs/pruning.md), the same share of
each matrix, anywhere in it or two of every four neighbours (Mishra et al. 2021, arXiv 2104.08378). The four are
neighbours along the inputs, which a product sums over: TensorRT's sparse kernels want it so.

Shapes: o outputs, i inputs of a matrix.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mtn_edge.config import ModelConfig
from mtn_edge.errors import UserError
from mtn_edge.models.build import build
from mtn_edge.training.zeros import layer_matrices
from quantize.int8 import quantize_weight

TWO_OF_FOUR: Literal["2:4"] = "2:4"
Sparsity = float | Literal["2:4"]
"""The share of each matrix that becomes zero, or `2:4`."""
NO_GAIN = (
    "no gain on this runtime: ONNX Runtime's CPU kernels multiply zeros as they multiply other numbers, and a key "
    "press is none the faster for them"
)
_TENSORRT = {
    True: "every four neighbouring inputs have two zeros at least, as TensorRT's sparse kernels want it",
    False: "no gain either: TensorRT's sparse kernels want two zeros among every four neighbouring inputs (2:4)",
}


def parse_sparsity(text: str) -> Sparsity:
    """What `--sparsity` means.

    Raises:
        UserError: it is neither a share nor 2:4.
    """
    if text == TWO_OF_FOUR:
        return TWO_OF_FOUR
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise UserError(
            f"`--sparsity` is {text}, and it must be 2:4 or the share that becomes zero, above 0 and below 1",
            code="bad-setting",
            hint="give for example 0.5",
        )
    return share


def matrix_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """The shape [o, i] of each matrix that can lose weights."""
    with torch.device("meta"):
        found = layer_matrices(build(config))
    return {name: (parameter.shape[0], parameter.shape[1]) for name, parameter in found.items()}


def require_some(config: ModelConfig, sparsity: Sparsity) -> None:
    """Raises a `UserError` when a share is so small that no matrix has a weight to lose."""
    shapes = matrix_shapes(config).values()
    if sparsity != TWO_OF_FOUR and not any(_part(shape, sparsity) for shape in shapes):
        raise UserError(
            f"`--sparsity {sparsity}` makes none of the weights zero: the largest of the {len(shapes)} matrices has "
            f"{max(map(math.prod, shapes)):,}",
            code="nothing-to-prune",
            hint="give a larger share",
        )


def zero_weights(
    config: ModelConfig, weights: Mapping[str, Tensor], sparsity: Sparsity, *, done: float = 1.0
) -> dict[str, Tensor]:
    """The tensors with the smallest weights of each matrix zero; what was zero before is among them.

    Args:
        config: the settings of the network.
        weights: its tensors.
        sparsity: how many in all.
        done: what part of that.

    Raises:
        UserError: it is so much that an output of a matrix would be left without any weight.
    """
    left = dict(weights)
    for name, shape in matrix_shapes(config).items():
        if sparsity == TWO_OF_FOUR:
            left[name] = _of_each_four(weights[name], math.floor(2 * done + 1e-9))
        else:
            left[name] = _smallest(name, weights[name], _part(shape, sparsity * done))
    return left


def _part(shape: tuple[int, int], share: float) -> int:
    return math.floor(math.prod(shape) * share + 1e-9)


def _smallest(name: str, weight: Tensor, count: int) -> Tensor:
    """`weight` with its `count` smallest entries zero, but for the largest of each output."""
    o, i = weight.shape
    if count > o * (i - 1):
        raise UserError(
            f"{count:,} of the {o * i:,} weights of `{name}` were to become zero, and {o * (i - 1):,} can at most: "
            "every output keeps one",
            code="bad-setting",
            hint="give a smaller share",
        )
    scores = weight.abs()
    scores[torch.arange(o), scores.argmax(1)] = math.inf
    gone = torch.zeros(o * i, dtype=torch.bool)
    gone[scores.flatten().argsort(stable=True)[:count]] = True
    return weight.masked_fill(gone.view(o, i), 0)


def _of_each_four(weight: Tensor, count: int) -> Tensor:
    """`weight` with the `count` smallest of every four neighbouring inputs zero; beyond the last input zeros count."""
    o, i = weight.shape
    groups = F.pad(weight.abs(), (0, -i % 4)).view(o, -1, 4)
    gone = torch.zeros_like(groups, dtype=torch.bool).scatter_(2, groups.argsort(dim=2, stable=True)[..., :count], True)
    return weight.masked_fill(gone.view(o, -1)[:, :i], 0)


def has_two_of_four(weight: Tensor) -> bool:
    """Whether every four neighbouring inputs of each output have two zeros at least."""
    groups = F.pad(weight, (0, -weight.shape[1] % 4)).view(len(weight), -1, 4)
    return bool(((groups != 0).sum(2) <= 2).all())


def describe_zeros(
    before: tuple[ModelConfig, Mapping[str, Tensor]], after: tuple[ModelConfig, Mapping[str, Tensor]]
) -> dict[str, Any]:
    """What the zeros of a network give, and what they do not.

    Args:
        before: settings and tensors before pruning.
        after: the same of what is left.
    """
    config, weights = after
    matrices = [weights[name] for name in matrix_shapes(config)]
    count = sum(matrix.numel() for matrix in matrices)
    fits = all(map(has_two_of_four, matrices))
    sizes = {"before": _sizes(*before), "after": _sizes(*after)}
    return {
        "weights": count,
        "zeros": round(sum(int((matrix == 0).sum()) for matrix in matrices) / count, 4),
        "two_of_four": fits,
        "int8_bytes": {when: plain for when, (plain, _) in sizes.items()},
        "int8_deflated_bytes": {when: deflated for when, (_, deflated) in sizes.items()},
        "onnxruntime": NO_GAIN,
        "tensorrt": _TENSORRT[fits],
    }


def _sizes(config: ModelConfig, weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """Bytes of a network's weights, matrices and table as int8 and the rest as float32: as they are, and deflated."""
    raw = b"".join(_as_stored(config, weights))
    return len(raw), len(zlib.compress(raw))


def _as_stored(config: ModelConfig, weights: Mapping[str, Tensor]) -> Iterable[bytes]:
    matrices = matrix_shapes(config)
    for name, tensor in weights.items():
        values = tensor.numpy()
        if name in matrices or name.startswith(("embedding", "output.weight")):
            if values.any():
                quantized = quantize_weight(name, np.ascontiguousarray(values.T))
                yield np.ascontiguousarray(quantized.values.T).tobytes()
                yield quantized.scale.tobytes()
            else:
                yield bytes(values.size)  # never trained
        else:
            yield values.tobytes()
