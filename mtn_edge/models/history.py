"""The third level: the sessions of a user (the recursion of arXiv 1908.10408 with K = 3).

What the session encoder makes of a session, S_0 to S_r (number 0 is the start query), is projected to one vector by a
weight for each position; positions are added, and a masked encoder over the user's sessions gives H_j. Every token of
session j then gets H_(j-1) added, beside its own session's S: Y + S + H. Before a user's first session there is no
H, and nothing is added. H_(j-1) depends on whole earlier sessions alone, so it costs nothing while a session goes on.

At most `max_sessions` earlier sessions are seen; when there are more the older half is forgotten at once, by the rule
that holds for queries (`runtime.context.context_start`) and by which training batches are cut. Positions are counted
from the newest session, which always has the last one, and what each session sees is encoded by itself.

Shapes: b rows of a batch, q queries of a session, s earlier sessions, c sessions of a batch, n earlier sessions of all
rows together, d width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mtn_edge.layer_sizes import LayerSize
from mtn_edge.models.layers import EncoderLayer, Norm, Packing, final_norm, init_weights
from mtn_edge.tokenizer import PAD


class HistoryEncoder(nn.Module):
    """What a user's earlier sessions say, as one vector.

    Args:
        d_model: width.
        sizes: of the masked layers over sessions.
        head_width: width of an attention head.
        max_queries: queries of a session at most, without the start query.
        max_sessions: earlier sessions that are seen at most.
        norm: where the layers normalise.
        dropout: probability of dropping a unit.
    """

    def __init__(
        self,
        *,
        d_model: int,
        sizes: Sequence[LayerSize],
        head_width: int,
        max_queries: int,
        max_sessions: int,
        norm: Norm,
        dropout: float,
    ) -> None:
        super().__init__()
        self.max_sessions, self._forgotten = max_sessions, max(1, max_sessions // 2)
        self.projection = nn.Parameter(torch.full((max_queries + 1,), 1 / math.sqrt(max_queries + 1)))
        self.positions = nn.Embedding(max_sessions, d_model)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model=d_model, size=size, head_width=head_width, norm=norm, dropout=dropout)
            for size in sizes
        )
        self.norm = final_norm(d_model, norm)
        self.dropout = nn.Dropout(dropout)
        self.apply(init_weights)

    def forward(self, states: Tensor, user: Tensor, continues: Tensor) -> Tensor:
        """The history of every row of a batch.

        Args:
            states: [b, q, d] S of the queries of each row, zero where padded.
            user: [b] whose row it is; rows of a user are adjacent and in order.
            continues: [b] whether a row goes on with the session of the row before (see `continuations`).

        Returns:
            [b, d], H over the sessions before the row's own; zero where there are none.
        """
        changes = user.diff(prepend=user[:1] - 1) != 0
        begins = changes | ~continues
        session = begins.cumsum(0) - 1  # [b] in the batch
        first = torch.where(changes, session, 0).cummax(0).values  # the first session of the row's user
        count = session - first  # [b] earlier sessions
        surplus = (count - self.max_sessions).clamp(min=0)
        count = count - (surplus + self._forgotten - 1) // self._forgotten * self._forgotten  # those that are seen
        some = count > 0
        history = torch.zeros_like(states[:, 0])
        if not bool(some.any()):
            return history
        # Of a session that was cut to several rows the last one is remembered, as decoding does.
        ends = torch.cat([begins[1:], begins.new_ones(1)])
        summaries = torch.einsum("cqd,q->cd", states[ends], self.projection[: states.shape[1]])  # [c, d]
        packing = Packing.from_counts(count[some])
        back = count[some][packing.rows] - packing.columns  # [n] 1 for the session before, 2 for the one before that
        encoded = self._encode(summaries[session[some][packing.rows] - back], self.max_sessions - back, packing)
        return history.masked_scatter(some[:, None], encoded[count[some].cumsum(0) - 1])

    def start(self, device: torch.device | None) -> dict[str, Tensor]:
        """What a new user's cache holds: `session_earlier` [s, d], the summaries of closed sessions, `session_history`
        [d], their H, and `session_summary` [d], the summary so far of the session that is open.
        """
        zeros = torch.zeros(self.positions.embedding_dim, device=device)
        return {"session_earlier": zeros[None][:0], "session_history": zeros, "session_summary": zeros}

    def add(self, kept: dict[str, Tensor], state: Tensor, position: int) -> dict[str, Tensor]:
        """Those three after one more query of the open session: S of it [d], at `position` in its session."""
        summary = kept["session_summary"] + self.projection[position] * state
        return {name: kept[name] for name in ("session_earlier", "session_history")} | {"session_summary": summary}

    def close(self, kept: dict[str, Tensor]) -> dict[str, Tensor]:
        """Those three when the open session has ended and the next one begins."""
        earlier = torch.cat([kept["session_earlier"], kept["session_summary"][None]])
        if len(earlier) > self.max_sessions:
            earlier = earlier[self._forgotten :]
        s = len(earlier)
        back = torch.arange(s, 0, -1, device=earlier.device)
        packing = Packing.from_counts(torch.tensor([s], device=earlier.device))
        return {
            "session_earlier": earlier,
            "session_history": self._encode(earlier, self.max_sessions - back, packing)[-1],
            "session_summary": torch.zeros_like(earlier[0]),
        }

    def _encode(self, summaries: Tensor, positions: Tensor, packing: Packing) -> Tensor:
        """The masked encoder over windows of sessions: [n, d], with their positions [n], to [n, d]."""
        x = self.dropout(summaries + self.positions(positions))
        s = packing.real.shape[1]
        causal = torch.ones(s, s, dtype=torch.bool, device=x.device).tril()
        for layer in cast(list[EncoderLayer], self.layers):
            x, _ = layer(x, mask=causal, packing=packing)
        return self.norm(x)  # type: ignore[no-any-return]


def continuations(target_in: Tensor) -> Tensor:
    """[b] which rows of `target_in` [b, q, u] go on with a session that was too long for one row.

    Their first queries are context only: the row before predicts them. A row without anything to predict is a whole
    session that is there for the sake of later ones.
    """
    asked = target_in[:, :, 0] != PAD
    return asked.any(1) & ~asked[:, 0]
