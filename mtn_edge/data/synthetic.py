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
            (a move that needs f or a rival and has none is impossible, the others share its probability):
      refine   bare, versus, alone: full(e, a, or a ~ FIRST when none) · full: full(e, a' ~ NEXT after a)
      switch   a rival e' of e, RIVAL in the order of its group, never f: f = e; bare stays bare, else full(e', a)
      strip    a rival likewise, bare(e'), a kept in mind        drop     bare(e), a kept in mind
      ellipse  alone(a' ~ NEXT after a, or FIRST)                versus   versus(f, e)
      back     e and f change places, full                       new      start again with another state
            t ~ TYPO. What would have the text of the query before is impossible: all else shares its probability.

`docs/simulator.md` states it in full. Here are its tables: who may come after whom, and the text of each state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mtn_edge.data.synthetic_words import ATTRIBUTES, GROUPS, INTENTS, KINDS, RIVALS, Kind
from mtn_edge.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

BARE, FULL, ALONE, VERSUS = SHAPES = range(4)
EXPLORE, COMPARE = MANNERS = range(2)
REFINE, SWITCH, STRIP, DROP, ELLIPSE, BOTH, BACK, NEW = range(8)

FAVOURITE, KIND_ZIPF, THING_ZIPF = 0.6, 0.6, 0.5
INTENT = (0.5, 0.3, 0.2)
MANNER = (0.55, 0.45)
START_BARE = 0.6
FIRST = (0.7, 0.2, 0.1)
"""Attribute asked first, in the order of the intent."""
NEXT = (0.85, 0.15)
"""The next attribute: one or two places on in the order of the intent, round and round."""
RIVAL = (0.7, 0.2, 0.1)
"""The next, second and third thing of the group, round and round."""
END, TYPO, CORRECT = 0.22, 0.02, 0.7
MOVES = (
    (  # explore: refine switch strip drop ellipse versus back new
        (0.80, 0.04, 0.00, 0.00, 0.12, 0.00, 0.00, 0.04),  # after bare
        (0.43, 0.04, 0.03, 0.03, 0.43, 0.00, 0.00, 0.04),  # after full
        (0.60, 0.04, 0.00, 0.00, 0.32, 0.00, 0.00, 0.04),  # after alone
        (0.67, 0.00, 0.00, 0.03, 0.06, 0.00, 0.20, 0.04),  # after versus
    ),
    (  # compare
        (0.62, 0.12, 0.00, 0.00, 0.00, 0.22, 0.00, 0.04),
        (0.04, 0.29, 0.34, 0.03, 0.00, 0.22, 0.04, 0.04),
        (0.30, 0.50, 0.16, 0.00, 0.00, 0.00, 0.00, 0.04),
        (0.38, 0.00, 0.19, 0.03, 0.00, 0.00, 0.36, 0.04),
    ),
)


@dataclass(frozen=True, kw_only=True)
class World:
    """What there is to search for, and how reliably a wish becomes the usual query."""

    kinds: tuple[Kind, ...] = KINDS
    groups: int = GROUPS
    rivals: int = RIVALS
    intents: int = INTENTS
    attributes: int = ATTRIBUTES
    difficulty: float = 1.0
    """X: every choice of how a topic is searched (not of the topic itself) has probabilities ~ p^(1/X)."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.difficulty) and self.difficulty > 0):
            raise UserError(
                f"`--difficulty` is {self.difficulty}, and it must be a number above 0",
                code="bad-setting",
                hint="take 1, less for sessions that are easier to foretell, more for harder ones",
            )
        assert all(len(kind.things) == self.groups * self.rivals for kind in self.kinds)
        assert all(len(kind.attributes) == self.intents * self.attributes for kind in self.kinds)

    def choice(self, weights: Sequence[float]) -> NDArray[np.float64]:
        """Probabilities of a choice at this difficulty; weights of 0 stay impossible, all of them 0 stay so."""
        given = np.array(weights)
        # The largest becomes 1 first: small powers of small numbers would all be 0.
        sharp = (given / max(given.max(), 1e-300)) ** (1 / self.difficulty) * (given > 0)
        return np.asarray(sharp / max(sharp.sum(), 1e-300))


@dataclass(frozen=True)
class Chain:
    """The tables of a world. A state is one number: `np.ravel_multi_index` of its parts over `shape`.

    Parts in order: k, i, group of e, m, e in its group, f as steps from e round the group (0: none), a (0: none, then
    from 1), s, t. A move changes only the last six (the local state, n of them) and follows the same table in every
    group of every kind. Legend: n local states, w most successors, u users' kinds, k kinds, z states, r starts.
    """

    world: World
    shape: tuple[int, ...]
    texts: list[str]
    """All texts, sorted."""
    text: NDArray[np.int32]
    """[z] number of the text of each state; -1 where the parts make no state."""
    to: NDArray[np.int64]
    """[n, w] local states one move away, `new` aside; filled up with 0."""
    move: NDArray[np.float64]
    """[n, w] their probabilities, given that the move is not `new`; filled up with 0."""
    new: NDArray[np.float64]
    """[n] probability of `new`."""
    favourite: NDArray[np.float64]
    """[u] probability of each favourite kind."""
    topic: NDArray[np.float64]
    """[u, k] probability of each kind when a topic starts."""
    first: NDArray[np.int64]
    """[r] first states of a topic, as a number within their kind (z = k * `per_kind` + it)."""
    first_weight: NDArray[np.float64]
    """[r] their probabilities."""

    @property
    def local(self) -> int:
        """n, the number of local states."""
        return len(self.new)

    @property
    def per_kind(self) -> int:
        """States of one kind."""
        return len(self.text) // len(self.world.kinds)


def build(world: World) -> Chain:
    """Computes the tables of a world."""
    shape = (
        *(len(world.kinds), world.intents, world.groups),
        *(len(MANNERS), world.rivals, world.rivals, world.attributes + 1, len(SHAPES), 2),
    )
    locals_ = [moves(world, *map(int, parts)) for parts in np.ndindex(*shape[3:])]
    width = max(len(found) for found, _ in locals_)
    to = np.zeros((len(locals_), width), np.int64)
    move = np.zeros((len(locals_), width))
    for row, (found, _) in enumerate(locals_):
        if found:
            to[row, : len(found)] = np.ravel_multi_index(np.array(list(found)).T, shape[3:])
            move[row, : len(found)] = list(found.values())
    kinds = zipf(len(world.kinds), KIND_ZIPF)
    texts, text = _texts(world, shape)
    first, first_weight = _first_states(world, shape)
    return Chain(
        world=world,
        shape=shape,
        texts=texts,
        text=text,
        to=to,
        move=move,
        new=np.array([new for _, new in locals_]),
        favourite=kinds,
        topic=FAVOURITE * np.eye(len(kinds)) + (1 - FAVOURITE) * kinds,
        first=first,
        first_weight=first_weight,
    )


Local = tuple[int, int, int, int, int, int]


def moves(
    world: World, manner: int, place: int, former: int, attribute: int, shape: int, misspelt: int
) -> tuple[dict[Local, float], float]:
    """The local states one move away with their probabilities given that it is not `new`, and that of `new`.

    Local states are the last six parts of a state (see `Chain`). Nothing follows parts that make no state.
    """
    found: dict[Local, float] = defaultdict(float)
    if (shape in (FULL, ALONE) and attribute == 0) or (shape == VERSUS and former == 0):
        return found, 0.0
    size, asks = world.rivals, world.attributes
    typos = world.choice((1 - TYPO, TYPO))

    def reach(probability: float, e: int, f: int, a: int, s: int) -> None:
        for t in range(2):
            if probability * typos[t] > 0:
                found[(manner, e % size, f, a, s, t)] += float(probability * typos[t])

    # What may be asked now, the attribute kept in mind or a first one, and the rivals, as steps round the group.
    if attribute:
        steps = world.choice(NEXT[: asks - 1])
        asked = {(attribute - 1 + step) % asks + 1: p for step, p in enumerate(steps, 1)}
        known = {attribute: 1.0}
    else:
        asked = known = dict(enumerate(world.choice(FIRST[:asks]), 1))
    weights = [0.0 if step == former else RIVAL[step - 1] for step in range(1, size)]
    rivals = dict(enumerate(world.choice(weights), 1)) if any(weights) else {}

    chances = list(MOVES[manner][shape])
    if not former:
        chances[BOTH] = chances[BACK] = 0.0
    if not rivals:
        chances[SWITCH] = chances[STRIP] = 0.0
    chance = world.choice(chances)
    for a, p in (asked if shape == FULL else known).items():
        reach(chance[REFINE] * p, place, former, a, FULL)
    for step, q in rivals.items():
        reach(chance[STRIP] * q, place + step, size - step, attribute, BARE)
        for a, p in ({attribute: 1.0} if shape == BARE else known).items():
            reach(chance[SWITCH] * q * p, place + step, size - step, a, BARE if shape == BARE else FULL)
    reach(chance[DROP], place, former, attribute, BARE)
    for a, p in asked.items():
        reach(chance[ELLIPSE] * p, place, former, a, ALONE)
    reach(chance[BOTH], place, former, attribute, VERSUS)
    for a, p in known.items():
        reach(chance[BACK] * p, place + former, size - former, a, FULL)
    correct = float(world.choice((CORRECT, 1 - CORRECT))[0]) if misspelt else 0.0
    new = (1 - correct) * float(chance[NEW])
    found = {state: (1 - correct) * p / (1 - new) for state, p in found.items()}
    if misspelt:
        right = (manner, place, former, attribute, shape, 0)
        found[right] = found.get(right, 0.0) + correct / (1 - new)
    return found, new


def _first_states(world: World, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How a topic starts within its kind: states that may, and their probabilities."""
    intents, manners = normalised(INTENT[: world.intents]), normalised(MANNER)
    things = zipf(world.groups * world.rivals, THING_ZIPF).reshape(world.groups, world.rivals)
    bare, full = world.choice((START_BARE, 1 - START_BARE))
    openings = [(0, BARE, bare)]
    openings += [(a, FULL, full * p) for a, p in enumerate(world.choice(FIRST[: world.attributes]), 1)]
    typos = world.choice((1 - TYPO, TYPO))
    found = {
        (i, g, m, e, 0, a, s, t): intents[i] * manners[m] * things[g, e] * p * typos[t]
        for i, g, m, e, (a, s, p), t in (
            (i, g, m, e, opening, t)
            for i in range(world.intents)
            for g in range(world.groups)
            for m in MANNERS
            for e in range(world.rivals)
            for opening in openings
            for t in range(2)
        )
        if p * typos[t] > 0
    }
    return np.ravel_multi_index(np.array(list(found)).T, shape[1:]), np.array(list(found.values()))


def _texts(world: World, shape: tuple[int, ...]) -> tuple[list[str], NDArray[np.int32]]:
    """All texts, sorted, and the number of each state's text among them."""
    size = world.rivals
    asks = world.intents * world.attributes
    bare = [thing for kind in world.kinds for thing in kind.things]
    full = [pattern.format(thing) for kind in world.kinds for thing in kind.things for pattern, _ in kind.attributes]
    alone = [word for kind in world.kinds for _, word in kind.attributes]
    versus = [
        f"{bare[at - at % size + (at + step) % size]} vs {e}" for at, e in enumerate(bare) for step in range(size)
    ]
    right = [*bare, *full, *alone, *versus]
    base = np.cumsum([0, len(bare), len(full), len(alone)])

    k, i, g, _, e, f, a, s, t = np.unravel_index(np.arange(math.prod(shape)), shape)
    thing = (k * world.groups + g) * size + e
    ask = i * world.attributes + np.maximum(a - 1, 0)
    places = [thing, thing * asks + ask, k * asks + ask, thing * size + f]
    at = np.choose(s, [base[number] + place for number, place in enumerate(places)]) + t * len(right)
    made = ~((a == 0) & ((s == FULL) | (s == ALONE)) | (f == 0) & (s == VERSUS))
    used = np.unique(at[made])
    every = [*right, *map(misspell, right)]
    texts = sorted({every[number] for number in used})
    numbers = {text: number for number, text in enumerate(texts)}
    table = np.full(len(every), -1, np.int32)
    table[used] = [numbers[every[number]] for number in used]
    return texts, np.where(made, table[at], -1).astype(np.int32)


def misspell(text: str) -> str:
    """The usual misspelling: two neighbouring letters of its first longest word, nearest its middle, change places.

    Words of a world have two different ones side by side.
    """
    word = max(text.split(" "), key=len)
    pairs = [place for place in range(len(word) - 1) if word[place] != word[place + 1]]
    at = min(pairs, key=lambda place: abs(place + 1 - len(word) // 2))
    return text.replace(word, word[:at] + word[at + 1] + word[at] + word[at + 2 :], 1)


def normalised(weights: Sequence[float]) -> NDArray[np.float64]:
    """Probabilities in the ratio of `weights`."""
    return np.array(weights) / sum(weights)


def zipf(size: int, power: float) -> NDArray[np.float64]:
    """Probabilities ~ 1 / (rank + 1)^power."""
    weights = (np.arange(size) + 1.0) ** -power
    return np.asarray(weights / weights.sum())
