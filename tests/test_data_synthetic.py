"""The simulator: it draws what it states, its logs look like logs, a session says more than its last query."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from mtn_edge.data import synthetic as sim
from mtn_edge.data.synthetic import BARE, COMPARE, EXPLORE, FULL, NONE, VERSUS, States
from mtn_edge.data.synthetic_log import write_log
from mtn_edge.data.synthetic_words import GROUPS, INTENTS, KINDS, RIVALS
from mtn_edge.errors import UserError

ALONE = sim.ALONE
DRAWS = 40_000
State = tuple[int, int, int, int, int, int, int, int]


def stated_moves(state: State) -> tuple[dict[State, float], float]:
    """P(next | state, going on) without the topic `new`, written down from the docstring; and P(new)."""
    kind, intent, manner, thing, former, attribute, shape, misspelt = state
    found: dict[State, float] = defaultdict(float)

    def reach(e: int, f: int, a: int, s: int, probability: float) -> None:
        found[(kind, intent, manner, e, f, a, s, 0)] += probability * (1 - sim.TYPO)
        found[(kind, intent, manner, e, f, a, s, 1)] += probability * sim.TYPO

    left = 1.0
    if misspelt:
        found[(*state[:-1], 0)] += sim.CORRECT
        left -= sim.CORRECT
    names = ("refine", "switch", "strip", "ellipse", "versus", "back", "new")
    move = dict(zip(names, sim.MOVES[manner][shape], strict=True))
    if former == NONE:
        move["versus"] = move["back"] = 0.0
    move = {name: left * weight / sum(move.values()) for name, weight in move.items()}
    follow = (
        dict(enumerate(sim.FIRST))
        if attribute == NONE
        else {(attribute + 1) % 3: sim.NEXT, (attribute + 2) % 3: 1 - sim.NEXT}
    )
    known = follow if attribute == NONE else {attribute: 1.0}
    group = thing // RIVALS * RIVALS
    rivals = {group + (thing - group + 1 + place) % RIVALS: weight for place, weight in enumerate(sim.RIVAL)}
    rivals.pop(former, None)
    rivals = {rival: weight / sum(rivals.values()) for rival, weight in rivals.items()}
    for a, p in (follow if shape == FULL else known).items():
        reach(thing, former, a, FULL, move["refine"] * p)
    for e, q in rivals.items():
        reach(e, thing, attribute, BARE, move["strip"] * q)
        for a, p in ({attribute: 1.0} if shape == BARE else known).items():
            reach(e, thing, a, BARE if shape == BARE else FULL, move["switch"] * q * p)
    for a, p in follow.items():
        reach(thing, former, a, ALONE, move["ellipse"] * p)
    reach(thing, former, attribute, VERSUS, move["versus"])
    for a, p in known.items():
        reach(former, thing, a, FULL, move["back"] * p)
    return found, move["new"]


@pytest.mark.parametrize(
    "state",
    [
        (0, 0, EXPLORE, 0, NONE, NONE, BARE, 0),
        (3, 2, EXPLORE, 7, 6, 1, BARE, 0),
        (11, 1, EXPLORE, 19, NONE, 2, FULL, 1),
        (5, 0, EXPLORE, 4, 5, 0, ALONE, 0),
        (2, 1, EXPLORE, 10, 9, 0, VERSUS, 0),
        (0, 0, COMPARE, 0, NONE, NONE, BARE, 1),
        (7, 2, COMPARE, 13, 12, 1, FULL, 0),
        (4, 1, COMPARE, 3, 0, 2, ALONE, 0),
        (9, 0, COMPARE, 16, 18, 0, VERSUS, 0),
        (9, 0, COMPARE, 16, 18, NONE, VERSUS, 0),
    ],
)
def test_moves_have_the_stated_probabilities(state: State) -> None:
    old = States(*(np.full(DRAWS, value) for value in state))
    new = sim.move(old, old.kind, np.random.default_rng(3))
    drawn = Counter(zip(*(values.tolist() for values in vars(new).values()), strict=True))
    stated, restart = stated_moves(state)
    assert sum(stated.values()) + restart == pytest.approx(1)
    # A new topic may be drawn as any first state: those have no former thing.
    surprising = sum(count for found, count in drawn.items() if stated.get(found, 0) == 0)
    assert surprising / DRAWS == pytest.approx(restart, abs=0.008)
    for found, probability in stated.items():
        spread = 5 * (probability * (1 - probability) / DRAWS) ** 0.5
        assert drawn[found] / DRAWS == pytest.approx(probability, abs=spread + restart * 0.1)


def test_sessions_start_as_stated() -> None:
    states = sim.start(np.full(DRAWS, 6), np.random.default_rng(3))
    kinds = sim.zipf(len(KINDS), sim.KIND_ZIPF) * (1 - sim.FAVOURITE)
    kinds[6] += sim.FAVOURITE
    assert np.bincount(states.kind) / DRAWS == pytest.approx(kinds, abs=0.01)
    assert np.bincount(states.thing) / DRAWS == pytest.approx(sim.zipf(sim.THINGS, sim.THING_ZIPF), abs=0.01)
    assert np.bincount(states.intent) / DRAWS == pytest.approx(sim.INTENT, abs=0.01)
    assert (states.shape == BARE).mean() == pytest.approx(sim.START_BARE, abs=0.01)
    asked = states.attribute[states.shape == FULL]
    assert np.bincount(asked) / len(asked) == pytest.approx(sim.FIRST, abs=0.015)
    assert (states.attribute[states.shape == BARE] == NONE).all()
    assert (states.former == NONE).all()


def test_sessions_have_the_stated_length_and_whole_users() -> None:
    made = sim.simulate(20_000, np.random.default_rng(1))
    lengths = np.bincount(made.session)
    assert lengths.min() == 1
    assert lengths.mean() == pytest.approx(1 / sim.END, rel=0.03)
    assert len(lengths) == len(made.user) == 20_000
    assert (np.diff(made.user) >= 0).all()
    assert np.bincount(made.user).mean() == pytest.approx(sim.SESSIONS_PER_USER, rel=0.01)


def test_words_are_as_many_as_the_tables_take() -> None:
    for kind in KINDS:
        assert len(kind.things) == len(set(kind.things)) == GROUPS * RIVALS
        assert len(kind.attributes) == len({pattern for pattern, _ in kind.attributes}) == 9
        assert all(pattern.count("{}") == 1 for pattern, _ in kind.attributes)
    assert INTENTS * 3 == 9
    things = [thing for kind in KINDS for thing in kind.things]
    assert len(things) == len(set(things)) == 240


def test_texts_follow_the_state() -> None:
    phrases = sim.Phrases()

    def text(*state: int) -> str:
        return str(phrases.texts[phrases.index(States(*(np.array([value]) for value in state)))[0]])

    assert text(1, 0, 0, 1, NONE, NONE, BARE, 0) == "providence"
    assert text(1, 0, 0, 1, NONE, 1, FULL, 0) == "hotels in providence"
    assert text(1, 1, 0, 1, 0, 2, ALONE, 0) == "weather"
    assert text(1, 0, 0, 1, 0, 1, VERSUS, 0) == "boston vs providence"
    assert text(1, 0, 0, 1, NONE, NONE, BARE, 1) == "provdience"
    assert sim.misspell("flights to boston") == "flgihts to boston"


def test_a_session_says_more_than_its_last_query() -> None:
    """Guesses from counts: after queries that leave the thing out, the query before them tells what is meant."""
    made = sim.simulate(30_000, np.random.default_rng(2))
    phrases = sim.Phrases()
    text = phrases.index(made.states)
    ends = np.flatnonzero(np.diff(made.session)) + 1
    sessions = [part.tolist() for part in np.split(text, ends)]
    shapes = [part.tolist() for part in np.split(made.states.shape, ends)]
    last: dict[int, Counter[int]] = defaultdict(Counter)
    last_two: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for session in sessions[:25_000]:
        for before, query, after in zip(session, session[1:], session[2:], strict=False):
            last[query][after] += 1
            last_two[before, query][after] += 1
    right = Counter[str]()
    for session, shape in zip(sessions[25_000:], shapes[25_000:], strict=True):
        for place in range(2, len(session)):
            if shape[place - 1] not in (ALONE, VERSUS):
                continue
            before, query, after = session[place - 2 : place + 1]
            right["all"] += 1
            right["last"] += last[query].most_common(1)[:1] != [] and last[query].most_common(1)[0][0] == after
            context = last_two.get((before, query)) or last[query]
            right["last two"] += context != {} and context.most_common(1)[0][0] == after
    assert right["all"] > 1500
    assert right["last two"] / right["all"] > right["last"] / right["all"] + 0.1


def test_the_log_is_the_same_for_a_seed_and_never_overwritten(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one.tsv", "two.tsv", "three.tsv"))
    counts = write_log(one, 300, 1)
    write_log(two, 300, 1)
    write_log(three, 300, 2)
    assert one.read_bytes() == two.read_bytes() != three.read_bytes()
    lines = one.read_text().splitlines()
    assert lines[0] == "AnonID\tQuery\tQueryTime\tItemRank\tClickURL"
    assert counts["rows"] == len(lines) - 1 >= counts["queries"] > 300
    with pytest.raises(UserError, match=r"one.tsv` exists already and nothing is overwritten; choose .* --force"):
        write_log(one, 5, 1)
    write_log(one, 5, 1, force=True)
    assert len(one.read_text()) < len(two.read_text())
    with pytest.raises(UserError, match="exists already"):
        write_log(tmp_path, 5, 1, force=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.tsv", "three.tsv", "two.tsv"]


def test_most_of_a_log_passes_the_gate_and_its_mess_is_found(tmp_path: Path) -> None:
    pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")
    from mtn_edge.data.prepare import PrepareSettings, prepare

    counts = write_log(tmp_path / "log.tsv", 12_000, 1)
    report = prepare([tmp_path / "log.tsv"], tmp_path / "dataset", PrepareSettings())
    assert report["format"] == "aol"
    assert report["rows"]["kept"] > 0.9 * counts["queries"]
    assert report["sessions"]["in"] == pytest.approx(12_000, rel=0.005)
    assert min(report["rows"].values()) > 50
    assert report["rejected"]["columns"]["count"] > 5
    assert report["personal"]["email"] > 10 < report["personal"]["phone"]
