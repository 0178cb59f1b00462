"""GRU encoder-decoder with attention over the concatenated session (Luong et al. 2015: global attention, "general").

The encoder reads `<bos>`, q_1, q_2 ..., each followed by a separator, in one direction, so that one pass serves all
pairs of a session and a new query costs its own tokens only. Input feeding is left out: with it a decoder step needs
the attention of the step before, and training cannot run the steps of a query in one call.

Shapes: b sessions, q queries of a session, t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or
`<eos>`), p pairs of a batch, m tokens of the memory, n real tokens of a batch, d width of the table, v vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.models.concatenation import SEPARATOR, with_separators
from mtn_edge.models.layers import Packing
from mtn_edge.models.recurrent import init_recurrent, run
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.tokenizer import PAD


class Seq2Seq(nn.Module):
    """One GRU that reads and one that writes.

    Args:
        vocab_size: tokens.
        d_model: width of the table, which reads and writes.
        units: state of both GRUs.
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
        self.encoder = nn.GRU(d_model, units, batch_first=True)
        self.decoder = nn.GRU(d_model, units, batch_first=True)
        self.bridge = nn.Linear(units, units)
        self.attention = nn.Linear(units, units, bias=False)
        self.combine = nn.Linear(2 * units, units)
        self.output = nn.Linear(units, d_model)
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
        text = with_separators(source)  # [b, q, t + 1]
        read, written = text != PAD, target_in != PAD
        memory, asking = Packing.from_counts(read.sum((1, 2))), Packing.from_counts(written.sum((1, 2)))
        encoded = run(self.encoder, self._embed(text[read]), memory)  # [n, units]
        # Query i looks at the tokens of queries up to i, and starts from the state after the last of them.
        asks, holds = asking.pad(written.nonzero()[:, 1]), memory.pad(read.nonzero()[:, 1])  # [b, u'], [b, m]
        mask = (asks[:, :, None] >= holds[:, None]) & memory.real[:, None]
        ends = read.sum(2).flatten().cumsum(0).view(read.shape[:2])[written[:, :, 0]] - 1  # [p]

        rows = target_in[written[:, :, 0]]  # [p, u]
        by_query = Packing(rows != PAD)
        begin = self._begin(encoded[ends])
        hidden = run(self.decoder, self._embed(by_query.pack(rows)), by_query, begin[None])  # [n, units]
        context = self._attend(asking.pad(hidden), memory.pad(encoded), mask)  # [b, u', units]
        return self._combine(hidden, asking.pack(context))

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] output states to [..., v] scores; the table is the embedding's (tied)."""
        return F.linear(states, self.embedding.weight)

    def start(self, device: torch.device | None = None) -> SessionCache:
        """The cache of an empty session: nothing yet, not even the start query (append `<bos>` first)."""
        zeros = torch.zeros(self.units, device=device)
        return SessionCache({"session_hidden": zeros}, {"memory_keys": zeros[None, :][:0], "memory_hidden": zeros})

    def append(self, tokens: Tensor, cache: SessionCache) -> SessionCache:
        """Adds one query to a session.

        Args:
            tokens: [t] tokens of the query, 1 to `max_tokens` of them.
            cache: the session so far: `session_hidden` [units], the encoder's state; `memory_keys` [m, units], its
                outputs, which grow by the query and its separator; `memory_hidden` [units], the decoder's first state.
        """
        new = torch.cat([tokens, tokens.new_tensor([SEPARATOR])])
        encoded, _ = self.encoder(self._embed(new), cache.session["session_hidden"][None])  # [t + 1, units]
        return SessionCache(
            {"session_hidden": encoded[-1]},
            {
                "memory_keys": torch.cat([cache.memory["memory_keys"], encoded]),
                "memory_hidden": self._begin(encoded[-1]),
            },
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
        hidden = self.decoder(self._embed(tokens[:, None]), hidden[None].contiguous())[1][0]  # [n, units]
        context = self._attend(hidden[None], memory["memory_keys"][None], None)[0]
        return self._combine(hidden, context), [hidden]

    def _begin(self, encoded: Tensor) -> Tensor:
        """The decoder's first state, from the encoder's last one: [..., units] to the same."""
        return torch.tanh(self.bridge(encoded))

    def _attend(self, hidden: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """What each decoder state [b, u, units] finds in the memory [b, m, units]; scores are h W m, not scaled."""
        return F.scaled_dot_product_attention(self.attention(hidden), memory, memory, attn_mask=mask, scale=1.0)

    def _combine(self, hidden: Tensor, context: Tensor) -> Tensor:
        """The attentional state, [..., units] from twice that, brought to the table's width [..., d]."""
        attentional = torch.tanh(self.combine(torch.cat([context, hidden], dim=-1)))
        return self.output(self.dropout(attentional))  # type: ignore[no-any-return]

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * math.sqrt(self.d_model))  # type: ignore[no-any-return]
