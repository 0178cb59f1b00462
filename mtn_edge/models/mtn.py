"""Multiresolution Transformer Network: tokens in queries, queries in sessions (arXiv 1908.10408).

Query encoder -> query projection -> masked session encoder -> refinement of the query's tokens -> one decoder.
The empty session is a query of its own, the single token `<bos>` at session position 0, so that the first query of a
session is predicted like every other. `models.history` adds a third level, the sessions of a user.

Shapes: b batch, q queries of a session, t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or
`<eos>`), m tokens of the memory, n real tokens of a batch, d width, h heads (of the stack at hand), e width
of a head, v vocabulary, r rank of the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.layer_sizes import LayerSize
from mtn_edge.models.history import HistoryEncoder, continuations
from mtn_edge.models.layers import (
    DecoderLayer,
    EncoderLayer,
    KeysValues,
    Mixer,
    Norm,
    Packing,
    final_norm,
    init_weights,
    two_before,
)
from mtn_edge.models.low_rank import apply_map, make_maps
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.tokenizer import BOS, PAD


class MTN(nn.Module):
    """The network with two levels, or with three when there are `history_layers`.

    Layers are given by their sizes; those of the session encoder have equally many heads, and so have all
    cross-attentions, `memory_heads`. The decoder runs `decoder_runs` layers: each of its own once, or a single one
    again and again.

    Training takes all pairs of a session in one pass (`states`). Decoding appends one query at a time (`append`), each
    at the price of one query encoding, and then costs the decoder alone (`step`).
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        head_width: int,
        memory_heads: int,
        query_layers: Sequence[LayerSize],
        session_layers: Sequence[LayerSize],
        decoder_layers: Sequence[LayerSize],
        decoder_runs: int,
        mixer: Mixer,
        max_tokens: int,
        max_queries: int,
        projection: Literal["position", "full"],
        refinement: Literal["sum", "encoder"],
        memory: Literal["all", "last"],
        norm: Norm,
        dropout: float,
        history_layers: Sequence[LayerSize] = (),
        max_sessions: int = 1,
        embedding_rank: int = 0,
    ) -> None:
        super().__init__()
        layer: dict[str, Any] = {"d_model": d_model, "head_width": head_width, "norm": norm, "dropout": dropout}
        self.d_model, self.head_width, self.max_tokens, self.max_queries = d_model, head_width, max_tokens, max_queries
        self.session_heads, self.memory_heads = session_layers[0].heads, memory_heads
        self.memory, self.refinement = memory, refinement
        self.embedding = nn.Embedding(vocab_size, embedding_rank or d_model)
        self.embedding_up, self.embedding_down = make_maps(d_model=d_model, rank=embedding_rank)
        self.query_positions = nn.Embedding(max_tokens, d_model)
        self.query_layers = nn.ModuleList(EncoderLayer(**layer, size=size) for size in query_layers)
        self.query_norm = final_norm(d_model, norm)
        self.projection: PositionProjection | FullProjection = (
            PositionProjection(max_tokens) if projection == "position" else FullProjection(max_tokens, d_model)
        )
        self.session_positions = nn.Embedding(max_queries + 1, d_model)
        self.session_layers = nn.ModuleList(EncoderLayer(**layer, size=size) for size in session_layers)
        self.session_norm = final_norm(d_model, norm)
        self.history = (
            HistoryEncoder(**layer, sizes=history_layers, max_queries=max_queries, max_sessions=max_sessions)
            if history_layers
            else None
        )
        self.decoder_positions = nn.Embedding(max_tokens + 1, d_model)
        # A recurrent unit has the last tokens at hand, attention has to find them.
        self.decoder_convolution = nn.Linear(2 * d_model, d_model, bias=False) if mixer == "attention" else None
        # With shared weights all runs read the same memory.
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(**layer, size=size, memory_heads=memory_heads, mixer=mixer) for size in decoder_layers
        )
        self.decoder_runs = decoder_runs
        self.decoder_norm = final_norm(d_model, norm)
        # With all queries in the memory the decoder has to know which are the last ones.
        self.recency = nn.Embedding(max_queries + 1, memory_heads) if memory == "all" else None
        self.dropout = nn.Dropout(dropout)
        self.apply(init_weights)
        for added in (self.recency, self.decoder_convolution):
            if added is not None:
                nn.init.zeros_(added.weight)

    def states(self, source: Tensor, target_in: Tensor, user: Tensor | None = None) -> Tensor:
        """Decoder states for every query of every session, each given the queries before it.

        With three levels `user` [b] says whose session each row is (None: nobody has earlier ones), rows of a user are
        adjacent and in order, and `source` may have a row more than `target_in`: the session's last query, which no
        prediction of the session reads but those of later sessions do.

        Args:
            source: [b, q, t] tokens of the start query and of q_1 to q_(r-1), padded with `<pad>`.
            target_in: [b, q, u] `<bos>` and tokens of q_1 to q_r, padded.
            user: [b], see above.

        Returns:
            [n, d], one state for each of `target_in[target_in != PAD]`, in that order.
        """
        refined, states = self._refine(source, target_in, user)
        read, written = source != PAD, target_in != PAD  # [b, q, t], [b, q, u]
        memory, asking = Packing.from_counts(read.sum((1, 2))), Packing.from_counts(written.sum((1, 2)))
        bias = self._memory_bias(asking.pad(written.nonzero()[:, 1]), memory.pad(read.nonzero()[:, 1]), memory.real)
        by_query = Packing(written.flatten(0, 1))  # [b * q, u]
        u = target_in.shape[2]
        causal = torch.ones(u, u, dtype=torch.bool, device=source.device).tril()

        embedded = self._scaled(target_in[written])  # [n, d]
        row, query, _ = written.nonzero(as_tuple=True)
        x = self.dropout(embedded + self.decoder_positions(by_query.columns)) + states[row, query]
        if self.decoder_convolution is not None:
            x = x + self.decoder_convolution(two_before(embedded, by_query.columns))
        for _, layer in self._decoder():
            x, _ = layer.mix(x, mask=causal, packing=by_query)
            keys_values = layer.cross_attention.keys_values(refined, packing=memory)
            x = layer.attend_to_memory(x, keys_values, bias=bias, packing=asking)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] decoder states to [..., v] scores; the table is the embedding's (tied)."""
        return F.linear(self.narrowed(states), self.embedding.weight)

    def narrowed(self, states: Tensor) -> Tensor:
        """[..., d] decoder states to what meets the table: [..., r] where it has a low rank, else themselves."""
        return apply_map(self.embedding_down, states)

    def start(self, device: torch.device | None = None) -> SessionCache:
        """The cache of an empty session: nothing yet, not even the start query (append `<bos>` first)."""
        session, memory = (
            torch.zeros(len(layers), heads, 0, self.head_width, device=device)
            for layers, heads in (
                (self.session_layers, self.session_heads),
                (self.decoder_layers, self.memory_heads),
            )
        )
        kept = {"session_keys": session, "session_values": session}
        if self.history is not None:
            kept |= self.history.start(device)
        decoded = {"memory_state": torch.zeros(self.d_model, device=device)}
        if self.recency is not None:
            decoded["memory_query"] = torch.zeros(0, device=device)
        return SessionCache(kept, decoded | {"memory_keys": memory, "memory_values": memory})

    def append(self, tokens: Tensor, cache: SessionCache) -> SessionCache:
        """Adds one query to a session (the cached form of `_refine`).

        With three levels the start query `<bos>`, appended to a session, closes it and begins the user's next one.

        Args:
            tokens: [t] tokens of the query, 1 to `max_tokens` of them.
            cache: the session so far, at most `max_queries` queries with the start query: `session_keys` and
                `session_values` [Ls, h, q, e] of its queries; `memory_keys` and `memory_values` [Ld, h, m, e] of their
                tokens (or of the last query's), with memory `all` `memory_query` [m], the number of each token's query;
                `memory_state` [d], what the session encoder made of the last query. With three levels also what
                `HistoryEncoder` keeps.
        """
        if self.history is not None and cache.session["session_keys"].shape[2] and tokens.tolist() == [BOS]:
            fresh = self.start(tokens.device)
            cache = SessionCache(fresh.session | self.history.close(cache.session), fresh.memory)
        past = _by_layer(cache.session["session_keys"], cache.session["session_values"])
        position = past[0][0].shape[2]
        y = self._encode(tokens[None], self.query_positions.weight[: len(tokens)], mask=None)  # [1, t, d]
        x = (self.projection(y) + self.session_positions.weight[position])[:, None]  # [1, 1, d]
        session: list[KeysValues] = []
        for layer, layer_past in zip(cast(list[EncoderLayer], self.session_layers), past, strict=True):
            x, keys_values = layer(x, mask=None, past=layer_past)
            session.append(keys_values)
        s = self.session_norm(x)[0, 0]  # [d]
        kept = {}
        if self.history is not None:
            kept = self.history.add(cache.session, s, position)
            s = s + cache.session["session_history"]
        refined = self._reread(y + s, mask=None)  # [1, t, d]
        ages: dict[str, Tensor] = {}
        keys, values = _stack(
            [block.cross_attention.keys_values(refined) for block in cast(list[DecoderLayer], self.decoder_layers)]
        )
        if self.memory == "all":
            keys = torch.cat([cache.memory["memory_keys"], keys], dim=2)
            values = torch.cat([cache.memory["memory_values"], values], dim=2)
            number = torch.full((len(tokens),), float(position), device=tokens.device)
            ages = {"memory_query": torch.cat([cache.memory["memory_query"], number])}
        session_keys, session_values = _stack(session)
        return SessionCache(
            {"session_keys": session_keys, "session_values": session_values, **kept},
            {"memory_state": s, "memory_keys": keys, "memory_values": values, **ages},
        )

    def step(
        self, tokens: Tensor, position: int, memory: dict[str, Tensor], past: list[Tensor] | None
    ) -> tuple[Tensor, list[Tensor]]:
        """One decoder step for b hypotheses of one session.

        Args:
            tokens: [b] the last token of each hypothesis (`<bos>` at position 0).
            position: how many tokens each has before that one.
            memory: `SessionCache.memory`, shared by all hypotheses.
            past: what the previous step returned, rows reordered; None at position 0.

        Returns:
            Decoder states [b, d], see `logits`; embeddings of the last two tokens [b, 2 d], if there is a convolution,
            and what each layer in turn keeps of the tokens (see `DecoderLayer.mix`).
        """
        b = tokens.shape[0]
        embedded = self._scaled(tokens)  # [b, d]
        x = self.dropout(embedded + self.decoder_positions.weight[position]) + memory["memory_state"]
        present: list[Tensor] = []
        if self.decoder_convolution is not None:
            before = past[0] if past is not None else embedded.new_zeros(b, 2 * self.d_model)
            x = x + self.decoder_convolution(before)
            present.append(torch.cat([embedded, before[:, : self.d_model]], dim=1))
        x = x[:, None]  # [b, 1, d]
        memories = _by_layer(memory["memory_keys"], memory["memory_values"])
        bias: Tensor | None = None
        if self.recency is not None:
            query = memory["memory_query"]
            bias = self.recency((query[-1] - query).long()).T[None, :, None]  # [1, h, 1, m]
        for number, layer in self._decoder():
            kept = past[len(present) : len(present) + layer.kept] if past is not None else None
            x, new = layer.mix(x, mask=None, past=kept)
            present += new
            # All hypotheses share one memory: fold them into the time axis.
            x = layer.attend_to_memory(x.reshape(1, b, self.d_model), memories[number], bias=bias).reshape(
                b, 1, self.d_model
            )
        return self.decoder_norm(x)[:, 0], present

    def _decoder(self) -> list[tuple[int, DecoderLayer]]:
        """The decoder's layers in the order in which they run, each with its number."""
        layers = list(enumerate(cast(list[DecoderLayer], self.decoder_layers)))
        return layers if len(layers) == self.decoder_runs else layers * self.decoder_runs

    def _memory_bias(self, asking: Tensor, memory: Tensor, real: Tensor) -> Tensor:
        """What is added to the scores of each predicted token's attention to its session: [b, 1 or h, u, m].

        A learned number for each head and each age of a query (Raffel et al. 2020, section 2.1, for tokens), and -inf
        for what may not be seen. With memory `last` there is one query to see, and no age.

        Args:
            asking: [b, u] the number of the query that each predicted token belongs to; 0 where padded.
            memory: [b, m] the same of each token of the memory.
            real: [b, m] which of those are not padding.
        """
        # Query i looks at the tokens of queries up to i ("all") or of query i ("last"), the start query being number 0.
        age = asking[:, :, None] - memory[:, None]  # [b, u, m]
        if self.recency is None:
            hidden = (age != 0) | ~real[:, None]
            return torch.zeros_like(age, dtype=torch.float32).masked_fill(hidden, -math.inf)[:, None]
        bias = self.recency(age.clamp(min=0)).permute(0, 3, 1, 2)  # [b, h, u, m]
        return bias.masked_fill(((age < 0) | ~real[:, None])[:, None], -math.inf)  # type: ignore[no-any-return]

    def _refine(self, source: Tensor, target_in: Tensor, user: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the session makes of its queries.

        Returns:
            Z, made of Y + S (+ H with three levels), for all tokens, [n, d], a row for each of
            `source[source != PAD]`, and S (+ H) for all queries, [b, q, d].
        """
        queries = Packing(source[:, :, 0] != PAD)  # [b, q]
        tokens = queries.pack(source)  # [g, t] for the g real queries of all sessions
        packing = Packing(tokens != PAD)
        mask = packing.real[:, None, None]
        y = self._encode(
            packing.pack(tokens), self.query_positions(packing.columns), mask=mask, packing=packing
        )  # [n, d]
        x = queries.pad(self.projection(packing.pad(y)))  # [b, q, d]
        q = x.shape[1]
        x = self.dropout(x + self.session_positions.weight[:q])
        causal = torch.ones(q, q, dtype=torch.bool, device=source.device).tril()
        for layer in cast(list[EncoderLayer], self.session_layers):
            x, _ = layer(x, mask=causal)
        s = self.session_norm(x)  # [b, q, d]
        if self.history is not None and user is not None:
            earlier = self.history(s * queries.real[:, :, None], user, continuations(target_in))  # [b, d]
            s = s + earlier[:, None]
        return self._reread(y + queries.pack(s).index_select(0, packing.rows), mask=mask, packing=packing), s

    def _encode(
        self, tokens: Tensor, positions: Tensor, *, mask: Tensor | None, packing: Packing | None = None
    ) -> Tensor:
        """The query encoder: [b, t] to Y [b, t, d], or [n] to [n, d] with `packing`."""
        return self._read(self._embed(tokens, positions), mask=mask, packing=packing)

    def _reread(self, x: Tensor, *, mask: Tensor | None, packing: Packing | None = None) -> Tensor:
        """Z from Y + S: the query encoder's layers again, now that they know the session, or nothing."""
        return x if self.refinement == "sum" else self._read(x, mask=mask, packing=packing)

    def _read(self, x: Tensor, *, mask: Tensor | None, packing: Packing | None) -> Tensor:
        for layer in cast(list[EncoderLayer], self.query_layers):
            x, _ = layer(x, mask=mask, packing=packing)
        return self.query_norm(x)  # type: ignore[no-any-return]

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self._scaled(tokens) + positions)  # type: ignore[no-any-return]

    def _scaled(self, tokens: Tensor) -> Tensor:
        """Embeddings, about as large as what they are added to."""
        return apply_map(self.embedding_up, self.embedding(tokens)) * math.sqrt(self.d_model)


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


def _by_layer(keys: Tensor, values: Tensor) -> list[KeysValues]:
    """[layers, h, t, e] to [1, h, t, e] of each layer."""
    return [(k[None], v[None]) for k, v in zip(keys, values, strict=True)]


def _stack(layers: list[KeysValues]) -> KeysValues:
    """The inverse of `_by_layer`."""
    keys, values = (torch.cat(part) for part in zip(*layers, strict=True))
    return keys, values
