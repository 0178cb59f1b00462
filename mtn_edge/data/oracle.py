"""What the best possible system would answer on simulated logs: exact Bayes over the simulator's chain.

It knows the simulator (`synthetic.Chain`) and the texts of the session so far, nothing else: neither the states behind
them nor the user's favourite kind, over all of which it sums. Few states agree with the texts so far (mostly fewer than
twenty), so the belief about (state, favourite) is a small table, and the posterior of the next text is exact. It is the
posterior given that there is a next query; the end of a session depends on nothing and tells nothing.

The equations stand in `docs/simulator.md`. Legend: n states of a belief, u favourite kinds, x texts, w successors.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtn_edge.data.synthetic import Chain, World, build
from mtn_edge.errors import UserError
from mtn_edge.evaluation.metrics import CUT

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT, VERSION = "mtn-edge oracle", 1


class Oracle:
    """Answers about the sessions of one world."""

    def __init__(self, chain: Chain) -> None:
        self._tables = _Tables(chain)

    @classmethod
    def load(cls, path: Path) -> Oracle:
        """The oracle of the log that `path`, a file `*.oracle.jsonl`, was written beside.

        Raises:
            UserError: there is no such file, or it is none of these, or another version of the simulator wrote it.
        """
        header = read_header(path)
        chain = build(World(difficulty=header["difficulty"]))
        if chain.texts != header["texts"]:
            raise _other_version(path)
        return cls(chain)

    @property
    def texts(self) -> list[str]:
        """All texts that the simulator can produce, sorted."""
        return self._tables.chain.texts

    def start(self) -> OracleSession:
        """An empty session of a user of whom nothing is known."""
        return OracleSession(self._tables, None)


class OracleSession:
    """One session, as far as it has come."""

    def __init__(self, tables: _Tables, belief: _Belief | None) -> None:
        self._tables = tables
        self._belief = belief

    def append(self, query: str) -> None:
        """Takes note that `query` (normal form) was searched.

        Raises:
            UserError: the simulator cannot have produced it here.
        """
        text = self._number(query)
        self._belief = self._tables.first(text) if self._belief is None else self._belief.after(text)

    def candidates(self, prefix: str) -> list[str]:
        """The ten most probable next queries that start with `prefix` (normal form) and are longer, best first.

        A query that equals the prefix without its blanks at the end does not count as longer.
        """
        return [self._tables.chain.texts[number] for number in self.top(prefix)[0]]

    def top(self, prefix: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The same as numbers of texts (see `Oracle.texts`), and their probabilities.

        Probabilities that agree in the precision of float32 (7 digits) count as equal; equal ones come in the order of
        their texts. Probabilities are of the whole query given the session, not given the prefix.
        """
        texts = self._tables.chain.texts
        low, high = bisect_left(texts, prefix), bisect_left(texts, f"{prefix}\U0010ffff")
        probability = self.probabilities[low:high]
        key = probability.astype(np.float32)
        echo = bisect_left(texts, prefix.rstrip(" "))
        if low <= echo < high and texts[echo] == prefix.rstrip(" "):
            key[echo - low] = 0
        least = np.partition(key, len(key) - CUT)[len(key) - CUT] if len(key) > CUT else 0
        at = np.flatnonzero((key >= least) & (key > 0))
        at = at[np.argsort(-key[at], kind="stable")][:CUT]
        return at + low, probability[at]

    def log_probability(self, query: str) -> float:
        """Log-probability (nats) that `query` (normal form) comes next, given that a query comes.

        Raises:
            UserError: the simulator cannot produce it here.
        """
        return math.log(self.probabilities[self._number(query)])

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """[x] probability that each text comes next, given that a query comes."""
        return self._tables.opening if self._belief is None else self._belief.next

    def _number(self, query: str) -> int:
        texts = self._tables.chain.texts
        at = bisect_left(texts, query)
        if at == len(texts) or texts[at] != query:
            reason = "is no query of the simulator's"
        elif self.probabilities[at] <= 0:
            reason = "cannot follow the earlier queries of its session in the simulator"
        else:
            return at
        raise UserError(
            f"`{query}` {reason}, so there is no ceiling for this log",
            code="not-simulated",
            hint="take the oracle file of this very log, and prepare the log with --min-users 1",
        )


class _Tables:
    """What does not change from session to session."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        kinds, starts = len(chain.world.kinds), len(chain.first)
        states = (np.arange(kinds)[:, None] * chain.per_kind + chain.first).ravel()
        of_text = chain.text[states]
        per_kind = np.zeros((kinds, len(chain.texts)))
        np.add.at(per_kind, (np.repeat(np.arange(kinds), starts), of_text), np.tile(chain.first_weight, kinds))
        self.fresh: NDArray[np.float64] = chain.topic @ per_kind
        """[u, x] probability of each text as the first of a topic, for each favourite."""
        self.opening: NDArray[np.float64] = chain.favourite @ self.fresh
        """[x] probability of each text as the first of a session."""
        order = np.argsort(of_text, kind="stable")
        self._start = states[order]
        self._weight = np.tile(chain.first_weight, kinds)[order]
        self._bounds = np.searchsorted(of_text[order], np.arange(len(chain.texts) + 1))

    def starts(self, text: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """First states of a topic with this text, [n], and their probabilities for each favourite, [n, u]."""
        part = slice(self._bounds[text], self._bounds[text + 1])
        states = self._start[part]
        return states, self._weight[part, None] * self.chain.topic.T[states // self.chain.per_kind]

    def first(self, text: int) -> _Belief:
        """The belief after a first query."""
        states, weights = self.starts(text)
        return _Belief(self, text, states, weights * self.chain.favourite / self.opening[text])


@dataclass(frozen=True)
class _Belief:
    """P(state, favourite | texts so far)."""

    tables: _Tables
    text: int
    """The last text."""
    states: NDArray[np.int64]
    """[n] the states that it may stand for."""
    weight: NDArray[np.float64]
    """[n, u]; the sum of all is 1."""

    @cached_property
    def _moves(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """States one move on [n, w], their texts, and the moves' probabilities (the text before is impossible)."""
        chain = self.tables.chain
        block, local = np.divmod(self.states, chain.local)
        to = block[:, None] * chain.local + chain.to[local]
        text = chain.text[to]
        move = chain.move[local] * (1 - chain.new[local])[:, None] * (text != self.text)
        return to, text, move

    @cached_property
    def _left(self) -> NDArray[np.float64]:
        """[n, u] belief over the probability of all that may come: what is impossible leaves its share to the rest."""
        new = self.tables.chain.new[self.states % self.tables.chain.local]
        fresh = 1 - self.tables.fresh[:, self.text]
        return np.asarray(self.weight / (self._moves[2].sum(axis=1)[:, None] + new[:, None] * fresh))

    @cached_property
    def _new(self) -> NDArray[np.float64]:
        """[u] probability that a new topic starts, with each favourite."""
        return np.asarray(self.tables.chain.new[self.states % self.tables.chain.local] @ self._left)

    @cached_property
    def next(self) -> NDArray[np.float64]:
        """[x] probability of each next text."""
        _, text, move = self._moves
        weights = (self._left.sum(axis=1)[:, None] * move).ravel()
        moved = np.bincount(text.ravel(), weights, minlength=len(self.tables.chain.texts))
        found = np.asarray(moved + self._new @ self.tables.fresh)
        found[self.text] = 0
        return found

    def after(self, query: int) -> _Belief:
        """The belief once the next text is known, which must be possible."""
        to, text, move = self._moves
        row, column = np.nonzero((text == query) & (move > 0))
        moved = self._left[row] * move[row, column][:, None]
        starts, fresh = self.tables.starts(query)
        states, place = np.unique(np.concatenate([to[row, column], starts]), return_inverse=True)
        weight = np.zeros((len(states), self._left.shape[1]))
        np.add.at(weight, place, np.concatenate([moved, fresh * self._new]))
        return _Belief(self.tables, query, states, weight / self.next[query])


def read_header(path: Path) -> dict[str, Any]:
    """The first line of an oracle file.

    Raises:
        UserError: there is no such file, or it is none of these, or another version of the simulator wrote it.
    """
    try:
        with path.open(encoding="utf-8") as file:
            header = json.loads(file.readline())
    except OSError as error:
        raise UserError(
            f"`{path}` cannot be read ({error.strerror})",
            code="unreadable",
            hint="name the file *.oracle.jsonl that `mtn-edge data synth` wrote beside its log",
        ) from error
    except ValueError as error:
        raise _no_oracle(path) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _no_oracle(path)
    if header.get("version") != VERSION:
        raise _other_version(path)
    if not isinstance(header.get("difficulty"), int | float) or not isinstance(header.get("texts"), list):
        raise _no_oracle(path)
    return header


def _no_oracle(path: Path) -> UserError:
    return UserError(
        f"`{path}` is no oracle file",
        code="wrong-format",
        hint="name the file *.oracle.jsonl that `mtn-edge data synth` wrote beside its log",
    )


def _other_version(path: Path) -> UserError:
    return UserError(
        f"`{path}` was written by another version of the simulator",
        code="other-version",
        hint="make the log and its oracle again with `mtn-edge data synth`",
    )
