"""Flat Transformer over the concatenated session (Vaswani et al. 2017): no hierarchy, the same layers as the MTN's.

The encoder reads `<bos>`, q_1 to q_i, each followed by a separator, with attention in both directions; hence every pair
(q_1 to q_i, q_(i+1)) is an encoder row of its own in training, and a session is read anew at every query in decoding.

Shapes: b sessions, q queries of a session, t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or
`<eos>`), p pairs of a batch, k tokens of a concatenated session, m of them that the encoder reads, n real tokens of a
batch, d width, h heads, e width of a head, v vocabulary, r rank of the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.layer_sizes import LayerSize
from mtn_edge.models.concatenation import SEPARATOR, with_separators
from mtn_edge.models.layers import DecoderLayer, EncoderLayer, Norm, Packing, final_norm, init_weights, two_before
from mtn_edge.models.low_rank import apply_map, make_maps
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.tokenizer import PAD


class Transformer(nn.Module):
    """The encoder-decoder.

    Positions of the encoder are counted from the newest token, which always has the last one: what a cut leaves of a
    long session keeps its positions.

    Args:
        vocab_size: tokens.
        d_model: width of every vector between layers.
        head_width: width of an attention head.
        memory_heads: heads of every cross-attention.
        encoder_layers: sizes of the layers over the concatenated session.
        decoder_layers: sizes of the layers of the decoder.
        max_tokens: tokens of one query.
        max_queries: earlier queries that a caller hands over at most.
        max_session_tokens: last tokens of the concatenated session, separators included, that are read.
        norm: where the layers normalise.
        dropout: probability of dropping a unit.
        embedding_rank: width of the embedding table; 0 for `d_model`.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        head_width: int,
        memory_heads: int,
        encoder_layers: Sequence[LayerSize],
        decoder_layers: Sequence[LayerSize],
        max_tokens: int,
        max_queries: int,
        max_session_tokens: int,
        norm: Norm,
        dropout: float,
        embedding_rank: int = 0,
    ) -> None:
        super().__init__()
        layer: dict[str, Any] = {"d_model": d_model, "head_width": head_width, "norm": norm, "dropout": dropout}
        self.d_model, self.head_width, self.max_tokens, self.max_queries = d_model, head_width, max_tokens, max_queries
        self.memory_heads, self.max_session_tokens = memory_heads, max_session_tokens
        self.embedding = nn.Embedding(vocab_size, embedding_rank or d_model)
        self.embedding_up, self.embedding_down = make_maps(d_model=d_model, rank=embedding_rank)
        self.encoder_positions = nn.Embedding(max_session_tokens, d_model)
        self.encoder_layers = nn.ModuleList(EncoderLayer(**layer, size=size) for size in encoder_layers)
        self.encoder_norm = final_norm(d_model, norm)
        self.decoder_positions = nn.Embedding(max_tokens + 1, d_model)
        self.decoder_convolution = nn.Linear(2 * d_model, d_model, bias=False)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(**layer, size=size, memory_heads=memory_heads) for size in decoder_layers
        )
        self.decoder_norm = final_norm(d_model, norm)
        self.dropout = nn.Dropout(dropout)
        self.apply(init_weights)
        nn.init.zeros_(self.decoder_convolution.weight)

    def states(self, source: Tensor, target_in: Tensor, user: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Decoder states of all pairs of all sessions.

        Args:
            source: [b, q, t] tokens of the start query and of q_1 to q_(r-1), padded with `<pad>`.
            target_in: [b, q, u] `<bos>` and tokens of q_1 to q_r, padded.
            user: [b] is not looked at: sessions are apart.

        Returns:
            [n, d], one state for each of `target_in[target_in != PAD]`, in that order.
        """
        session, asked = (target_in[:, :, 0] != PAD).nonzero(as_tuple=True)  # [p] each
        memory, read = self._encode_pairs(source, session, asked)
        writing = target_in[session, asked]  # [p, u]
        by_query = Packing(writing != PAD)
        u = writing.shape[1]
        causal = torch.ones(u, u, dtype=torch.bool, device=source.device).tril()
        mask = read.real[:, None, None]  # [p, 1, 1, m]

        embedded = self._scaled(by_query.pack(writing))  # [n, d]
        x = self.dropout(embedded + self.decoder_positions(by_query.columns))
        x = x + self.decoder_convolution(two_before(embedded, by_query.columns))
        for layer in self._decoder:
            x, _ = layer.mix(x, mask=causal, packing=by_query)
            keys_values = layer.cross_attention.keys_values(memory, packing=read)
            x = layer.attend_to_memory(x, keys_values, bias=mask, packing=by_query)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] decoder states to [..., v] scores; the table is the embedding's (tied)."""
        return F.linear(self.narrowed(states), self.embedding.weight)

    def narrowed(self, states: Tensor) -> Tensor:
        """[..., d] decoder states to what meets the table: [..., r] where it has a low rank, else themselves."""
        return apply_map(self.embedding_down, states)

    def start(self, device: torch.device | None = None) -> SessionCache:
        """The cache of an empty session: nothing yet, not even the start query (append `<bos>` first)."""
        empty = torch.zeros(len(self.decoder_layers), self.memory_heads, 0, self.head_width, device=device)
        return SessionCache(
            {"session_embedded": torch.zeros(0, self.d_model, device=device)},
            {"memory_keys": empty, "memory_values": empty},
        )

    def append(self, tokens: Tensor, cache: SessionCache) -> SessionCache:
        """Adds one query to a session, and encodes what is read of the session anew.

        Args:
            tokens: [t] tokens of the query, 1 to `max_tokens` of them.
            cache: the session so far: `session_embedded` [m, d], scaled embeddings of the tokens and separators that
                are read of it, without positions; `memory_keys` and `memory_values` [Ld, h, m, e] are replaced.
        """
        new = torch.cat([tokens, tokens.new_tensor([SEPARATOR])])
        embedded = torch.cat([cache.session["session_embedded"], self._scaled(new)])[-self.max_session_tokens :]
        x = (embedded + self.encoder_positions.weight[-len(embedded) :])[None]  # [1, m, d]
        for layer in self._encoder:
            x, _ = layer(x, mask=None)
        memory = self.encoder_norm(x)
        by_layer = [layer.cross_attention.keys_values(memory) for layer in self._decoder]
        keys, values = (torch.cat(part) for part in zip(*by_layer, strict=True))
        return SessionCache({"session_embedded": embedded}, {"memory_keys": keys, "memory_values": values})

    def step(
        self, tokens: Tensor, position: int, memory: dict[str, Tensor], past: list[Tensor] | None
    ) -> tuple[Tensor, list[Tensor]]:
        """One decoder step for n hypotheses of one session.

        Args:
            tokens: [n] the last token of each hypothesis (`<bos>` at position 0).
            position: how many tokens each has before that one.
            memory: `SessionCache.memory`, shared by all hypotheses.
            past: what the previous step returned, rows reordered; None at position 0.

        Returns:
            Decoder states [n, d], see `logits`; embeddings of the last two tokens [n, 2 d], keys and values of each
            layer in turn, [n, h, position + 1, e].
        """
        n = len(tokens)
        embedded = self._scaled(tokens)  # [n, d]
        before = past[0] if past is not None else embedded.new_zeros(n, 2 * self.d_model)
        x = self.dropout(embedded + self.decoder_positions.weight[position]) + self.decoder_convolution(before)
        x = x[:, None]  # [n, 1, d]
        present = [torch.cat([embedded, before[:, : self.d_model]], dim=1)]
        for number, (layer, keys, values) in enumerate(
            zip(self._decoder, memory["memory_keys"], memory["memory_values"], strict=True)
        ):
            x, new = layer.mix(x, mask=None, past=None if past is None else past[2 * number + 1 : 2 * number + 3])
            present += new
            # All hypotheses share one memory: fold them into the time axis.
            x = layer.attend_to_memory(x.view(1, n, -1), (keys[None], values[None]), bias=None).view(n, 1, -1)
        return self.decoder_norm(x)[:, 0], present

    @property
    def _encoder(self) -> list[EncoderLayer]:
        return cast(list[EncoderLayer], list(self.encoder_layers))

    @property
    def _decoder(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder_layers))

    def _encode_pairs(self, source: Tensor, session: Tensor, asked: Tensor) -> tuple[Tensor, Packing]:
        """Encodes what each pair reads.

        Args:
            source: [b, q, t] queries.
            session: [p] the session of each pair.
            asked: [p] the number of its predicted query: it reads the start query and those up to that number.

        Returns:
            Outputs [n, d], and where they lie in rows [p, m].
        """
        text = with_separators(source)  # [b, q, t + 1]
        query = torch.arange(text.shape[1], device=text.device).repeat_interleave(text.shape[2])  # [k]
        tokens = text.flatten(1)[session]  # [p, k]
        seen = (tokens != PAD) & (query <= asked[:, None])
        from_end = seen.flip(1).cumsum(1).flip(1)  # [p, k], 1 for the newest token
        read = seen & (from_end <= self.max_session_tokens)
        packing = Packing.from_counts(read.sum(1))  # [p, m]
        x = self._embed(tokens[read], self.encoder_positions(self.max_session_tokens - from_end[read]))  # [n, d]
        for layer in self._encoder:
            x, _ = layer(x, mask=packing.real[:, None, None], packing=packing)
        return self.encoder_norm(x), packing

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self._scaled(tokens) + positions)  # type: ignore[no-any-return]

    def _scaled(self, tokens: Tensor) -> Tensor:
        """Embeddings, about as large as what they are added to."""
        return apply_map(self.embedding_up, self.embedding(tokens)) * math.sqrt(self.d_model)
