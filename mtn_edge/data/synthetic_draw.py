"""Draws sessions from the simulator's chain, many at once, and when their queries are searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mtn_edge.data.synthetic import END, Chain

if TYPE_CHECKING:
    from numpy.typing import NDArray

MORE_SESSIONS = 2.0
"""Each user has one session and a Poisson number of others with this mean."""
DAYS = 92
PAUSE_SECONDS = (15, 400)
"""Shortest and longest pause between the queries of a session; evenly spread in its logarithm."""
APART_SECONDS = 1830
"""Shortest pause between sessions of a user: above the half hour that ends one, and the next page of a last query."""


@dataclass(frozen=True)
class Sessions:
    """Sessions by user and time; the queries of a session one after another."""

    user: NDArray[np.int64]
    """[sessions] its user, from 0."""
    length: NDArray[np.int64]
    """[sessions] its number of queries."""
    state: NDArray[np.int64]
    """[queries] the state behind each query."""
    second: NDArray[np.int64]
    """[queries] when it is searched, in seconds since the log begins."""

    @property
    def begin(self) -> NDArray[np.int64]:
        """[sessions] where its queries begin."""
        return np.asarray(np.cumsum(self.length) - self.length)

    def first(self, sessions: int) -> Sessions:
        """The first of the sessions."""
        queries = int(self.length[:sessions].sum())
        return Sessions(self.user[:sessions], self.length[:sessions], self.state[:queries], self.second[:queries])


class Simulator:
    """Draws from a chain."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._move = _ladder(chain.move)
        self._topic = _ladder(chain.topic)
        self._first = _ladder(chain.first_weight[None, :])
        self._favourite = _ladder(chain.favourite[None, :])

    def draw(self, users: int, rng: np.random.Generator) -> Sessions:
        """All sessions of some users."""
        user = np.repeat(np.arange(users), 1 + rng.poisson(MORE_SESSIONS, users))
        favourite = _climb(self._favourite, np.zeros(users, np.int64), rng)[user]
        alive = np.arange(len(user))
        now = self.start(favourite, rng)
        steps = [(alive, now)]
        while len(alive):
            going = rng.random(len(alive)) >= END
            alive = alive[going]
            now = self.follow(now[going], favourite[alive], rng)
            steps.append((alive, now))
        session = np.concatenate([index for index, _ in steps])
        order = np.argsort(session, kind="stable")
        state = np.concatenate([states for _, states in steps])[order]
        length = np.bincount(session, minlength=len(user))
        return Sessions(user, length, state, _seconds(user, length, rng))

    def start(self, favourite: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A first state of a topic for users with these favourite kinds."""
        kind = _climb(self._topic, favourite, rng)
        place = _climb(self._first, np.zeros(len(favourite), np.int64), rng)
        return np.asarray(kind * self._chain.per_kind + self._chain.first[place])

    def follow(
        self, state: NDArray[np.int64], favourite: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """The states after these, in sessions that go on; never one with the same text."""
        new = np.empty_like(state)
        left = np.arange(len(state))
        while len(left):
            new[left] = self._any(state[left], favourite[left], rng)
            left = left[self._chain.text[new[left]] == self._chain.text[state[left]]]
        return new

    def _any(
        self, state: NDArray[np.int64], favourite: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        block, local = np.divmod(state, self._chain.local)
        place = _climb(self._move, local, rng)
        new = block * self._chain.local + self._chain.to[local, place]
        again = rng.random(len(state)) < self._chain.new[local]
        new[again] = self.start(favourite[again], rng)
        return np.asarray(new)


def _ladder(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cumulative probabilities [rows, choices] of each row, plus the row's number: ascending all along."""
    total = np.cumsum(weights, axis=1)
    # Rows that no state reaches hold no weight: whatever is written there is never climbed.
    return np.asarray(total / np.maximum(total[:, -1:], 1e-300) + np.arange(len(weights))[:, None])


def _climb(ladder: NDArray[np.float64], row: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A choice for each of `row`."""
    # 40 bits, so that the sum with the row's number is exact and never reaches the next row.
    luck = np.floor(rng.random(len(row)) * 2.0**40) / 2.0**40
    return np.asarray(np.searchsorted(ladder.ravel(), row + luck, side="right") - row * ladder.shape[1])


def _seconds(user: NDArray[np.int64], length: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """When each query is searched: a user's sessions spread over the days, with room between them."""
    sessions, queries = len(user), int(length.sum())
    begin = np.cumsum(length) - length
    low, high = np.log(PAUSE_SECONDS)
    pause = np.exp(rng.uniform(low, high, queries)).astype(np.int64)
    pause[begin] = 0
    elapsed = np.cumsum(pause)
    elapsed -= np.repeat(elapsed[begin], length)

    turn = np.arange(sessions) - np.searchsorted(user, user)
    day = ((turn + rng.random(sessions)) * DAYS / np.bincount(user)[user]).astype(np.int64)
    # Round the clock, with a hump in the evening.
    wanted = day * 86400 + (rng.normal(17.0, 5.0, sessions) % 24 * 3600).astype(np.int64)
    wanted = wanted[np.lexsort((wanted, user))]
    # A session that would come too soon waits: its start is the latest of start_i + durations from i on, i of its user.
    duration = elapsed[begin + length - 1] + APART_SECONDS
    before = np.cumsum(duration) - duration
    far = int(before[-1] + wanted.max()) + 1
    start = np.maximum.accumulate(wanted - before + user * far) - user * far + before
    return np.asarray(np.repeat(start, length) + elapsed)
