"""A network that computes what its graphs would with some groups quantized, in PyTorch and in batches.

Weights are those that the integers stand for. Inputs of int8 products are rounded as the runtime rounds them, with
their own range or with a fixed one; inputs of int4 products are left as they are (the runtime rounds them in blocks of
32, which changes a product less than the weights do).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.weights import graph_name, table_factor
from mtn_edge.config import ModelConfig
from mtn_edge.models.build import Network, narrowed
from mtn_edge.models.tail_lstm import TailLSTM
from quantize.fake import fake_activation
from quantize.int4 import quantize_blocks
from quantize.int8 import Activation, quantize_weight
from quantize.plan import Plan, can_be_quantized, group_of

TABLE = "embedding.weight"
"""The tied table, by the name that the network and the graphs have for it."""


def simulated(
    model: Network, config: ModelConfig, plan: Plan, activations: Mapping[str, Activation] | None = None
) -> Network:
    """A copy of `model` with the groups of `plan` quantized.

    Args:
        model: the network.
        config: its sizes.
        plan: the precision of each group.
        activations: fixed ranges of the inputs of int8 products, by the matrix in the graphs; None for their own.
    """
    other = copy.deepcopy(model)
    with torch.no_grad():
        for name, tensor in other.named_parameters():
            precision = plan[group_of(graph_name(name, config))]
            matrix = tensor.numpy().T if tensor.ndim == 2 else tensor.numpy().reshape(-1, tensor.shape[-1])
            if precision == "fp32" or tensor.ndim < 2 or not can_be_quantized(matrix.shape):
                continue
            quantize: Callable[..., Any] = quantize_blocks if precision == "int4" else quantize_weight
            values = quantize(name, np.ascontiguousarray(matrix)).dequantize()
            tensor.copy_(torch.from_numpy(values.T.copy() if tensor.ndim == 2 else values.reshape(tensor.shape)))
    for name, module in other.named_modules():
        tensor_name = graph_name(f"{name}.weight", config)
        if isinstance(module, nn.Linear) and plan[group_of(tensor_name)] == "int8":
            module.register_forward_pre_hook(_before((activations or {}).get(tensor_name)))
    if plan["embedding"] == "int8" and not isinstance(other, TailLSTM):
        given = _for_network(activations[TABLE], config) if activations else None
        object.__setattr__(other, "logits", MethodType(_tied(given), other))
    return other


def _for_network(activation: Activation, config: ModelConfig) -> Activation:
    return Activation(activation.scale * table_factor(config), activation.zero_point)


def _before(activation: Activation | None) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # noqa: ARG001
        return (_rounded(inputs[0], activation), *inputs[1:])

    return hook


def _tied(activation: Activation | None) -> Callable[[Any, Tensor], Tensor]:
    def logits(self: Any, states: Tensor) -> Tensor:
        return F.linear(_rounded(narrowed(self, states), activation), self.embedding.weight)

    return logits


def _rounded(x: Tensor, activation: Activation | None) -> Tensor:
    if activation is None:
        return fake_activation(x)
    levels = ((x / activation.scale).round() + activation.zero_point).clamp(0, 255)
    return (levels - activation.zero_point) * activation.scale
