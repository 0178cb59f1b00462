"""Hierarchical recurrent encoder-decoder (HRED; Sordoni et al. 2015, section 4): a GRU over the tokens of a query, one
over the queries of a session, and one that writes.

The session's state starts the decoder and, beyond the paper's formula, has a term of its own in the output: without it
a decoder state must carry the session through every token that it writes.

Shapes: b sessions, q queries of a session, t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or
`<eos>`), g queries of a batch, p pairs of a batch, n real tokens of a batch, d width of the table, v vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.models.layers import Packing
from mtn_edge.models.recurrent import init_recurrent, last_steps, run
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.tokenizer import PAD


class HRED(nn.Module):
    """Three GRUs with states of one size.

    Args:
        vocab_size: tokens.
        d_model: width of the table, which reads and writes.
        units: state of the GRUs.
        max_tokens: tokens of one query.
        max_queries: earlier queries that a caller hands over at most.
        dropout: probability of dropping a unit.
    """

    def __init__(
        self, *, vocab_size: int, d_model: int, units: int, max_tokens: int, max_queries: int, dropout: float
    ) -> None:
        super().__init__()
        self.d_model, self.units, self.max_tokens, self.max_queries = d_model, units, max_tokens, max_queries
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.query_encoder = nn.GRU(d_model, units, batch_first=True)
        self.session_encoder = nn.GRU(units, units, batch_first=True)
        self.bridge = nn.Linear(units, units)
        self.decoder = nn.GRU(d_model, units, batch_first=True)
        self.output = nn.Linear(units, d_model)
        self.output_embedding = nn.Linear(d_model, d_model, bias=False)
        self.output_session = nn.Linear(units, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.apply(init_recurrent)

    def states(self, source: Tensor, target_in: Tensor, user: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Output states of all pairs of all sessions.

        Args:
            source: [b, q, t] tokens of the start query and of q_1 to q_(r-1), padded with `<pad>`.
            target_in: [b, q, u] `<bos>` and tokens of q_1 to q_r, padded.
            user: [b] is not looked at: sessions are apart.

        Returns:
            [n, d], one state for each of `target_in[target_in != PAD]`, in that order.
        """
        sessions = Packing(source[:, :, 0] != PAD)  # [b, q]
        tokens = sessions.pack(source)  # [g, t]
        queries = Packing(tokens != PAD)
        encoded = run(self.query_encoder, self._embed(queries.pack(tokens)), queries)[last_steps(queries)]  # [g, units]
        session = sessions.pad(run(self.session_encoder, encoded, sessions))  # [b, q, units]

        asked = target_in[:, :, 0] != PAD  # [b, q]
        session, rows = session[asked], target_in[asked]  # [p, units], [p, u]
        writing = Packing(rows != PAD)
        embedded = self._embed(writing.pack(rows))
        hidden = run(self.decoder, embedded, writing, self._begin(session)[None])  # [n, units]
        return self._output(hidden, embedded, self.output_session(session)[writing.rows])

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] output states to [..., v] scores; the table is the embedding's (tied)."""
        return F.linear(states, self.embedding.weight)

    def start(self, device: torch.device | None = None) -> SessionCache:
        """The cache of an empty session: nothing yet, not even the start query (append `<bos>` first)."""
        zeros = torch.zeros(self.units, device=device)
        context = torch.zeros(self.d_model, device=device)
        return SessionCache({"session_hidden": zeros}, {"memory_hidden": zeros, "memory_context": context})

    def append(self, tokens: Tensor, cache: SessionCache) -> SessionCache:
        """Adds one query to a session.

        Args:
            tokens: [t] tokens of the query, 1 to `max_tokens` of them.
            cache: the session so far: `session_hidden` [units], the session encoder's state; `memory_hidden` [units],
                the decoder's first state, and `memory_context` [d], the session's term in every output, are replaced.
        """
        query = self.query_encoder(self._embed(tokens))[1]  # [1, units]
        session = self.session_encoder(query, cache.session["session_hidden"][None])[1][0]  # [units]
        return SessionCache(
            {"session_hidden": session},
            {"memory_hidden": self._begin(session), "memory_context": self.output_session(session)},
        )

    def step(
        self,
        tokens: Tensor,
        position: int,  # noqa: ARG002
        memory: dict[str, Tensor],
        past: list[Tensor] | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """One decoder step for n hypotheses of one session.

        Args:
            tokens: [n] the last token of each hypothesis (`<bos>` at position 0).
            position: how many tokens each has before that one; the state knows.
            memory: `SessionCache.memory`, shared by all hypotheses.
            past: what the previous step returned, rows reordered; None at position 0.

        Returns:
            Output states [n, d], see `logits`; the decoder's state [n, units].
        """
        hidden = memory["memory_hidden"].expand(len(tokens), -1) if past is None else past[0]
        embedded = self._embed(tokens)  # [n, d]
        hidden = self.decoder(embedded[:, None], hidden[None].contiguous())[1][0]  # [n, units]
        return self._output(hidden, embedded, memory["memory_context"]), [hidden]

    def _begin(self, session: Tensor) -> Tensor:
        """The decoder's first state, from the session's: [..., units] to the same."""
        return torch.tanh(self.bridge(session))

    def _output(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """The paper's omega [n, d] from the state [n, units], the last token's embedding and the session's term."""
        return self.output(self.dropout(hidden)) + self.output_embedding(embedded) + context  # type: ignore[no-any-return]

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * math.sqrt(self.d_model))  # type: ignore[no-any-return]
