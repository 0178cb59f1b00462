"""Multiresolution Transformer Network with two levels: tokens in queries, queries in sessions (arXiv 1908.10408).

Query encoder -> query projection -> masked session encoder -> refinement of the query's tokens -> one decoder.
The empty session is a query of its own, the single token `<bos>` at session position 0, so that the first query of a
session is predicted like every other.

Shapes: b batch, q queries of a session, t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or
`<eos>`), m tokens of the memory, d width, h heads, e = d/h, v vocabulary.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import ModelConfig
from mtn_edge.models.layers import DecoderLayer, EncoderLayer, KeysValues, Norm, final_norm
from mtn_edge.tokenizer import PAD


class SessionCache(NamedTuple):
    """What a session leaves behind for its next query and its next key press."""

    session: list[KeysValues]
    """Keys and values of the queries so far, [1, h, q, e] for each session layer."""
    memory: list[KeysValues]
    """Cross-attention keys and values, [1, h, m, e] for each decoder layer."""


class MTN(nn.Module):
    """The two-level network.

    Training takes all pairs of a session in one pass (`forward`). Decoding appends one query at a time (`append`), each
    at the price of one query encoding, and then costs the decoder alone (`step`).
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        heads: int,
        ffn: int,
        query_layers: int,
        session_layers: int,
        decoder_layers: int,
        max_tokens: int,
        max_queries: int,
        projection: Literal["position", "full"],
        memory: Literal["all", "last"],
        norm: Norm,
        dropout: float,
    ) -> None:
        super().__init__()
        layer = {"d_model": d_model, "heads": heads, "ffn": ffn, "norm": norm, "dropout": dropout}
        self.d_model, self.heads, self.max_tokens, self.max_queries = d_model, heads, max_tokens, max_queries
        self.memory = memory
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.query_positions = nn.Embedding(max_tokens, d_model)
        self.query_layers = nn.ModuleList(EncoderLayer(**layer) for _ in range(query_layers))  # type: ignore[arg-type]
        self.query_norm = final_norm(d_model, norm)
        self.projection: PositionProjection | FullProjection = (
            PositionProjection(max_tokens) if projection == "position" else FullProjection(max_tokens, d_model)
        )
        self.session_positions = nn.Embedding(max_queries + 1, d_model)
        self.session_layers = nn.ModuleList(EncoderLayer(**layer) for _ in range(session_layers))  # type: ignore[arg-type]
        self.session_norm = final_norm(d_model, norm)
        self.decoder_positions = nn.Embedding(max_tokens + 1, d_model)
        self.decoder_layers = nn.ModuleList(DecoderLayer(**layer) for _ in range(decoder_layers))  # type: ignore[arg-type]
        self.decoder_norm = final_norm(d_model, norm)
        self.dropout = nn.Dropout(dropout)
        self.apply(_init_weights)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Decoder states for every query of every session, each given the queries before it.

        Args:
            source: [b, q, t] tokens of the start query and of q_1 to q_(r-1), padded with `<pad>`.
            target_in: [b, q, u] `<bos>` and tokens of q_1 to q_r, padded.

        Returns:
            [b, q, u, d]; `logits` turns them (or some of them) into scores of the next token.
        """
        (b, q, t), u = source.shape, target_in.shape[2]
        refined, valid = self._refine(source)  # [b, q, t, d], [b, q, t]
        memory = refined.reshape(b, q * t, self.d_model)
        # Query i may look at the tokens of queries up to i ("all") or of query i ("last").
        order = torch.arange(q, device=source.device)
        sees = order[:, None] >= order if self.memory == "all" else order[:, None] == order  # [q, q]
        allowed = sees[None, :, None, :, None] & valid[:, None, None]  # [b, q, 1, q, t]
        memory_mask = allowed.expand(b, q, u, q, t).reshape(b, 1, q * u, q * t)
        causal = torch.ones(u, u, dtype=torch.bool, device=source.device).tril()

        x = self._embed(target_in, self.decoder_positions.weight[:u])  # [b, q, u, d]
        for layer in self._decoder:
            x, _ = layer.attend_to_self(x.reshape(b * q, u, self.d_model), mask=causal)
            keys_values = layer.cross_attention.keys_values(memory)
            x = layer.attend_to_memory(x.reshape(b, q * u, self.d_model), keys_values, mask=memory_mask)
        return self.decoder_norm(x).reshape(b, q, u, self.d_model)  # type: ignore[no-any-return]

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] decoder states to [..., v] scores; the table is the embedding's (tied)."""
        return F.linear(states, self.embedding.weight)

    def start(self, device: torch.device | None = None) -> SessionCache:
        """The cache of an empty session: nothing yet, not even the start query (append `<bos>` first)."""
        empty = torch.zeros(1, self.heads, 0, self.d_model // self.heads, device=device)
        return SessionCache([(empty, empty)] * len(self.session_layers), [(empty, empty)] * len(self.decoder_layers))

    def append(self, tokens: Tensor, cache: SessionCache) -> SessionCache:
        """Adds one query to a session (the cached form of `_refine`).

        Args:
            tokens: [t] tokens of the query, 1 to `max_tokens` of them.
            cache: the session so far, at most `max_queries` queries with the start query.
        """
        position = cache.session[0][0].shape[2]
        y = self._encode(tokens[None], mask=None)  # [1, t, d]
        x = (self.projection(y) + self.session_positions.weight[position])[:, None]  # [1, 1, d]
        session: list[KeysValues] = []
        for layer, past in zip(cast(list[EncoderLayer], self.session_layers), cache.session, strict=True):
            x, keys_values = layer(x, mask=None, past=past)
            session.append(keys_values)
        refined = y + self.session_norm(x)  # [1, t, d]
        memory: list[KeysValues] = []
        for block, (keys, values) in zip(self._decoder, cache.memory, strict=True):
            new_keys, new_values = block.cross_attention.keys_values(refined)
            if self.memory == "all":
                new_keys, new_values = torch.cat([keys, new_keys], dim=2), torch.cat([values, new_values], dim=2)
            memory.append((new_keys, new_values))
        return SessionCache(session, memory)

    def step(
        self, tokens: Tensor, position: int, memory: list[KeysValues], past: list[KeysValues] | None
    ) -> tuple[Tensor, list[KeysValues]]:
        """One decoder step for b hypotheses of one session.

        Args:
            tokens: [b] the last token of each hypothesis (`<bos>` at position 0).
            position: how many tokens each has before that one.
            memory: `SessionCache.memory`, shared by all hypotheses.
            past: what the previous step returned, reordered; None at position 0.

        Returns:
            Scores [b, v] of the next token and the keys and values [b, h, position + 1, e] of each layer.
        """
        x = self._embed(tokens[:, None], self.decoder_positions.weight[position : position + 1])  # [b, 1, d]
        b = tokens.shape[0]
        present: list[KeysValues] = []
        for number, layer in enumerate(self._decoder):
            x, keys_values = layer.attend_to_self(x, mask=None, past=past[number] if past is not None else None)
            present.append(keys_values)
            # All hypotheses share one memory: fold them into the time axis.
            x = layer.attend_to_memory(x.reshape(1, b, self.d_model), memory[number], mask=None).reshape(
                b, 1, self.d_model
            )
        return self.logits(self.decoder_norm(x)[:, 0]), present

    @property
    def _decoder(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder_layers))

    def _refine(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Z = Y + S for all queries of all sessions: [b, q, t] to [b, q, t, d], and which tokens are real [b, q, t]."""
        b, q, t = source.shape
        valid = source != PAD
        # A padded query would attend to nothing, which is NaN: let its first token be seen. Nobody attends to it.
        seen = valid | (torch.arange(t, device=source.device) == 0)
        y = self._encode(source.reshape(b * q, t), mask=seen.reshape(b * q, 1, 1, t))
        y = y * valid.reshape(b * q, t, 1)
        x = self.projection(y).reshape(b, q, self.d_model) + self.session_positions.weight[:q]
        x = self.dropout(x)
        causal = torch.ones(q, q, dtype=torch.bool, device=source.device).tril()
        for layer in cast(list[EncoderLayer], self.session_layers):
            x, _ = layer(x, mask=causal)
        return y.reshape(b, q, t, self.d_model) + self.session_norm(x)[:, :, None], valid

    def _encode(self, tokens: Tensor, *, mask: Tensor | None) -> Tensor:
        """The query encoder: [b, t] to Y [b, t, d]."""
        x = self._embed(tokens, self.query_positions.weight[: tokens.shape[1]])
        for layer in cast(list[EncoderLayer], self.query_layers):
            x, _ = layer(x, mask=mask)
        return self.query_norm(x)  # type: ignore[no-any-return]

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * math.sqrt(self.d_model) + positions)  # type: ignore[no-any-return]


class PositionProjection(nn.Module):
    """Query projection with one weight for each token position: r = sum over t of w_t Y_t (the paper's w_proj)."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((max_tokens,), 1 / math.sqrt(max_tokens)))

    def forward(self, y: Tensor) -> Tensor:
        """[b, t, d], zero where padded, to [b, d]."""
        return torch.einsum("btd,t->bd", y, self.weight[: y.shape[1]])


class FullProjection(nn.Module):
    """Query projection with a full matrix from the zero-padded Y, (max_tokens x d) to d."""

    def __init__(self, max_tokens: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_tokens, d_model, d_model) / math.sqrt(4 * d_model))

    def forward(self, y: Tensor) -> Tensor:
        """[b, t, d], zero where padded, to [b, d]."""
        return torch.einsum("btd,tdf->bf", y, self.weight[: y.shape[1]])


def build(config: ModelConfig) -> MTN:
    """The network that `config` describes."""
    return MTN(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        heads=config.heads,
        ffn=config.ffn,
        query_layers=config.query_layers,
        session_layers=config.session_layers,
        decoder_layers=config.decoder_layers,
        max_tokens=config.max_tokens,
        max_queries=config.max_queries,
        projection=config.projection,
        memory=config.memory,
        norm=config.norm,
        dropout=config.dropout,
    )


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
