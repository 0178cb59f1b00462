"""Transformer layers written as Linear and scaled dot-product attention (Vaswani et al. 2017, sections 3.1-3.3).

Shapes: b batch, t tokens (or queries) of the input, p earlier ones in a cache, m tokens of the memory, d width,
h heads, e = d/h width of a head.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Norm = Literal["pre", "post"]
KeysValues = tuple[Tensor, Tensor]
"""Keys and values of one attention, each [b, h, t, e]."""


class SelfAttention(nn.Module):
    """Multi-head self-attention with an optional cache of earlier keys and values."""

    def __init__(self, *, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, *, mask: Tensor | None, past: KeysValues | None = None) -> tuple[Tensor, KeysValues]:
        """Attends from each of `x` [b, t, d] to `past` and `x`.

        Args:
            x: the inputs.
            mask: True where attention is allowed, broadcast to [b, h, t, p + t]; None allows all.
            past: keys and values [b, h, p, e] of earlier inputs.

        Returns:
            The outputs [b, t, d], and the keys and values [b, h, p + t, e] to pass on as `past`.
        """
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(join_heads(attended)), (key, value)


class CrossAttention(nn.Module):
    """Multi-head attention to a memory whose keys and values are computed once."""

    def __init__(self, *, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.kv = nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Keys and values [b, h, m, e] of `memory` [b, m, d]."""
        key, value = (split_heads(part, self.heads) for part in self.kv(memory).chunk(2, dim=-1))
        return key, value

    def forward(self, x: Tensor, keys_values: KeysValues, *, mask: Tensor | None) -> Tensor:
        """Attends from `x` [b, t, d] to the memory; `mask` [b, 1, t, m] is True where allowed."""
        query = split_heads(self.query(x), self.heads)
        return self.out(join_heads(F.scaled_dot_product_attention(query, *keys_values, attn_mask=mask)))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between."""

    def __init__(self, *, d_model: int, ffn: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, ffn)
        self.down = nn.Linear(ffn, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, d] to [b, t, d]."""
        return self.down(F.relu(self.up(x)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with a residual and a layer normalisation before or after it."""

    def __init__(self, *, d_model: int, heads: int, ffn: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.attention = SelfAttention(d_model=d_model, heads=heads)
        self.feed_forward = FeedForward(d_model=d_model, ffn=ffn)
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, mask: Tensor | None, past: KeysValues | None = None) -> tuple[Tensor, KeysValues]:
        """[b, t, d] to [b, t, d], and the keys and values to pass on as `past` (see `SelfAttention`)."""
        attended, keys_values = self.attention(
            self.attention_norm(x) if self.norm == "pre" else x, mask=mask, past=past
        )
        x = add(x, self.dropout(attended), self.attention_norm, self.norm)
        changed = self.feed_forward(self.feed_forward_norm(x) if self.norm == "pre" else x)
        return add(x, self.dropout(changed), self.feed_forward_norm, self.norm), keys_values


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, each with a residual and a layer normalisation."""

    def __init__(self, *, d_model: int, heads: int, ffn: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.attention = SelfAttention(d_model=d_model, heads=heads)
        self.cross_attention = CrossAttention(d_model=d_model, heads=heads)
        self.feed_forward = FeedForward(d_model=d_model, ffn=ffn)
        self.attention_norm = nn.LayerNorm(d_model)
        self.cross_attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def attend_to_self(
        self, x: Tensor, *, mask: Tensor | None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """The self-attention block: [b, t, d] to [b, t, d], and its keys and values."""
        attended, keys_values = self.attention(
            self.attention_norm(x) if self.norm == "pre" else x, mask=mask, past=past
        )
        return add(x, self.dropout(attended), self.attention_norm, self.norm), keys_values

    def attend_to_memory(self, x: Tensor, memory: KeysValues, *, mask: Tensor | None) -> Tensor:
        """The cross-attention and feed-forward blocks: [b, t, d] to [b, t, d]."""
        attended = self.cross_attention(self.cross_attention_norm(x) if self.norm == "pre" else x, memory, mask=mask)
        x = add(x, self.dropout(attended), self.cross_attention_norm, self.norm)
        changed = self.feed_forward(self.feed_forward_norm(x) if self.norm == "pre" else x)
        return add(x, self.dropout(changed), self.feed_forward_norm, self.norm)


def final_norm(d_model: int, norm: Norm) -> nn.Module:
    """What follows a stack of layers: pre-norm layers leave their sum unnormalised, post-norm layers do not."""
    return nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()


def add(x: Tensor, change: Tensor, layer_norm: nn.Module, norm: Norm) -> Tensor:
    """The residual sum, normalised when the normalisation comes after it."""
    return x + change if norm == "pre" else layer_norm(x + change)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[b, t, d] to [b, h, t, e]."""
    b, t, d = x.shape
    return x.view(b, t, heads, d // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[b, h, t, e] to [b, t, d]."""
    b, h, t, e = x.shape
    return x.transpose(1, 2).reshape(b, t, h * e)
