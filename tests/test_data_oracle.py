"""The oracle: equal to brute force over all state paths of a small world, and to frequencies in the large one."""

import json
import math
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.data import synthetic as sim
from mtn_edge.data.oracle import Oracle
from mtn_edge.data.synthetic import ALONE, BARE, FULL, VERSUS, Chain, World, build, misspell
from mtn_edge.data.synthetic_draw import Simulator
from mtn_edge.data.synthetic_words import Kind
from mtn_edge.errors import UserError
from mtn_edge.evaluation.metrics import CUT

# Texts that mean several things: `cat` misspelt is `act`, a thing of its own; `price` is asked of both kinds; and
# `dog price` is both a thing and what is asked about one.
TINY_KINDS = (
    Kind(
        "one", ("cat", "act", "dog"), (("{} price", "price"), ("{} food", "food"), ("{} age", "age"), ("my {}", "my"))
    ),
    Kind(
        "two",
        ("dog price", "elk", "fox"),
        (("{} cost", "price"), ("{} use", "use"), ("old {}", "old"), ("new {}", "new")),
    ),
)


def tiny(difficulty: float = 1.0) -> World:
    return World(kinds=TINY_KINDS, groups=1, rivals=3, intents=2, attributes=2, difficulty=difficulty)


State = tuple[int, int, int, int, int | None, int | None, int, int]
"""k, i, m, e, f, a, s, t."""


class Reference:
    """The tiny simulator once more, from the equations of the documentation: dictionaries over whole states."""

    def __init__(self, x: float) -> None:
        self.x = x

    def choice(self, weights: dict[int, float]) -> dict[int, float]:
        sharp = {name: weight ** (1 / self.x) for name, weight in weights.items() if weight}
        return {name: weight / sum(sharp.values()) for name, weight in sharp.items()}

    @cache  # noqa: B019
    def text(self, z: State) -> str:
        k, i, _, e, f, a, s, t = z
        kind = TINY_KINDS[k]
        if s == BARE:
            text = kind.things[e]
        elif s == VERSUS:
            assert f is not None
            text = f"{kind.things[f]} vs {kind.things[e]}"
        else:
            assert a is not None
            pattern, word = kind.attributes[2 * i + a]
            text = pattern.format(kind.things[e]) if s == FULL else word
        return misspell(text) if t else text

    @cache  # noqa: B019 (there is one instance a difficulty, as long as the tests)
    def start(self, favourite: int) -> dict[State, float]:
        zipf = [1.0, 2**-sim.KIND_ZIPF]
        things = [(e + 1) ** -sim.THING_ZIPF for e in range(3)]
        found = {}
        for k in range(2):
            kind = 0.6 * (k == favourite) + 0.4 * zipf[k] / sum(zipf)
            for i, intent in enumerate((5 / 8, 3 / 8)):
                for m, manner in enumerate(sim.MANNER):
                    for e, thing in enumerate(things):
                        rest = kind * intent * manner * thing / sum(things)
                        opening = self.choice({BARE: 0.6, FULL: 0.4})
                        for t, typo in self.choice({0: 0.98, 1: 0.02}).items():
                            found[(k, i, m, e, None, None, BARE, t)] = rest * opening[BARE] * typo
                            for a, asked in self.choice({0: 0.7, 1: 0.2}).items():
                                found[(k, i, m, e, None, a, FULL, t)] = rest * opening[FULL] * asked * typo
        return found

    @cache  # noqa: B019
    def after(self, z: State, favourite: int) -> dict[State, float]:
        """P(next state | state, favourite, going on), what has the same text left out."""
        k, i, m, e, f, a, s, t = z
        found: dict[State, float] = defaultdict(float)
        left = 1.0
        if t:
            correct = self.choice({0: 0.3, 1: 0.7})[1]
            found[(*z[:-1], 0)] += correct
            left -= correct
        weights = dict(enumerate(sim.MOVES[m][s]))
        rivals = {(e + 1) % 3: 0.7, (e + 2) % 3: 0.2}
        if f is None:
            weights[sim.BOTH] = weights[sim.BACK] = 0.0
        else:
            rivals[f] = 0.0
        rivals = self.choice(rivals)
        asked = self.choice({0: 0.7, 1: 0.2}) if a is None else {1 - a: 1.0}
        kept = asked if a is None else {a: 1.0}
        changed = (2 if s == BARE else 1) if s in (BARE, FULL, ALONE) else 0
        for move, p in self.choice(weights).items():
            p *= left
            to: dict[State, float] = {}
            if move == sim.REFINE:
                to = {(k, i, m, e, f, b, FULL, 0): q for b, q in (asked if s == FULL else kept).items()}
            elif move == sim.SWITCH and changed == 2:
                to = {(k, i, m, r, e, a, BARE, 0): q for r, q in rivals.items()}
            elif move == sim.SWITCH:
                to = {(k, i, m, r, e, b, FULL, 0): q * c for r, q in rivals.items() for b, c in kept.items()}
            elif move == sim.STRIP:
                to = {(k, i, m, r, e, a, BARE, 0): q for r, q in rivals.items()}
            elif move == sim.DROP:
                to = {(k, i, m, e, f, a, BARE, 0): 1.0}
            elif move == sim.ELLIPSE:
                to = {(k, i, m, e, f, b, ALONE, 0): q for b, q in asked.items()}
            elif move == sim.BOTH:
                to = {(k, i, m, e, f, a, VERSUS, 0): 1.0}
            elif move == sim.BACK:
                assert f is not None
                to = {(k, i, m, f, e, b, FULL, 0): q for b, q in kept.items()}
            if move == sim.NEW:
                for first, q in self.start(favourite).items():
                    found[first] += p * q
            for state, q in to.items():
                for typo, chance in self.choice({0: 0.98, 1: 0.02}).items():
                    found[(*state[:-1], typo)] += p * q * chance
        assert sum(found.values()) == pytest.approx(1)
        found = {state: p for state, p in found.items() if self.text(state) != self.text(z)}
        return {state: p / sum(found.values()) for state, p in found.items()}

    def paths(self, texts: list[str], favourite: int) -> list[tuple[State, float]]:
        """The last state and the probability of every path of states that has these texts."""
        found = [(z, p) for z, p in self.start(favourite).items() if self.text(z) == texts[0]]
        for text in texts[1:]:
            found = [
                (to, p * q) for z, p in found for to, q in self.after(z, favourite).items() if self.text(to) == text
            ]
        return found

    def next(self, texts: list[str]) -> dict[str, float]:
        """P(next text | texts): sums over favourites and over all paths, nothing merged on the way."""
        favourites = {0: 1.0, 1: 2**-sim.KIND_ZIPF}
        found: dict[str, float] = defaultdict(float)
        for u, weight in favourites.items():
            if not texts:
                for z, p in self.start(u).items():
                    found[self.text(z)] += weight * p
            else:
                for z, p in self.paths(texts, u):
                    for to, q in self.after(z, u).items():
                        found[self.text(to)] += weight * p * q
        return {text: p / sum(found.values()) for text, p in found.items()}


DIFFICULTIES = (0.5, 1.0, 2.0)
TINY = {x: build(tiny(x)) for x in DIFFICULTIES}
REFERENCES = {x: Reference(x) for x in DIFFICULTIES}


def drawn(chain: Chain, seed: int, users: int = 1) -> list[list[str]]:
    sessions = Simulator(chain).draw(users, np.random.default_rng(seed))
    texts = [chain.texts[number] for number in chain.text[sessions.state].tolist()]
    return [texts[at : at + size] for at, size in zip(sessions.begin.tolist(), sessions.length.tolist(), strict=True)]


def posterior(oracle: Oracle, texts: list[str]) -> dict[str, float]:
    session = oracle.start()
    for text in texts:
        session.append(text)
    return {text: p for text, p in zip(oracle.texts, session.probabilities.tolist(), strict=True) if p}


def test_the_tiny_world_is_ambiguous() -> None:
    meanings: dict[str, set[State]] = defaultdict(set)
    for z in REFERENCES[1.0].start(0):
        meanings[REFERENCES[1.0].text(z)].add(z)
    assert len({z[3] for z in meanings["act"]}) == 2
    assert len({z[0] for z in meanings["dog price"]}) == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(DIFFICULTIES))
def test_equal_to_brute_force_over_all_paths(seed: int, x: float) -> None:
    """After each query of a drawn session, up to four, as many texts and the same probabilities."""
    oracle = Oracle(TINY[x])
    session = drawn(TINY[x], seed)[0][:4]
    for position in range(len(session) + 1):
        assert posterior(oracle, session[:position]) == pytest.approx(REFERENCES[x].next(session[:position]), abs=1e-12)


@pytest.mark.parametrize(
    "texts",
    [
        ["act"],  # right, or `cat` misspelt
        ["act", "cat"],  # corrected, or a rival
        ["dog price", "dog price cost"],
        ["dog price", "dog food"],
        ["dog price", "fox"],
        ["cat", "price", "food"],
        ["cat price", "act", "cat vs act", "cat price"],
        ["cat food", "elk", "old elk"],  # a new topic: the favourite is in doubt again
    ],
)
def test_equal_to_brute_force_where_texts_are_ambiguous(texts: list[str]) -> None:
    assert posterior(Oracle(TINY[1.0]), texts) == pytest.approx(REFERENCES[1.0].next(texts), abs=1e-12)


LARGE = build(World())


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(LARGE)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_probabilities_sum_to_one_and_never_repeat_the_last_query(seed: int) -> None:
    session = Oracle(TINY[1.0]).start()
    assert session.probabilities.sum() == pytest.approx(1)
    for text in drawn(TINY[1.0], seed)[0]:
        score = session.log_probability(text)
        assert score == pytest.approx(math.log(session.probabilities[TINY[1.0].texts.index(text)]))
        session.append(text)
        assert session.probabilities.sum() == pytest.approx(1)
        assert session.probabilities.min() >= 0
        assert session.probabilities[TINY[1.0].texts.index(text)] == 0


def test_first_pairs_occur_as_often_as_stated(oracle: Oracle) -> None:
    """Chi-square of what follows the three most frequent first queries of the large world."""
    sessions = Simulator(LARGE).draw(120_000, np.random.default_rng(11))
    text = LARGE.text[sessions.state]
    longer = sessions.begin[sessions.length > 1]
    first, second = text[longer], text[longer + 1]
    for number, count in Counter(first.tolist()).most_common(3):
        session = oracle.start()
        session.append(oracle.texts[number])
        expected = count * session.probabilities
        observed = np.bincount(second[first == number], minlength=len(expected))
        assert observed[expected == 0].sum() == 0
        likely = expected >= 5
        rest = count - observed[likely].sum(), count - expected[likely].sum()
        chi = ((observed - expected)[likely] ** 2 / expected[likely]).sum() + (rest[0] - rest[1]) ** 2 / rest[1]
        freedom = int(likely.sum())
        assert freedom > 8
        assert chi < freedom + 5 * (2 * freedom) ** 0.5


def test_stated_probabilities_come_true(oracle: Oracle) -> None:
    """At every position of many sessions: of what is given probability p, a share p happens; and the nats agree."""
    stated: dict[tuple[int, int], list[tuple[float, bool]]] = defaultdict(list)
    surprise, entropy, spread = 0.0, 0.0, 0.0
    for texts in drawn(LARGE, 5, 600):
        session = oracle.start()
        for position, text in enumerate(texts):
            best, probability = session.top("")
            for rank, (number, p) in enumerate(zip(best.tolist(), probability.tolist(), strict=True)):
                stated[min(position, 3), rank].append((p, oracle.texts[number] == text))
            positive = session.probabilities[session.probabilities > 0]
            nats = -float(positive @ np.log(positive))
            entropy += nats
            surprise -= session.log_probability(text)
            spread += float(positive @ np.log(positive) ** 2) - nats**2
            session.append(text)
    assert abs(surprise - entropy) < 4 * spread**0.5
    for pairs in stated.values():
        p, happened = (np.array(part, float) for part in zip(*pairs, strict=True))
        assert abs((happened - p).sum()) < 4.5 * (p * (1 - p)).sum() ** 0.5 + 1


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 3), st.integers(0, 12))
def test_candidates_are_the_most_probable_that_go_on(seed: int, position: int, typed: int) -> None:
    oracle = Oracle(TINY[1.0])
    texts = drawn(TINY[1.0], seed)[0]
    at = min(position, len(texts) - 1)
    session = oracle.start()
    for text in texts[:at]:
        session.append(text)
    for prefix in (texts[at][:typed], texts[at], f"{texts[at]} ", ""):
        allowed = [
            (np.float32(p), text)
            for text, p in zip(oracle.texts, session.probabilities, strict=True)
            if p > 0 and text.startswith(prefix) and text != prefix.rstrip(" ")
        ]
        assert session.candidates(prefix) == [text for _, text in sorted(allowed, key=lambda e: (-e[0], e[1]))][:CUT]


def test_candidates_in_the_large_world(oracle: Oracle) -> None:
    session = oracle.start()
    assert session.candidates("")[0] == "kestrel laptop"
    assert session.candidates("nothing starts so") == []
    session.append("boston")
    assert session.candidates("ho")[:1] == ["hotels in boston"]
    assert all(text.startswith("ho") for text in session.candidates("ho"))
    assert "providence" in session.candidates("pro")
    assert "boston" not in session.candidates("boston")
    assert len(session.candidates("")) == CUT


@pytest.mark.parametrize(
    ("earlier", "text", "reason"),
    [
        ([], "Boston", "is no query of the simulator's"),
        ([], "zzz", "is no query of the simulator's"),
        ([], "price", "cannot follow the earlier queries of its session"),  # nobody starts so
        (["boston"], "boston", "cannot follow"),
        (["boston"], "hotels in providence vs", "is no query"),
        (["boston"], "puppies", "cannot follow"),
    ],
)
def test_what_the_simulator_cannot_produce_is_refused(
    oracle: Oracle, earlier: list[str], text: str, reason: str
) -> None:
    session = oracle.start()
    for query in earlier:
        session.append(query)
    sentence = f"`{text}` {reason}.*, so there is no ceiling for this log; take the oracle .* --min-users 1"
    with pytest.raises(UserError, match=sentence):
        session.log_probability(text)
    with pytest.raises(UserError, match=sentence):
        session.append(text)


def test_load_knows_its_files(tmp_path: Path) -> None:
    path = tmp_path / "log.oracle.jsonl"
    header = {"format": "mtn-edge oracle", "version": 1, "difficulty": 0.5, "texts": LARGE.texts}

    def refused(content: str, sentence: str) -> None:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=sentence):
            Oracle.load(path)

    with pytest.raises(UserError, match=r"`.*log.oracle.jsonl` cannot be read \(No such file"):
        Oracle.load(path)
    for content in ("", "1\n", "not json\n", "[]\n", '{"format": "else"}\n', json.dumps({**header, "texts": None})):
        refused(content, r"log.oracle.jsonl` is no oracle file; name the file")
    refused(json.dumps({**header, "version": 2}), "was written by another version of the simulator; make the log")
    refused(json.dumps({**header, "texts": LARGE.texts[1:]}), "was written by another version of the simulator")
    path.write_text(json.dumps(header) + "\n{}\n", encoding="utf-8")
    session = Oracle.load(path).start()
    assert session.probabilities == pytest.approx(Oracle(build(World(difficulty=0.5))).start().probabilities)
