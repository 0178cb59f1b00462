"""A session as one text: each query, the start query too, followed by the separator `<eos>`."""

from __future__ import annotations

import torch
from torch import Tensor

from mtn_edge.tokenizer import EOS, PAD

SEPARATOR = EOS


def with_separators(source: Tensor) -> Tensor:
    """`source` [b, q, t] to [b, q, t + 1] with a separator for each query, after padding that does not count."""
    ends = torch.where(source[:, :, :1] != PAD, SEPARATOR, PAD)
    return torch.cat([source, ends], dim=2)
