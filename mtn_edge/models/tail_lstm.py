"""The tail model of Chromium's on-device query completion: an LSTM that sees one previous query, as a mean of it.

At each step it reads the embedding of the last token beside the previous query's encoding: the mean of that query's
embeddings through one tanh layer. The output layer is its own, not the embedding. Of all earlier queries but the last
it knows nothing, so a session's cache holds nothing.

Shapes: b sessions, q queries of a session, t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or
`<eos>`), p pairs of a batch, n real tokens of a batch, d width of embeddings and of the encoding, v vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mtn_edge.models.layers import Packing
from mtn_edge.models.recurrent import init_recurrent, run
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.tokenizer import PAD


class TailLSTM(nn.Module):
    """The next token of a query, given the query before it.

    Args:
        vocab_size: tokens.
        d_model: width of embeddings and of the previous query's encoding.
        units: state of the LSTM.
        max_tokens: tokens of one query.
        max_queries: earlier queries that a caller hands over at most.
        dropout: probability of dropping a unit.
    """

    def __init__(
        self, *, vocab_size: int, d_model: int, units: int, max_tokens: int, max_queries: int, dropout: float
    ) -> None:
        super().__init__()
        self.d_model, self.max_tokens, self.max_queries = d_model, max_tokens, max_queries
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.context = nn.Linear(d_model, d_model)
        self.lstm = nn.LSTM(2 * d_model, units, batch_first=True)
        self.output = nn.Linear(units, vocab_size)
        self.dropout = nn.Dropout(dropout)
        self.apply(init_recurrent)

    def states(self, source: Tensor, target_in: Tensor, user: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """LSTM states of all pairs of all sessions.

        Args:
            source: [b, q, t] tokens of the start query and of q_1 to q_(r-1), padded with `<pad>`.
            target_in: [b, q, u] `<bos>` and tokens of q_1 to q_r, padded.
            user: [b] is not looked at: sessions are apart.

        Returns:
            [n, units], one state for each of `target_in[target_in != PAD]`, in that order.
        """
        asked = target_in[:, :, 0] != PAD  # [b, q]
        previous, rows = source[asked], target_in[asked]  # [p, t], [p, u]
        real = (previous != PAD)[:, :, None]
        context = self._encode((self._embed(previous) * real).sum(1) / real.sum(1))  # [p, d]
        writing = Packing(rows != PAD)
        x = torch.cat([self._embed(writing.pack(rows)), context[writing.rows]], dim=1)  # [n, 2 d]
        return self.dropout(run(self.lstm, x, writing))  # type: ignore[no-any-return]

    def logits(self, states: Tensor) -> Tensor:
        """[..., units] LSTM states to [..., v] scores."""
        return self.output(states)  # type: ignore[no-any-return]

    def start(self, device: torch.device | None = None) -> SessionCache:
        """The cache of an empty session: nothing yet, not even the start query (append `<bos>` first)."""
        return SessionCache({}, {"memory_context": torch.zeros(self.d_model, device=device)})

    def append(self, tokens: Tensor, cache: SessionCache) -> SessionCache:  # noqa: ARG002
        """Puts one query in place of the one before it.

        Args:
            tokens: [t] tokens of the query, 1 to `max_tokens` of them.
            cache: the session so far, of which nothing stays: `memory_context` [d] is replaced.
        """
        return SessionCache({}, {"memory_context": self._encode(self._embed(tokens).mean(0))})

    def step(
        self,
        tokens: Tensor,
        position: int,  # noqa: ARG002
        memory: dict[str, Tensor],
        past: list[Tensor] | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """One LSTM step for n hypotheses of one session.

        Args:
            tokens: [n] the last token of each hypothesis (`<bos>` at position 0).
            position: how many tokens each has before that one; the state knows.
            memory: `SessionCache.memory`, shared by all hypotheses.
            past: what the previous step returned, rows reordered; None at position 0.

        Returns:
            LSTM states [n, units], see `logits`; the LSTM's state and cell [n, units].
        """
        state = None if past is None else (past[0][None].contiguous(), past[1][None].contiguous())
        x = torch.cat([self._embed(tokens), memory["memory_context"].expand(len(tokens), -1)], dim=1)  # [n, 2 d]
        _, (hidden, cell) = self.lstm(x[:, None], state)
        return hidden[0], [hidden[0], cell[0]]

    def _encode(self, mean: Tensor) -> Tensor:
        """The previous query's encoding from the mean of its embeddings: [..., d] to the same."""
        return torch.tanh(self.context(mean))

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * math.sqrt(self.d_model))  # type: ignore[no-any-return]
