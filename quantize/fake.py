"""Quantization that is only played: numbers are rounded to what eight bits can hold and stay floats.

Gradients pass the rounding as if it were not there (straight-through estimator, Bengio et al. 2013, section 4). Ranges
always hold what is rounded, so that nothing is clipped and no gradient has to be stopped.

Shapes: i inputs, o outputs, n rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quantize.int8 import LEVELS

ROWS = 8
"""Rows that share a range: those of a search with a beam of eight, which the runtime quantizes together."""


def fake_weight(weight: Tensor) -> Tensor:
    """`weight` [o, i] in symmetric int8 with one scale for each output, as `quantize.int8` has it."""
    odd = weight.shape[1] % 2
    pairs = torch.nn.functional.pad(weight.detach(), (0, odd)).reshape(len(weight), -1, 2)  # [o, i / 2, 2]
    reach = torch.maximum(pairs.clamp(min=0).sum(dim=2), (-pairs).clamp(min=0).sum(dim=2))
    scale = (reach.amax(dim=1, keepdim=True) / LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
    return _straight(weight, (weight.detach() / scale).round() * scale)


def fake_activation(x: Tensor) -> Tensor:
    """`x` [..., i] in unsigned 8 bits, each `ROWS` rows with a range of their own that holds zero."""
    flat = x.detach().reshape(-1, x.shape[-1])
    missing = -len(flat) % ROWS
    groups = torch.nn.functional.pad(flat, (0, 0, 0, missing)).view(-1, ROWS * x.shape[-1])
    low, high = groups.amin(dim=1, keepdim=True).clamp(max=0), groups.amax(dim=1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).tiny)
    zero = (-low / scale).round()
    rounded = ((groups / scale).round() + zero).clamp(0, 255) - zero
    values = (rounded * scale).view(-1, x.shape[-1])[: len(flat)]
    return _straight(x, values.view(x.shape))


def _straight(x: Tensor, value: Tensor) -> Tensor:
    """`value`, with the gradient of `x`."""
    return x + (value - x).detach()
