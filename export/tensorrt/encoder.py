"""The encoder engine's network: a batch of whole sessions to what the search reads of them.

It is `MTN._refine` for decoding. Sessions come with each request, so that a server keeps none: a session is some
queries of some tokens, and encoding it anew costs a GPU less than keeping it would cost a server.

Shapes: B sessions, Q queries of the longest one with its start query, T token positions of a query, M = Q T (or T,
where the decoder reads the last query alone), L decoder layers with weights of their own, d width, h heads of the
cross-attention, e width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from export.tensorrt.batch import MEMORY
from export.tensorrt.blocks import HIDDEN, at, bound, encoder_layer
from mtn_edge.models.layers import DecoderLayer, EncoderLayer
from mtn_edge.models.mtn import MTN
from mtn_edge.tokenizer import PAD

INPUTS = ("queries",)
OUTPUTS = MEMORY


class EncoderNetwork(nn.Module):
    """Encodes sessions.

    Args:
        model: an MTN of two levels, in evaluation mode.
    """

    def __init__(self, model: MTN) -> None:
        super().__init__()
        self.model = model

    def forward(self, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Encodes a batch.

        Args:
            queries: int64 [B, Q, T], tokens of the start query and of each query, padded with `<pad>` at the end.

        Returns:
            Keys and values [B, L, h, M, e] of the refined tokens, the bias [B, h, M] on attention to them (by the age
            of their query; no padding is seen), and the session's state [B, d].
        """
        model = self.model
        b, q, t = queries.shape
        real = queries != PAD  # [B, Q, T]
        dtype = model.embedding.weight.dtype
        hidden = bound(real, dtype).reshape(b * q, 1, 1, t)
        embedded = model.embedding(queries) * math.sqrt(model.d_model) + model.query_positions.weight[:t]
        y = self._read(embedded.reshape(b * q, t, -1), hidden)  # [B Q, T, d]
        states = self._encode_sessions(y.reshape(b, q, t, -1) * real[..., None].to(dtype))  # [B, Q, d]
        refined = y + states.reshape(b * q, 1, -1)
        if model.refinement == "encoder":
            refined = self._read(refined, hidden)
        refined = refined.reshape(b, q, t, -1)
        newest = real[:, :, 0].sum(dim=1) - 1  # [B]
        state = at(states, newest)  # [B, d]
        age = newest[:, None] - torch.arange(q, device=queries.device)  # [B, Q]
        if model.recency is None:
            refined, real, age = at(refined, newest)[:, None], at(real, newest)[:, None], age[:, :1] * 0
        bias = self._bias(real, age.clamp(min=0))
        keys, values = self._memory(refined.reshape(b, -1, model.d_model))
        return keys, values, bias, state

    def _read(self, x: Tensor, hidden: Tensor) -> Tensor:
        """The query encoder's layers on [B Q, T, d]."""
        for layer in cast(Iterable[EncoderLayer], self.model.query_layers):
            x = encoder_layer(layer, x, hidden)
        return self.model.query_norm(x)  # type: ignore[no-any-return]

    def _encode_sessions(self, y: Tensor) -> Tensor:
        """The query projection and the masked session encoder: Y [B, Q, T, d], zero where padded, to S [B, Q, d]."""
        model = self.model
        b, q, t, d = y.shape
        weight = model.projection.weight[:t]  # [T], or [T, d, d]
        is_vector = weight.dim() == 1
        x = (y * weight[:, None]).sum(dim=2) if is_vector else y.reshape(b, q, t * d) @ weight.reshape(t * d, d)
        x = x + model.session_positions.weight[:q]
        number = torch.arange(q, device=y.device)
        causal = bound(number[:, None] >= number, y.dtype)  # [Q, Q]
        for layer in cast(Iterable[EncoderLayer], model.session_layers):
            x = encoder_layer(layer, x, causal)
        return model.session_norm(x)  # type: ignore[no-any-return]

    def _bias(self, real: Tensor, age: Tensor) -> Tensor:
        """[B, h, M] for `real` [B, Q, T], from the `age` [B, Q] of each query."""
        model = self.model
        hidden = bound(real, model.embedding.weight.dtype)[:, None]  # [B, 1, Q, T]
        if model.recency is None:
            return hidden.expand(-1, model.memory_heads, -1, -1).flatten(2)
        by_head = model.recency(age).transpose(1, 2)[..., None]  # [B, h, Q, 1]
        return (by_head + hidden).clamp(min=HIDDEN).flatten(2)  # type: ignore[no-any-return]

    def _memory(self, refined: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, L, h, M, e] of `refined` [B, M, d]."""
        layers = cast(Iterable[DecoderLayer], self.model.decoder_layers)
        pairs = [layer.cross_attention.keys_values(refined) for layer in layers]
        return torch.stack([keys for keys, _ in pairs], dim=1), torch.stack([values for _, values in pairs], dim=1)
