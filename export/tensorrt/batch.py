"""Key presses as arrays of the two networks, and back: what a client of the engines does.

`BatchEngine` runs a batch in two calls. It is also an `Engine` (a batch of one), so that everything above the search,
from the constraint to the list of suggestions, is the product's own.

Shapes: B key presses, Q queries of the longest session with its start query, T token positions of a query, F settled
tokens, S states, V vocabulary, k slots of the beam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.tensorrt.sizes import Sizes
from mtn_edge.decoding.prefix_constraint import FORBIDDEN, Constraint
from mtn_edge.errors import UserError
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import NO_FLOOR, Hypotheses, SessionState
from mtn_edge.tokenizer import BOS, PAD

Arrays = dict[str, NDArray[Any]]
Network = Callable[[Mapping[str, NDArray[Any]]], Arrays]
"""Runs one of the networks: inputs by name to outputs by name."""
MEMORY = ("memory_keys", "memory_values", "memory_bias", "memory_state")
"""What the encoder gives and the search takes."""
_QUERIES = "session_queries"


class KeyPress(NamedTuple):
    """One search."""

    session: NDArray[np.int64]
    """[Q, T] tokens of the start query and of each earlier query, padded."""
    constraint: Constraint
    max_steps: int
    floor: float = NO_FLOOR


class BatchEngine:
    """The two networks as one engine.

    Args:
        encode: runs the encoder.
        search: runs the search.
        sizes: what they were made for.
    """

    def __init__(self, encode: Network, search: Network, sizes: Sizes) -> None:
        self._encode, self._search, self._sizes = encode, search, sizes
        self.vocab_size, self.max_tokens, self.max_queries = sizes.vocab_size, sizes.max_tokens, sizes.max_queries

    def run(self, presses: Sequence[KeyPress]) -> list[Hypotheses]:
        """Answers a batch, at most as large as the engines take.

        Raises:
            UserError: there are too many key presses, or none.
        """
        if not 1 <= len(presses) <= self._sizes.max_batch:
            raise UserError(
                f"a batch of {len(presses)} key presses was given, and the engines take 1 to {self._sizes.max_batch}",
                code="bad-argument",
                hint="send smaller batches, or build with a larger --max-batch",
            )
        memory = self._encode(encoder_feeds(presses))
        found = self._search({**memory, **search_feeds(presses)})
        rows = zip(found["tokens"], found["scores"], found["mass"], strict=True)
        return [Hypotheses(_cut(tokens), scores, float(mass)) for tokens, scores, mass in rows]

    def start(self) -> SessionState:
        """See `Engine.start`."""
        return {_QUERIES: self._query([BOS])}

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`: the session is kept as it is, and encoded with each search."""
        return {_QUERIES: np.concatenate([state[_QUERIES], self._query(tokens)])}

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
        """See `Engine.search`; the call is looked at before the search alone, and the steps are at most the engine's.

        Raises:
            UserError: another beam than the engine's is asked for.
        """
        press = self.press(state, constraint, beam=beam, max_steps=max_steps, floor=floor)
        if call is not None:
            call.check()
        return self.run([press])[0]

    def press(
        self, state: SessionState, constraint: Constraint, *, beam: int, max_steps: int, floor: float
    ) -> KeyPress:
        """A search as `run` takes it (see `Engine.search`).

        Raises:
            UserError: another beam than the engine's is asked for.
        """
        if beam != self._sizes.beam:
            raise UserError(
                f"a beam of {beam} was asked for, and the engine has one of {self._sizes.beam}",
                code="bad-argument",
                hint="ask for that many suggestions at most, or build with another --beam",
            )
        return KeyPress(state[_QUERIES], constraint, max_steps, floor)

    def _query(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        return _padded([np.asarray(tokens, dtype=np.int64)], self.max_tokens)


def encoder_feeds(presses: Sequence[KeyPress]) -> Arrays:
    """The encoder's inputs."""
    most = max(len(press.session) for press in presses)
    width = presses[0].session.shape[1]
    queries = np.full((len(presses), most, width), PAD, dtype=np.int64)
    for row, press in zip(queries, presses, strict=True):
        row[: len(press.session)] = press.session
    return {"queries": queries}


def search_feeds(presses: Sequence[KeyPress]) -> Arrays:
    """The search's inputs, without the memory."""
    constraints = [press.constraint for press in presses]
    starts = [constraint.start_tokens for constraint in constraints]
    most = max(len(constraint.next_state) for constraint in constraints)
    vocabulary = constraints[0].next_state.shape[1]
    table = np.full((len(presses), most, vocabulary), FORBIDDEN, dtype=np.uint8)
    for rows, constraint in zip(table, constraints, strict=True):
        rows[: len(constraint.next_state)] = constraint.next_state
    return {
        "start_tokens": _padded(starts, max(map(len, starts))),
        "next_state": table,
        "start_state": np.array([constraint.start_state for constraint in constraints], dtype=np.int64),
        "max_steps": np.array([press.max_steps for press in presses], dtype=np.int64),
        "floor": np.array([press.floor for press in presses], dtype=np.float32),
    }


def _padded(rows: Sequence[NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    array = np.full((len(rows), width), PAD, dtype=np.int64)
    for place, row in zip(array, rows, strict=True):
        place[: len(row)] = row
    return array


def _cut(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """[k, steps] without the last columns in which nothing is written."""
    used = np.flatnonzero((tokens != PAD).any(axis=0))
    return tokens[:, : used[-1] + 1 if used.size else 1]
