"""Sessions that are remembered: the same answers, fewer queries encoded, within a budget."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mtn_edge.errors import UserError
from mtn_edge.runtime.engine import SessionState
from mtn_edge.runtime.session_cache import SessionCache
from mtn_edge.runtime.suggester import Suggester

MUCH = 1 << 30
QUERIES = ["paris hotels", "Paris  Weather", "", "москва jobs 🎉", "near me", "jaguar price", " \u200e ", "boston"]


@pytest.fixture
def suggester(tiny_bundle: Path) -> Suggester:
    return Suggester.open(tiny_bundle)


def counted(suggester: Suggester, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each query that the model encodes."""
    calls: list[int] = []
    append = suggester.engine.append

    def counting(tokens: Sequence[int], state: SessionState) -> SessionState:
        calls.append(len(tokens))
        return append(tokens, state)

    monkeypatch.setattr(suggester.engine, "append", counting)
    return calls


def answer(session: Any, typed: str) -> Any:
    result = session.suggest(typed, 6)
    return result.suggestions, result.reason


@pytest.mark.parametrize("budget", [0, 20_000, MUCH])
def test_answers_do_not_depend_on_what_is_remembered(suggester: Suggester, budget: int) -> None:
    cache = SessionCache(suggester, budget)
    sessions = [QUERIES[:end] for end in range(len(QUERIES) + 1)] + [QUERIES * 3, QUERIES[::-1], QUERIES * 3 + ["x"]]
    for queries in (*sessions, *reversed(sessions)):
        for typed in ("", "paris ", "J"):
            right = answer(suggester.session(queries), typed)
            assert answer(cache.open(queries), typed) == right
        assert cache.nbytes <= budget


def test_a_session_that_has_grown_costs_its_new_query_alone(
    suggester: Suggester, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, calls = SessionCache(suggester, MUCH), counted(suggester, monkeypatch)
    cache.open(["paris hotels", "paris weather"])
    assert len(calls) == 2
    cache.open(["PARIS hotels", "", "paris weather "])  # the same in normal form
    assert len(calls) == 2
    cache.open(["paris hotels", "paris weather", "near me"])
    assert len(calls) == 3
    cache.open(["paris hotels", "boston"])  # shares no remembered beginning but the whole sessions above
    assert len(calls) == 5


def test_a_long_session_costs_what_the_model_sees(suggester: Suggester, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(suggester, monkeypatch)
    SessionCache(suggester, MUCH).open([f"query {number}" for number in range(500)])
    assert len(calls) <= suggester.engine.max_queries


def test_the_oldest_go_first(suggester: Suggester, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SessionCache(suggester, MUCH)
    cache.open(["paris hotels"])
    one = cache.nbytes
    cache = SessionCache(suggester, 2 * one)
    for query in ("paris hotels", "boston hotels", "paris hotels", "berlin hotels"):
        cache.open([query])
    calls = counted(suggester, monkeypatch)
    cache.open(["paris hotels"])
    assert calls == []
    cache.open(["boston hotels"])
    assert len(calls) == 1


def test_an_opened_session_is_the_callers_own(suggester: Suggester) -> None:
    cache = SessionCache(suggester, MUCH)
    first = cache.open(["paris hotels"])
    first.append("boston")
    again = cache.open(["paris hotels"])
    assert again.queries == ["paris hotels"]
    assert answer(again, "p") == answer(suggester.session(["paris hotels"]), "p")


def test_half_a_letter_is_refused(suggester: Suggester) -> None:
    with pytest.raises(UserError, match="an earlier query holds a lone surrogate, which is no text; leave it out"):
        SessionCache(suggester, MUCH).open(["paris", "x\ud800"])


def test_a_fork_goes_its_own_way(suggester: Suggester) -> None:
    session = suggester.session(["paris hotels"])
    fork = session.fork()
    assert answer(fork, "par") == answer(session, "par")
    fork.append("jaguar price")
    assert (session.queries, fork.queries) == (["paris hotels"], ["paris hotels", "jaguar price"])
    assert answer(fork, "jag") == answer(suggester.session(["paris hotels", "jaguar price"]), "jag")
