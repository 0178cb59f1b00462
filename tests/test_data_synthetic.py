"""The simulator: it draws what it states, no query repeats the one before, a session says more than its last query."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.data import synthetic as sim
from mtn_edge.data.privacy import personal
from mtn_edge.data.synthetic import ALONE, BARE, COMPARE, FULL, VERSUS, Chain, World, build
from mtn_edge.data.synthetic_draw import APART_SECONDS, DAYS, MORE_SESSIONS, PAUSE_SECONDS, Sessions, Simulator
from mtn_edge.data.synthetic_words import ATTRIBUTES, GROUPS, INTENTS, KINDS, RIVALS
from mtn_edge.errors import UserError
from mtn_edge.text import normalize

DOCUMENT = Path(__file__).parents[1] / "docs" / "simulator.md"
NONE = -1
State = tuple[int, int, int, int, int, int, int, int]
"""k, i, m, e, f, a, s, t as the docstring has them: things from 0 to 19, f and a from 0 or NONE."""


@pytest.fixture(scope="module")
def chain() -> Chain:
    return build(World())


@pytest.fixture(scope="module")
def drawn(chain: Chain) -> Sessions:
    return Simulator(chain).draw(20_000, np.random.default_rng(1))


def number(chain: Chain, state: State) -> int:
    k, i, m, e, f, a, s, t = state
    group, place = divmod(e, RIVALS)
    former = 0 if f == NONE else (f - e) % RIVALS
    return int(np.ravel_multi_index((k, i, group, m, place, former, a + 1, s, t), chain.shape))


def state_of(chain: Chain, at: int) -> State:
    k, i, group, m, place, former, a, s, t = map(int, np.unravel_index(at, chain.shape))
    f = group * RIVALS + (place + former) % RIVALS if former else NONE
    return k, i, m, group * RIVALS + place, f, a - 1, s, t


def powered(weights: dict[int, float], x: float) -> dict[int, float]:
    total = sum(weight ** (1 / x) for weight in weights.values() if weight)
    return {name: weight ** (1 / x) / total for name, weight in weights.items() if weight}


def stated_moves(state: State, x: float) -> tuple[dict[State, float], float]:
    """P(next | state, going on) without the topic `new`, written down from the docstring; and P(new)."""
    kind, intent, manner, thing, former, attribute, shape, misspelt = state
    found: dict[State, float] = defaultdict(float)
    typo = powered({0: 1 - sim.TYPO, 1: sim.TYPO}, x)

    def reach(e: int, f: int, a: int, s: int, probability: float) -> None:
        for t in (0, 1):
            found[(kind, intent, manner, e, f, a, s, t)] += probability * typo[t]

    left = 1.0
    if misspelt:
        correct = powered({0: 1 - sim.CORRECT, 1: sim.CORRECT}, x)[1]
        found[(*state[:-1], 0)] += correct
        left -= correct
    names = ("refine", "switch", "strip", "drop", "ellipse", "versus", "back", "new")
    weights = dict(zip(names, sim.MOVES[manner][shape], strict=True))
    if former == NONE:
        weights["versus"] = weights["back"] = 0.0
    sharp = powered(dict(enumerate(weights.values())), x)
    move = {name: left * sharp.get(place, 0.0) for place, name in enumerate(names)}
    follow = powered(
        dict(enumerate(sim.FIRST))
        if attribute == NONE
        else {(attribute + 1) % 3: sim.NEXT[0], (attribute + 2) % 3: sim.NEXT[1]},
        x,
    )
    known = follow if attribute == NONE else {attribute: 1.0}
    group = thing // RIVALS * RIVALS
    rivals = {group + (thing - group + 1 + place) % RIVALS: weight for place, weight in enumerate(sim.RIVAL)}
    rivals.pop(former, None)
    for a, p in (follow if shape == FULL else known).items():
        reach(thing, former, a, FULL, move["refine"] * p)
    for e, q in powered(rivals, x).items():
        reach(e, thing, attribute, BARE, move["strip"] * q)
        for a, p in ({attribute: 1.0} if shape == BARE else known).items():
            reach(e, thing, a, BARE if shape == BARE else FULL, move["switch"] * q * p)
    reach(thing, former, attribute, BARE, move["drop"])
    for a, p in follow.items():
        reach(thing, former, a, ALONE, move["ellipse"] * p)
    reach(thing, former, attribute, VERSUS, move["versus"])
    for a, p in known.items():
        reach(former, thing, a, FULL, move["back"] * p)
    return {to: p for to, p in found.items() if p}, move["new"]


@st.composite
def states(draw: st.DrawFn) -> State:
    thing = draw(st.integers(0, GROUPS * RIVALS - 1))
    shape = draw(st.sampled_from((BARE, FULL, ALONE, VERSUS)))
    steps = draw(st.integers(1 if shape == VERSUS else 0, RIVALS - 1))
    former = thing // RIVALS * RIVALS + (thing + steps) % RIVALS if steps else NONE
    attribute = draw(st.integers(0 if shape in (FULL, ALONE) else NONE, ATTRIBUTES - 1))
    return (
        *(draw(st.integers(0, len(KINDS) - 1)), draw(st.integers(0, INTENTS - 1)), draw(st.integers(0, 1))),
        *(thing, former, attribute, shape, draw(st.integers(0, 1))),
    )


CHAINS = {x: build(World(difficulty=x)) for x in (0.3, 1.0, 2.5)}


@settings(max_examples=300, deadline=None)
@given(states(), st.sampled_from(sorted(CHAINS)))
def test_moves_have_the_stated_probabilities(state: State, x: float) -> None:
    chain = CHAINS[x]
    stated, restart = stated_moves(state, x)
    assert sum(stated.values()) + restart == pytest.approx(1)
    block, local = divmod(number(chain, state), chain.local)
    assert chain.new[local] == pytest.approx(restart)
    found = {
        state_of(chain, block * chain.local + int(to)): (1 - restart) * p
        for to, p in zip(chain.to[local], chain.move[local], strict=True)
        if p
    }
    assert found == pytest.approx(stated)


def test_the_documented_moves_are_the_ones_taken() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith(("| explore |", "| compare |"))]
    stated = [tuple(float(cell) for cell in row[2:]) for row in rows]
    assert [tuple(cell.strip() for cell in row[:2]) for row in rows] == [
        (manner, shape) for manner in ("explore", "compare") for shape in ("bare", "full", "alone", "versus")
    ]
    assert stated == [row for rows_of in sim.MOVES for row in rows_of]
    assert [sum(row) for row in stated] == pytest.approx([1.0] * 8)


def test_what_is_drawn_follows_the_tables(chain: Chain) -> None:
    """Next states of one state, with what would repeat its text thrown away."""
    state = number(chain, (2, 1, COMPARE, 10, 9, 0, FULL, 1))
    draws = 200_000
    new = Simulator(chain).follow(np.full(draws, state), np.full(draws, 4), np.random.default_rng(3))
    block, local = divmod(state, chain.local)
    expected = np.zeros(len(chain.text))
    expected[block * chain.local + chain.to[local]] += chain.move[local] * (1 - chain.new[local])
    for kind, p in enumerate(chain.topic[4]):
        expected[kind * chain.per_kind + chain.first] += chain.new[local] * p * chain.first_weight
    expected[chain.text == chain.text[state]] = 0
    expected /= expected.sum()
    observed = np.bincount(new, minlength=len(expected))
    assert (observed[expected == 0] == 0).all()
    likely = draws * expected >= 5
    chi = ((observed - draws * expected)[likely] ** 2 / (draws * expected[likely])).sum()
    freedom = int(likely.sum())
    assert freedom > 20
    assert chi < freedom + 5 * (2 * freedom) ** 0.5


def test_sessions_start_as_stated(chain: Chain) -> None:
    draws = 40_000
    states = Simulator(chain).start(np.full(draws, 6), np.random.default_rng(3))
    parts = [state_of(chain, at) for at in states.tolist()]
    kind, intent, manner, thing, former, attribute, shape, misspelt = (
        np.array(part) for part in zip(*parts, strict=True)
    )
    kinds = sim.zipf(len(KINDS), sim.KIND_ZIPF) * (1 - sim.FAVOURITE)
    kinds[6] += sim.FAVOURITE
    assert np.bincount(kind) / draws == pytest.approx(kinds, abs=0.01)
    assert np.bincount(thing) / draws == pytest.approx(sim.zipf(20, sim.THING_ZIPF), abs=0.01)
    assert np.bincount(intent) / draws == pytest.approx(sim.INTENT, abs=0.01)
    assert np.bincount(manner) / draws == pytest.approx(sim.MANNER, abs=0.01)
    assert (shape == BARE).mean() == pytest.approx(sim.START_BARE, abs=0.01)
    assert misspelt.mean() == pytest.approx(sim.TYPO, abs=0.005)
    asked = attribute[shape == FULL]
    assert np.bincount(asked) / len(asked) == pytest.approx(sim.FIRST, abs=0.015)
    assert (attribute[shape == BARE] == NONE).all()
    assert (former == NONE).all()


def test_sessions_have_the_stated_length_users_and_times(drawn: Sessions) -> None:
    assert drawn.length.min() == 1
    assert drawn.length.mean() == pytest.approx(1 / sim.END, rel=0.02)
    assert (np.diff(drawn.user) >= 0).all()
    assert np.bincount(drawn.user).min() == 1
    assert np.bincount(drawn.user).mean() == pytest.approx(1 + MORE_SESSIONS, rel=0.01)
    pause = np.diff(drawn.second)
    between = np.zeros(len(pause), bool)
    between[drawn.begin[1:] - 1] = True
    assert PAUSE_SECONDS[0] <= pause[~between].min() < pause[~between].max() < PAUSE_SECONDS[1]
    of_one_user = np.diff(drawn.user) == 0
    assert pause[between][of_one_user].min() >= APART_SECONDS
    assert drawn.second.min() >= 0
    assert drawn.second.max() < (DAYS + 2) * 86400


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 40)), min_size=1, max_size=8), st.integers(0, 99))
def test_sessions_of_a_user_are_in_order_and_apart_however_many(users: list[tuple[int, int]], seed: int) -> None:
    from mtn_edge.data.synthetic_draw import _seconds

    user = np.repeat(np.arange(len(users)), [count for count, _ in users])
    length = np.repeat([queries for _, queries in users], [count for count, _ in users])
    second = _seconds(user, length, np.random.default_rng(seed))
    begin = np.cumsum(length) - length
    wait = second[begin[1:]] - second[begin[1:] - 1]
    assert (wait[np.diff(user) == 0] >= APART_SECONDS).all()
    assert (np.diff(second)[np.setdiff1d(np.arange(len(second) - 1), begin[1:] - 1)] >= PAUSE_SECONDS[0]).all()
    assert second.min() >= 0


@pytest.mark.parametrize("x", [0.05, 1.0, 50.0])
def test_no_query_has_the_text_of_the_one_before(x: float) -> None:
    chain = build(World(difficulty=x))
    sessions = Simulator(chain).draw(3000, np.random.default_rng(5))
    text = chain.text[sessions.state]
    assert (text >= 0).all()
    same = text[1:] == text[:-1]
    same[sessions.begin[1:] - 1] = False
    assert not same.any()


def test_what_people_do_to_a_query(chain: Chain, drawn: Sessions) -> None:
    """Every reformulation occurs: share of the pairs of successive queries."""
    parts = np.array([state_of(chain, at) for at in drawn.state[:60_000].tolist()])
    inner = np.ones(len(parts) - 1, bool)
    inner[drawn.begin[1:][drawn.begin[1:] < len(parts)] - 1] = False
    old, new = parts[:-1][inner], parts[1:][inner]
    same = (old[:, :3] == new[:, :3]).all(axis=1)
    thing = same & (old[:, 3] == new[:, 3])
    right = (old[:, 7] == 0) & (new[:, 7] == 0)
    shapes = old[:, 6] * 4 + new[:, 6]
    shares = {
        "add": right & thing & np.isin(shapes, (BARE * 4 + FULL, ALONE * 4 + FULL)),
        "drop the attribute": right & thing & np.isin(shapes, (FULL * 4 + BARE, VERSUS * 4 + BARE)),
        "drop the thing": right & thing & (shapes == FULL * 4 + ALONE),
        "replace the attribute": right & thing & (shapes == FULL * 4 + FULL),
        "replace the thing": right & same & ~thing & (shapes % 5 == 0) & (old[:, 5] == new[:, 5]),
        "narrow two to one": right & thing & (shapes == VERSUS * 4 + FULL),
        "go back": right & same & (new[:, 3] == old[:, 4]) & (new[:, 6] == FULL),
        "new topic": ~same,
        "typo": new[:, 7] == 1,
        "correct": (old[:, 7] == 1) & (new[:, 7] == 0) & (old[:, :7] == new[:, :7]).all(axis=1),
    }
    assert {name: share.mean() for name, share in shares.items() if share.mean() < 0.008} == {}
    text = chain.text[drawn.state]
    sessions = [text[at : at + size].tolist() for at, size in zip(drawn.begin, drawn.length, strict=True)]
    repeats = sum(size - len(set(session)) for size, session in zip(drawn.length.tolist(), sessions, strict=True))
    assert 0.15 < repeats / (len(text) - len(sessions)) < 0.25


def test_words_are_as_many_as_the_tables_take() -> None:
    for kind in KINDS:
        assert len(kind.things) == len(set(kind.things)) == GROUPS * RIVALS
        assert len(kind.attributes) == len({pattern for pattern, _ in kind.attributes}) == INTENTS * ATTRIBUTES
        assert all(pattern.count("{}") == 1 for pattern, _ in kind.attributes)
    things = [thing for kind in KINDS for thing in kind.things]
    assert len(things) == len(set(things)) == 240


def test_texts_follow_the_state(chain: Chain) -> None:
    def text(*state: int) -> str:
        return chain.texts[chain.text[number(chain, state)]]  # type: ignore[arg-type]

    assert text(1, 0, 0, 1, NONE, NONE, BARE, 0) == "providence"
    assert text(1, 0, 0, 1, NONE, 1, FULL, 0) == "hotels in providence"
    assert text(1, 1, 0, 1, 0, 2, ALONE, 0) == "weather"
    assert text(1, 0, 0, 1, 0, 1, VERSUS, 0) == "boston vs providence"
    assert text(1, 0, 0, 0, 3, 1, VERSUS, 0) == "portland maine vs boston"
    assert text(1, 0, 0, 1, NONE, NONE, BARE, 1) == "provdience"
    assert chain.text[number(chain, (1, 0, 0, 1, NONE, NONE, FULL, 0))] == -1
    assert chain.text[number(chain, (1, 0, 0, 1, NONE, 1, VERSUS, 0))] == -1
    assert chain.texts == sorted(set(chain.texts))
    assert set(chain.text.tolist()) == {-1, *range(len(chain.texts))}


def test_a_log_of_these_texts_loses_none(chain: Chain) -> None:
    assert [text for text in chain.texts if normalize(text) != text or personal(text)] == []


def test_misspelling_always_changes_a_text() -> None:
    assert sim.misspell("flights to boston") == "flgihts to boston"
    assert sim.misspell("coffee") == "cfofee"  # the letters in the middle are equal
    assert sim.misspell("ab") == "ba"


@given(
    st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.floats(0.01, 100), st.integers(0, 3), st.integers(0, 3)
)
def test_the_dial_sharpens_or_flattens_choices(weights: list[float], x: float, first: int, second: int) -> None:
    plain = World().choice([*weights, 0.0])
    assert plain == pytest.approx(np.array([*weights, 0.0]) / sum(weights))
    turned = World(difficulty=x).choice([*weights, 0.0])
    assert turned.sum() == pytest.approx(1)
    assert turned[-1] == 0
    one, two = first % len(weights), second % len(weights)
    if turned[one] > 1e-200 < turned[two]:
        assert np.log(turned[one] / turned[two]) == pytest.approx(np.log(plain[one] / plain[two]) / x, abs=1e-6)


@pytest.mark.parametrize("x", [0.0, -1.0, float("nan"), float("inf")])
def test_a_dial_that_is_no_number_above_0_is_refused(x: float) -> None:
    with pytest.raises(UserError, match=r"`--difficulty` is .*, and it must be a number above 0; take 1"):
        World(difficulty=x)


def pairs(session: list[int]) -> Iterator[tuple[int, int, int]]:
    return zip(session, session[1:], session[2:], strict=False)


def test_a_session_says_more_than_its_last_query(chain: Chain, drawn: Sessions) -> None:
    """Guesses from counts: after queries that leave the thing out, the query before them tells what is meant."""
    text = chain.text[drawn.state]
    shape = np.unravel_index(drawn.state, chain.shape)[7]
    parts = list(zip(drawn.begin.tolist(), drawn.length.tolist(), strict=True))
    last: dict[int, Counter[int]] = defaultdict(Counter)
    last_two: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for at, size in parts[:30_000]:
        for before, query, after in pairs(text[at : at + size].tolist()):
            last[query][after] += 1
            last_two[before, query][after] += 1
    right = Counter[str]()
    for at, size in parts[30_000:36_000]:
        for place, (before, query, after) in enumerate(pairs(text[at : at + size].tolist())):
            if shape[at + place + 1] not in (ALONE, VERSUS):
                continue
            right["all"] += 1
            right["last"] += last[query].most_common(1)[:1] != [] and last[query].most_common(1)[0][0] == after
            context = last_two.get((before, query)) or last[query]
            right["last two"] += context != {} and context.most_common(1)[0][0] == after
    assert right["all"] > 1500
    assert right["last two"] / right["all"] > right["last"] / right["all"] + 0.1
