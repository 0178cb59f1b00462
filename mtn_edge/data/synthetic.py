"""A simulator of search sessions: a Markov chain whose state the last query alone does not show.

State of a session (what the searcher has in mind): z = (k, i, m, e, f, a, s, t)

    k kind of thing       i intent (which attributes matter)     m manner: explore one thing, or compare rivals
    e thing searched      f the thing before it, or none         a attribute asked last, or none
    s shape of the query: bare `e`, full `e a`, alone `a`, versus `f vs e`      t whether it is misspelt

The query is a function of z. Bare hides a, i and m; alone hides e and k; full hides f and m: so what comes next depends
on more of the session than on its last query. With u the user, whose favourite kind is drawn from P(k) ~ 1/(k+1)^0.6:

    start   k: favourite with 0.6, else P(k) · i: INTENT · m: MANNER · e: P(e | k) ~ 1/(e+1)^0.5 · f = none
            bare (a = none) with 0.6, else full with a ~ FIRST · t ~ TYPO
    then    end with END; if misspelt, the same z spelt right with CORRECT; else a move by MOVES[m][s]
            (a move that needs f or a and has none is impossible, the others share its probability):
      refine   bare, versus, alone: full(e, a, or a ~ FIRST when none) · full: full(e, a' ~ NEXT after a)
      switch   a rival e' of e, RIVAL in the order of its group, never f: f = e; bare stays bare, else full(e', a)
      strip    a rival likewise, bare(e'), a kept in mind
      ellipse  alone(a' ~ NEXT after a, or FIRST)        versus   versus(f, e)        back   e and f change places, full
      new      start again in the same session with another state
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mtn_edge.data.synthetic_words import ATTRIBUTES, GROUPS, INTENTS, KINDS, RIVALS

if TYPE_CHECKING:
    from numpy.typing import NDArray

THINGS = GROUPS * RIVALS
NONE = -1
BARE, FULL, ALONE, VERSUS = range(4)
EXPLORE, COMPARE = range(2)
REFINE, SWITCH, STRIP, ELLIPSE, BOTH, BACK, NEW = range(7)

SESSIONS_PER_USER = 3
FAVOURITE, KIND_ZIPF, THING_ZIPF = 0.6, 0.6, 0.5
INTENT = (0.5, 0.3, 0.2)
MANNER = (0.55, 0.45)
START_BARE = 0.6
FIRST = (0.7, 0.2, 0.1)
"""Attribute asked first, in the order of the intent."""
NEXT = 0.85
"""The next attribute is the one after it in the order (round and round); else the other one."""
RIVAL = (0.7, 0.2, 0.1)
"""The next, second and third thing of the group, round and round."""
END, TYPO, CORRECT = 0.22, 0.02, 0.7
MOVES = (
    (  # explore:  refine switch strip ellipse versus back new
        (0.80, 0.04, 0.00, 0.12, 0.00, 0.00, 0.04),  # after bare
        (0.44, 0.04, 0.04, 0.44, 0.00, 0.00, 0.04),  # after full
        (0.60, 0.04, 0.00, 0.32, 0.00, 0.00, 0.04),  # after alone
        (0.70, 0.00, 0.00, 0.06, 0.00, 0.20, 0.04),  # after versus
    ),
    (  # compare
        (0.62, 0.12, 0.00, 0.00, 0.22, 0.00, 0.04),
        (0.04, 0.30, 0.36, 0.00, 0.22, 0.04, 0.04),
        (0.30, 0.50, 0.16, 0.00, 0.00, 0.00, 0.04),
        (0.40, 0.00, 0.20, 0.00, 0.00, 0.36, 0.04),
    ),
)


@dataclass
class States:
    """The states of some sessions at one time; each an array [sessions] of int64."""

    kind: NDArray[np.int64]
    intent: NDArray[np.int64]
    manner: NDArray[np.int64]
    thing: NDArray[np.int64]
    """0 to 19 within its kind."""
    former: NDArray[np.int64]
    """Likewise, or NONE."""
    attribute: NDArray[np.int64]
    """0 to 2 within the intent, or NONE."""
    shape: NDArray[np.int64]
    misspelt: NDArray[np.int64]

    def take(self, at: NDArray[np.int64] | NDArray[np.bool_]) -> States:
        """The states of some of the sessions."""
        return States(**{name: values[at] for name, values in vars(self).items()})

    def put(self, at: NDArray[np.bool_], states: States) -> None:
        """Replaces the states of the sessions where `at` holds."""
        for name, values in vars(self).items():
            values[at] = getattr(states, name)


@dataclass(frozen=True)
class Simulation:
    """Sessions in order; the queries of a session one after another."""

    user: NDArray[np.int64]
    """[sessions] its user, from 0."""
    session: NDArray[np.int64]
    """[queries] the session of each query."""
    states: States
    """[queries] the state behind each query."""


def simulate(sessions: int, rng: np.random.Generator) -> Simulation:
    """Draws `sessions` sessions of about a third as many users."""
    users = -(-sessions // SESSIONS_PER_USER)
    user = np.sort(rng.integers(users, size=sessions))
    favourite = _draw(rng, zipf(len(KINDS), KIND_ZIPF), users)
    now = start(favourite[user], rng)
    alive = np.arange(sessions)
    steps: list[tuple[NDArray[np.int64], States]] = []
    while len(alive):
        steps.append((alive, now))
        going = rng.random(len(alive)) >= END
        alive, now = alive[going], now.take(going)
        now = move(now, favourite[user[alive]], rng)
    session = np.concatenate([index for index, _ in steps])
    order = np.argsort(session, kind="stable")
    states = States(
        **{name: np.concatenate([getattr(state, name) for _, state in steps])[order] for name in vars(steps[0][1])}
    )
    return Simulation(user, session[order], states)


def start(favourite: NDArray[np.int64], rng: np.random.Generator) -> States:
    """First states of sessions whose users have these favourite kinds."""
    size = len(favourite)
    kind = np.where(rng.random(size) < FAVOURITE, favourite, _draw(rng, zipf(len(KINDS), KIND_ZIPF), size))
    bare = rng.random(size) < START_BARE
    return States(
        kind=kind,
        intent=_draw(rng, np.array(INTENT), size),
        manner=_draw(rng, np.array(MANNER), size),
        thing=_draw(rng, zipf(THINGS, THING_ZIPF), size),
        former=np.full(size, NONE),
        attribute=np.where(bare, NONE, _draw(rng, np.array(FIRST), size)),
        shape=np.where(bare, BARE, FULL),
        misspelt=_typos(size, rng),
    )


def move(old: States, favourite: NDArray[np.int64], rng: np.random.Generator) -> States:
    """One step of the chain for each session, none of which ends here."""
    size = len(old.kind)
    new = old.take(np.arange(size))
    new.misspelt = _typos(size, rng)
    correct = (old.misspelt == 1) & (rng.random(size) < CORRECT)
    weights = np.array(MOVES)[old.manner, old.shape]  # [sessions, moves]
    without = old.former == NONE
    weights[without, BOTH] = weights[without, BACK] = 0
    moved = np.where(correct, NONE, _draw_rows(rng, weights))

    asked = np.where(old.attribute == NONE, _draw(rng, np.array(FIRST), size), _next_attribute(old.attribute, rng))
    known = np.where(old.attribute == NONE, asked, old.attribute)
    rival = _rival(old, rng)
    bare = old.shape == BARE

    refine, switch, strip, ellipse, both, back = (
        moved == name for name in (REFINE, SWITCH, STRIP, ELLIPSE, BOTH, BACK)
    )
    new.attribute = np.where(ellipse | (refine & (old.shape == FULL)), asked, old.attribute)
    new.attribute = np.where(back | (refine & ~(old.shape == FULL)) | (switch & ~bare), known, new.attribute)
    new.thing = np.where(switch | strip, rival, np.where(back, old.former, old.thing))
    new.former = np.where(switch | strip | back, old.thing, old.former)
    new.shape = np.select(
        [refine | back | (switch & ~bare), strip | (switch & bare), ellipse, both],
        [FULL, BARE, ALONE, VERSUS],
        old.shape,
    )
    new.misspelt[correct] = 0
    again = moved == NEW
    new.put(again, start(favourite[again], rng))
    return new


def _typos(size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return (rng.random(size) < TYPO).astype(np.int64)


def _next_attribute(attribute: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    return (attribute + np.where(rng.random(len(attribute)) < NEXT, 1, 2)) % ATTRIBUTES


def _rival(old: States, rng: np.random.Generator) -> NDArray[np.int64]:
    """Another thing of the same group, and not the one before."""
    group, place = np.divmod(old.thing, RIVALS)
    others = (place[:, None] + np.arange(1, RIVALS)) % RIVALS + RIVALS * group[:, None]  # [sessions, rivals - 1]
    weights = np.where(others == old.former[:, None], 0.0, np.array(RIVAL))
    return np.asarray(others[np.arange(len(place)), _draw_rows(rng, weights)])


def zipf(size: int, power: float) -> NDArray[np.float64]:
    """Probabilities ~ 1 / (rank + 1)^power."""
    weights = (np.arange(size) + 1.0) ** -power
    return np.asarray(weights / weights.sum())


def _draw(rng: np.random.Generator, probabilities: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    return np.asarray(np.searchsorted(np.cumsum(probabilities)[:-1], rng.random(size), side="right"))


def _draw_rows(rng: np.random.Generator, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """One draw for each row of `weights` [rows, choices]."""
    total = np.cumsum(weights, axis=1)
    return np.asarray(np.sum((rng.random(len(weights)) * total[:, -1])[:, None] >= total, axis=1))


class Phrases:
    """The text of each state: a table over everything that a text depends on."""

    def __init__(self) -> None:
        count = len(KINDS)
        asks = INTENTS * ATTRIBUTES
        bare = [thing for kind in KINDS for thing in kind.things]
        full = [pattern.format(thing) for kind in KINDS for thing in kind.things for pattern, _ in kind.attributes]
        alone = [word for kind in KINDS for _, word in kind.attributes]
        versus = [f"{one} vs {two}" for kind in KINDS for one in kind.things for two in kind.things]
        texts = [*bare, *full, *alone, *versus]
        self._base = np.cumsum([0, len(bare), len(full), len(alone)])
        self.texts = np.array([*texts, *map(misspell, texts)], dtype=object)
        assert len(versus) == count * THINGS * THINGS
        assert len(alone) == count * asks

    def index(self, states: States) -> NDArray[np.int64]:
        """Where in `texts` the text of each state stands."""
        thing = states.kind * THINGS + states.thing
        ask = states.intent * ATTRIBUTES + states.attribute
        asks = INTENTS * ATTRIBUTES
        places = [thing, thing * asks + ask, states.kind * asks + ask, 0]
        places[VERSUS] = (states.kind * THINGS + states.former) * THINGS + states.thing
        at = np.choose(states.shape, [base + place for base, place in zip(self._base, places, strict=True)])
        return np.asarray(at + states.misspelt * (len(self.texts) // 2))


def misspell(text: str) -> str:
    """The usual misspelling of a text: two letters in the middle of its first longest word change places."""
    word = max(text.split(" "), key=len)
    half = len(word) // 2
    wrong = word[: half - 1] + word[half] + word[half - 1] + word[half + 1 :]
    return text.replace(word, wrong, 1)
