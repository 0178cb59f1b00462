"""An n-gram as an `Engine`: the constrained beam search that a network gets, in numpy, with or without copying.

The rules are those of `decoding.beam_search`: the floor, the mass, what is forbidden, when a hypothesis ends. Only the
work differs. Of the distribution after a context the best tokens are kept in order, and a hypothesis is continued by
those of them that the constraint allows, together with what the session offers to copy; the whole vocabulary is looked
at only where too few of them are allowed. The result is the same.

Shapes: B hypotheses, n of them live, c tokens tried for each, m different tokens of a session, S states, V tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.decoding.prefix_constraint import FORBIDDEN, Constraint
from mtn_edge.evaluation.copying import SessionCopies, Shares
from mtn_edge.evaluation.ngram_rows import Rows, highest
from mtn_edge.ngram.model import NGram
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import IMPOSSIBLE, NO_FLOOR, Hypotheses, SessionState
from mtn_edge.runtime.search import WIDEST_BEAM
from mtn_edge.tokenizer import BOS, EOS, PAD

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

_TINY = np.finfo(np.float32).tiny
_SESSIONS = 16
"""Sessions whose copies are kept."""


class _Beam(NamedTuple):
    """The live hypotheses of a search."""

    contexts: Integers
    """[n, order - 1] see `NGram`."""
    before: list[tuple[int, ...]]
    """The last two tokens of each; `<bos>` alone at the start."""
    states: Integers
    """[n] of the constraint."""


class NgramEngine:
    """See `runtime.engine.Engine`.

    Args:
        model: the n-gram.
        shares: how much is copied from the session (see `copying`); None copies nothing.
        max_tokens: tokens of a query that are read and written.
        max_queries: earlier queries that are seen.
    """

    def __init__(
        self, model: NGram, shares: Shares | None = None, *, max_tokens: int = 32, max_queries: int = 32
    ) -> None:
        self.vocab_size = len(model.unigram)
        self.max_tokens, self.max_queries = max_tokens, max_queries
        self._model, self._shares = model, shares
        self._rows = Rows(model, WIDEST_BEAM)
        self._copies = lru_cache(_SESSIONS)(self._read_session)

    def start(self) -> SessionState:
        """See `Engine.start`."""
        return {"session_text": np.zeros(0, np.int64)}

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        return {"session_text": np.concatenate([state["session_text"], [BOS, *tokens, EOS]])}

    def search(
        self,
        state: SessionState,
        constraint: Constraint,
        *,
        beam: int,
        max_steps: int,
        floor: float = NO_FLOOR,
        call: Call | None = None,
    ) -> Hypotheses:
        """See `Engine.search`; the call is looked at between steps."""
        table = constraint.next_state
        copies = self._copies(state["session_text"].tobytes()) if self._shares is not None else None
        hypotheses = self._settle(constraint)
        mass = self._mass(hypotheses, table, copies)
        tokens = np.empty((beam, 0), dtype=np.int64)
        scores = np.full(beam, IMPOSSIBLE)
        live, live_scores, ended = np.zeros(1, np.int64), np.zeros(1), np.arange(1, beam)
        for step in range(max_steps):
            if call is not None:
                call.check()
            picks, chance = self._continuations(hypotheses, table, copies, beam)  # [n, c]
            gain = np.where(chance > 0, np.log(np.maximum(chance, _TINY)), IMPOSSIBLE)
            candidates = np.concatenate([scores[ended], (live_scores[:, None] + gain).ravel()])
            place = highest(candidates, beam)
            parent = np.concatenate([ended, np.repeat(live, picks.shape[1])])[place]
            last = np.concatenate([np.full(len(ended), PAD), picks.ravel()])[place]
            scores = candidates[place]
            tokens = np.concatenate([tokens[parent], last[:, None]], axis=1)
            goes_on = (last > EOS) & (scores > mass + floor)
            alive, ended = np.flatnonzero(goes_on), np.flatnonzero(~goes_on)
            if not len(alive) or step + 1 == max_steps:
                break
            rows = np.searchsorted(live, parent[alive])
            live, live_scores = alive, scores[alive]
            hypotheses = _Beam(
                self._model.advance(hypotheses.contexts[rows], last[alive]),
                [
                    (hypotheses.before[row][-1], token)
                    for row, token in zip(rows.tolist(), last[alive].tolist(), strict=True)
                ],
                table[hypotheses.states[rows], last[alive]].astype(np.int64) - 1,
            )
        return Hypotheses(tokens, scores.astype(np.float32), mass)

    def _settle(self, constraint: Constraint) -> _Beam:
        """The one hypothesis that a search begins with: the settled tokens."""
        contexts = self._model.start
        for token in constraint.start_tokens[1:]:
            contexts = self._model.advance(contexts, np.array([token]))
        before = tuple(constraint.start_tokens[-2:].tolist())
        return _Beam(contexts, [before], np.array([constraint.start_state]))

    def _mass(self, hypotheses: _Beam, table: NDArray[np.uint8], copies: SessionCopies | None) -> float:
        """Log-probability of all tokens that the first step allows."""
        allowed = table[hypotheses.states[0]] != FORBIDDEN
        block, rows = self._rows.of(hypotheses.contexts)
        mass = float(block.chance[rows[0]].sum(where=allowed, dtype=np.float64))
        if copies is not None:
            factor, copied = copies.mix(hypotheses.before[0])
            mass = factor * mass + float(copied.sum(where=allowed[copies.tokens]))
        return float(np.log(mass)) if mass > 0 else IMPOSSIBLE

    def _continuations(
        self, hypotheses: _Beam, table: NDArray[np.uint8], copies: SessionCopies | None, beam: int
    ) -> tuple[Integers, Floats]:
        """Tokens [n, c] among which are the best `beam` of each hypothesis, and their probabilities, 0 if forbidden."""
        block, rows = self._rows.of(hypotheses.contexts)
        tried = 2 * beam  # mostly half of them are allowed
        picks = block.best[rows, :tried]
        allowed = table[hypotheses.states[:, None], picks] != FORBIDDEN
        chance = np.where(allowed, block.of_best[rows, :tried], np.float32(0))
        for place in np.flatnonzero(allowed.sum(axis=1) < beam):
            found = _allowed(block.chance[rows[place]], table[hypotheses.states[place]], picks.shape[1])
            picks[place], chance[place] = found
        if copies is None:
            return picks, chance
        mixed = [copies.mix(before) for before in hypotheses.before]
        factor = np.array([factor for factor, _ in mixed], dtype=np.float32)[:, None]
        copied = block.chance[rows[:, None], copies.tokens] * factor + np.array([part for _, part in mixed])
        copied *= table[hypotheses.states[:, None], copies.tokens] != FORBIDDEN
        again = copies.offered(self.vocab_size)[picks]  # these stand among the copied ones
        chance = np.where(again, np.float32(0), chance * factor)
        tokens = np.repeat(copies.tokens[None], len(picks), axis=0)
        return np.concatenate([picks, tokens], axis=1), np.concatenate([chance, copied], axis=1)

    def _read_session(self, text: bytes) -> SessionCopies:
        assert self._shares is not None
        return SessionCopies(np.frombuffer(text, dtype=np.int64).tolist(), self._shares)


def _allowed(chances: Floats, next_state: NDArray[np.uint8], wanted: int) -> tuple[Integers, Floats]:
    """The best `wanted` tokens [wanted] that a state allows; where there are fewer, some of chance 0."""
    allowed = np.flatnonzero(next_state)
    chance = chances[allowed]
    if len(allowed) > wanted:
        best = highest(chance, wanted)
        return allowed[best], chance[best]
    picks, padded = np.full(wanted, PAD), np.zeros(wanted, np.float32)
    picks[: len(allowed)], padded[: len(allowed)] = allowed, chance
    return picks, padded
