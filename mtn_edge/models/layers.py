"""Transformer layers written as Linear and scaled dot-product attention (Vaswani et al. 2017, sections 3.1-3.3).

Shapes: b batch, t tokens (or queries) of the input, p earlier ones in a cache, m tokens of the memory, d width,
h heads, e width of a head (d/h, before any heads are pruned), n real tokens of a batch that is packed (see `Packing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.layer_sizes import LayerSize

Norm = Literal["pre", "post"]
Mixer = Literal["attention", "ssru"]
KeysValues = tuple[Tensor, Tensor]
"""Keys and values of one attention, each [b, h, t, e]."""


class Packing:
    """Where the real tokens of padded rows lie.

    Queries of a session differ much in length, so padded rows are padding for the greater part. Everything but
    attention treats each token by itself, and does so on real tokens only, [n, d]; attention alone sees rows [b, t, d].

    Args:
        real: [b, t], True where there is a token.
    """

    def __init__(self, real: Tensor) -> None:
        self.real = real
        self._slots = real.flatten().nonzero()[:, 0]  # [n]

    @classmethod
    def from_counts(cls, counts: Tensor) -> Packing:
        """Rows with `counts` [b] tokens each, the padding last."""
        return cls(torch.arange(int(counts.max()), device=counts.device) < counts[:, None])

    @property
    def rows(self) -> Tensor:
        """[n] the row of each token."""
        return self._slots // self.real.shape[1]

    @property
    def columns(self) -> Tensor:
        """[n] the place of each token in its row."""
        return self._slots % self.real.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """[b, t, ...] to [n, ...]."""
        return padded.flatten(0, 1).index_select(0, self._slots)

    def pad(self, packed: Tensor) -> Tensor:
        """[n, ...] to [b, t, ...], zero where there is no token."""
        b, t = self.real.shape
        empty = packed.new_zeros(b * t, *packed.shape[1:])
        return empty.index_copy(0, self._slots, packed).view(b, t, *packed.shape[1:])


class SelfAttention(nn.Module):
    """Multi-head self-attention with an optional cache of earlier keys and values."""

    def __init__(self, *, d_model: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * heads * head_width)
        self.out = nn.Linear(heads * head_width, d_model)

    def forward(
        self, x: Tensor, *, mask: Tensor | None, past: KeysValues | None = None, packing: Packing | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Attends from each of `x` [b, t, d] to `past` and `x`.

        Args:
            x: the inputs; [n, d] with `packing`.
            mask: True where attention is allowed, broadcast to [b, h, t, p + t]; None allows all.
            past: keys and values [b, h, p, e] of earlier inputs.
            packing: where the inputs lie in rows [b, t], when they are packed.

        Returns:
            The outputs, shaped as `x`, and the keys and values [b, h, p + t, e] to pass on as `past`.
        """
        qkv = self.qkv(x) if packing is None else packing.pad(self.qkv(x))
        query, key, value = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        attended = join_heads(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))
        return self.out(attended if packing is None else packing.pack(attended)), (key, value)


class CrossAttention(nn.Module):
    """Multi-head attention to a memory whose keys and values are computed once."""

    def __init__(self, *, d_model: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, heads * head_width)
        self.kv = nn.Linear(d_model, 2 * heads * head_width)
        self.out = nn.Linear(heads * head_width, d_model)

    def keys_values(self, memory: Tensor, *, packing: Packing | None = None) -> KeysValues:
        """Keys and values [b, h, m, e] of `memory` [b, m, d], or [n, d] with `packing`."""
        kv = self.kv(memory) if packing is None else packing.pad(self.kv(memory))
        key, value = (split_heads(part, self.heads) for part in kv.chunk(2, dim=-1))
        return key, value

    def forward(
        self, x: Tensor, keys_values: KeysValues, *, bias: Tensor | None, packing: Packing | None = None
    ) -> Tensor:
        """Attends from `x` [b, t, d], or [n, d] with `packing`, to the memory.

        `bias` is broadcast to [b, h, t, m]: added to the scores, or True where attention is allowed; None allows all.
        """
        query = self.query(x) if packing is None else packing.pad(self.query(x))
        attended = join_heads(
            F.scaled_dot_product_attention(split_heads(query, self.heads), *keys_values, attn_mask=bias)
        )
        return self.out(attended if packing is None else packing.pack(attended))  # type: ignore[no-any-return]


class SSRU(nn.Module):
    """Simpler simple recurrent unit, in place of a decoder's self-attention (Kim et al. 2019, section 2.2).

    f_t = sigmoid(W_f x_t + b), c_t = f_t c_(t-1) + (1 - f_t) W x_t, output ReLU(c_t): one vector is all that is kept of
    the tokens before.
    """

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.forget = nn.Linear(d_model, d_model)
        self.candidate = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, *, past: Tensor | None, packing: Packing | None = None) -> tuple[Tensor, Tensor]:
        """Runs over `x` [b, t, d], or [n, d] with `packing`, from the cell `past` [b, d] (None: zeros).

        Returns:
            The outputs, shaped as `x`, and the last cell [b, d].
        """
        forget, candidate = torch.sigmoid(self.forget(x)), self.candidate(x)
        added = (1 - forget) * candidate
        if packing is not None:
            forget, added = packing.pad(forget), packing.pad(added)
        cell = torch.zeros_like(added[:, 0]) if past is None else past
        cells = []
        for gate, new in zip(forget.unbind(1), added.unbind(1), strict=True):
            cell = gate * cell + new
            cells.append(cell)
        outputs = F.relu(torch.stack(cells, dim=1))
        return outputs if packing is None else packing.pack(outputs), cell


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

    def __init__(self, *, d_model: int, size: LayerSize, head_width: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.attention = SelfAttention(d_model=d_model, heads=size.heads, head_width=head_width)
        self.feed_forward = FeedForward(d_model=d_model, ffn=size.ffn)
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, *, mask: Tensor | None, past: KeysValues | None = None, packing: Packing | None = None
    ) -> tuple[Tensor, KeysValues]:
        """`x` to outputs of its shape, and the keys and values to pass on as `past` (see `SelfAttention`)."""
        attended, keys_values = self.attention(
            self.attention_norm(x) if self.norm == "pre" else x, mask=mask, past=past, packing=packing
        )
        x = add(x, self.dropout(attended), self.attention_norm, self.norm)
        changed = self.feed_forward(self.feed_forward_norm(x) if self.norm == "pre" else x)
        return add(x, self.dropout(changed), self.feed_forward_norm, self.norm), keys_values


class DecoderLayer(nn.Module):
    """Self-attention (or an SSRU), cross-attention and feed-forward, each with a residual and a normalisation."""

    def __init__(
        self,
        *,
        d_model: int,
        size: LayerSize,
        memory_heads: int,
        head_width: int,
        norm: Norm,
        dropout: float,
        mixer: Mixer = "attention",
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention: SelfAttention | SSRU = (
            SelfAttention(d_model=d_model, heads=size.heads, head_width=head_width)
            if mixer == "attention"
            else SSRU(d_model=d_model)
        )
        self.cross_attention = CrossAttention(d_model=d_model, heads=memory_heads, head_width=head_width)
        self.feed_forward = FeedForward(d_model=d_model, ffn=size.ffn)
        self.attention_norm = nn.LayerNorm(d_model)
        self.cross_attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    @property
    def kept(self) -> int:
        """How many tensors of the tokens before are handed on."""
        return 2 if isinstance(self.attention, SelfAttention) else 1

    def mix(
        self, x: Tensor, *, mask: Tensor | None, past: Sequence[Tensor] | None = None, packing: Packing | None = None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The first block: mixes the tokens written so far.

        Args:
            x: the inputs [b, t, d]; [n, d] with `packing`.
            mask: see `SelfAttention`; an SSRU always runs from left to right.
            past: what was returned for the inputs before: keys and values [b, h, p, e], or one cell [b, d].
            packing: where the inputs lie in rows [b, t], when they are packed.

        Returns:
            The outputs, shaped as `x`, and what to pass on as `past`.
        """
        inner = self.attention_norm(x) if self.norm == "pre" else x
        kept: Sequence[Tensor]
        if isinstance(self.attention, SelfAttention):
            keys_values = None if past is None else (past[0], past[1])
            mixed, kept = self.attention(inner, mask=mask, past=keys_values, packing=packing)
        else:
            mixed, cell = self.attention(inner, past=None if past is None else past[0], packing=packing)
            kept = (cell,)
        return add(x, self.dropout(mixed), self.attention_norm, self.norm), kept

    def attend_to_memory(
        self, x: Tensor, memory: KeysValues, *, bias: Tensor | None, packing: Packing | None = None
    ) -> Tensor:
        """The cross-attention and feed-forward blocks: `x` to outputs of its shape (`bias`: see `CrossAttention`)."""
        attended = self.cross_attention(
            self.cross_attention_norm(x) if self.norm == "pre" else x, memory, bias=bias, packing=packing
        )
        x = add(x, self.dropout(attended), self.cross_attention_norm, self.norm)
        changed = self.feed_forward(self.feed_forward_norm(x) if self.norm == "pre" else x)
        return add(x, self.dropout(changed), self.feed_forward_norm, self.norm)


def two_before(embedded: Tensor, columns: Tensor) -> Tensor:
    """The embeddings of the two tokens before each: [n, d] to [n, 2 d], zeros before the start of a row.

    A causal convolution over them at the foot of a decoder (`decoder_convolution`, zero at first) shows each token
    what stands before it, which attention would have to learn to find. So et al. 2021 (Primer) have such convolutions,
    one for each channel, inside the attention.

    Args:
        embedded: packed tokens, scaled.
        columns: [n] the place of each in its row (`Packing.columns`).
    """
    parts = []
    for back in (1, 2):
        shifted = F.pad(embedded, (0, 0, back, 0))[: len(embedded)]
        parts.append(shifted * (columns >= back)[:, None])
    return torch.cat(parts, dim=1)


def final_norm(d_model: int, norm: Norm) -> nn.Module:
    """What follows a stack of layers: pre-norm layers leave their sum unnormalised, post-norm layers do not."""
    return nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()


def add(x: Tensor, change: Tensor, layer_norm: nn.Module, norm: Norm) -> Tensor:
    """The residual sum, normalised when the normalisation comes after it."""
    return x + change if norm == "pre" else layer_norm(x + change)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[b, t, h e] to [b, h, t, e]."""
    b, t, width = x.shape
    return x.view(b, t, heads, width // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[b, h, t, e] to [b, t, h e]."""
    b, h, t, e = x.shape
    return x.transpose(1, 2).reshape(b, t, h * e)


def init_weights(module: nn.Module) -> None:
    """How linear maps and tables begin (for `nn.Module.apply`): a table scaled by √d then gives numbers of size one."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
