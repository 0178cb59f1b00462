"""Weights that are zero stay zero: what pruning took out of a network must not grow back when it is trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mtn_edge.models.build import Network
from mtn_edge.models.tail_lstm import TailLSTM


def layer_matrices(model: Network) -> dict[str, nn.Parameter]:
    """The matrices [o, i] of a network's layers by name: no tables, no maps of a table, no vectors."""
    apart = {"embedding_up", "embedding_down", *(["output"] if isinstance(model, TailLSTM) else [])}
    return {
        f"{place}.{name}": parameter
        for place, module in model.named_modules()
        if not isinstance(module, nn.Embedding) and place not in apart
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim == 2
    }


def hold_zeros(model: Network, optimizer: torch.optim.Optimizer) -> None:
    """Makes every weight of the layers' matrices that is zero now zero again after each step of `optimizer`.

    Such weights have no gradient either, so that they take no part in the norm that gradients are scaled down to. A
    running mean of the weights (`average`) is exact about them: the mean of zeros is zero.
    """
    held = [(parameter, parameter.detach() == 0) for parameter in layer_matrices(model).values()]
    for parameter, gone in held:
        parameter.register_hook(lambda gradient, gone=gone: gradient.masked_fill(gone, 0))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def clear(*_: Any) -> None:
        for parameter, gone in held:
            parameter.masked_fill_(gone, 0)

    optimizer.register_step_post_hook(clear)
