"""The layers of an MTN as plain products, softmax and sums: what TensorRT fuses best, and takes without reservations.

The weights are those of `mtn_edge.models.layers`. What may not be seen gets a finite bound instead of a mask, one that
half precision can hold.

Shapes: b batch, t tokens (or queries, or hypotheses), n what is attended to, d width, h heads, e width of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mtn_edge.models.layers import (
    CrossAttention,
    DecoderLayer,
    EncoderLayer,
    SelfAttention,
    add,
    join_heads,
    split_heads,
)

HIDDEN = -3e4
"""Added to the attention score of what may not be seen: e to this power is 0 in float32 and in float16."""


def bound(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed, `HIDDEN` elsewhere."""
    return (~allowed).to(dtype) * HIDDEN


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Scaled dot-product attention.

    Args:
        query: [b, h, t, e].
        keys: [b, h, n, e].
        values: [b, h, n, e].
        bias: broadcast to [b, h, t, n], added to the scores.

    Returns:
        [b, h, t, e].
    """
    scores = query @ keys.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1])) + bias
    return torch.softmax(scores, dim=-1) @ values


def queries_keys_values(attention: SelfAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[b, t, d] to queries, keys and values [b, h, t, e]."""
    query, key, value = (split_heads(part, attention.heads) for part in attention.qkv(x).chunk(3, dim=-1))
    return query, key, value


def before(layer: EncoderLayer | DecoderLayer, norm: nn.Module, x: Tensor) -> Tensor:
    """What a sub-layer reads: the normalised stream with pre-norm layers."""
    return norm(x) if layer.norm == "pre" else x


def feed_forward(layer: EncoderLayer | DecoderLayer, x: Tensor) -> Tensor:
    """The feed-forward block on [b, t, d]."""
    changed = layer.feed_forward(before(layer, layer.feed_forward_norm, x))
    return add(x, changed, layer.feed_forward_norm, layer.norm)


def encoder_layer(layer: EncoderLayer, x: Tensor, bias: Tensor) -> Tensor:
    """A layer of an encoder on [b, t, d]; `bias` is broadcast to [b, h, t, t]."""
    query, key, value = queries_keys_values(layer.attention, before(layer, layer.attention_norm, x))
    attended = layer.attention.out(join_heads(attend(query, key, value, bias)))
    return feed_forward(layer, add(x, attended, layer.attention_norm, layer.norm))


def memory_block(layer: DecoderLayer, x: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """The cross-attention and feed-forward blocks of a decoder layer on [b, t, d].

    Args:
        layer: the layer.
        x: its inputs.
        keys: [b, h, n, e] of the memory.
        values: [b, h, n, e] of the memory.
        bias: broadcast to [b, h, t, n].
    """
    attention: CrossAttention = layer.cross_attention
    query = split_heads(attention.query(before(layer, layer.cross_attention_norm, x)), attention.heads)
    attended = attention.out(join_heads(attend(query, keys, values, bias)))
    return feed_forward(layer, add(x, attended, layer.cross_attention_norm, layer.norm))


def at(x: Tensor, place: Tensor) -> Tensor:
    """[b, n, ...] to [b, ...]: of each row the entry at `place` [b]."""
    index = place.reshape(-1, *[1] * (x.dim() - 1)).expand(-1, 1, *x.shape[2:])
    return torch.gather(x, 1, index)[:, 0]
