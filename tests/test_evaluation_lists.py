"""Baselines that look a list up, each against its rule by hand or in the plainest words."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.evaluation.baselines import BASELINES, parse_names
from mtn_edge.evaluation.lists import (
    Adjacency,
    MostPopularCompletion,
    MostPopularSuffix,
    MostPopularWithTerms,
)
from mtn_edge.evaluation.navigational import Navigational
from mtn_edge.runtime.completions import Completions

POPULARITY = [("ebay", 9), ("new york", 5), ("news", 5), ("new york times", 3), ("new", 2), ("東京 天気", 1)]


def test_most_popular_completion() -> None:
    session = MostPopularCompletion(POPULARITY).start()
    assert session.candidates("").texts == ["ebay", "new york", "news", "new york times", "new", "東京 天気"]
    assert session.candidates("new").texts == ["new york", "news", "new york times"]
    assert session.candidates("new ").texts == ["new york", "new york times"]
    assert session.candidates("東").texts == ["東京 天気"]
    assert session.candidates("zzz").texts == []
    many = MostPopularCompletion([("a", 99), *((f"a{number}", 1) for number in range(12))])
    assert many.complete("a") == sorted(f"a{number}" for number in range(12))[:10]
    session.append("news")
    assert session.candidates("new").texts == ["new york", "news", "new york times"]
    assert session.log_probability("news") is None


texts = st.text("ab ", min_size=1, max_size=5).map(str.strip).filter(bool)
popularities = st.lists(st.tuples(texts, st.integers(1, 9)), max_size=40, unique_by=lambda entry: entry[0])


@given(popularities)
def test_most_popular_completion_equals_a_plain_filter(counts: list[tuple[str, int]]) -> None:
    popularity = sorted(counts, key=lambda x: (-x[1], x[0]))
    system = MostPopularCompletion(popularity)
    for prefix in ("", "a", "ab", "a ", "b"):
        echo = prefix.rstrip(" ")
        plain = [query for query, _ in popularity if query.startswith(prefix) and query != echo]
        assert system.complete(prefix) == plain[:10]


def test_terms_of_the_last_query_come_first() -> None:
    shared = [("rome hotels", 2), ("rome weather", 3), ("cheap hotels rome", 1), ("hotels", 1)]
    popularity = [*shared, ("weather", 50), *((f"filler {number}", 5) for number in range(400))]
    system = MostPopularWithTerms(sorted(popularity, key=lambda x: (-x[1], x[0])))
    popular = MostPopularCompletion(popularity)
    session = system.start()
    assert session.candidates("").texts == popular.complete("")  # no last query
    session.append("hotels in rome")
    # Two terms shared, the more frequent first; then one term; then the most popular.
    assert session.candidates("").texts[:5] == ["rome hotels", "cheap hotels rome", "rome weather", "hotels", "weather"]
    assert session.candidates("r").texts == ["rome hotels", "rome weather"]
    assert session.candidates("rome hotels").texts == []
    session.append("filler talk")  # a word in more than one query of a hundred is no term
    assert session.candidates("").texts == popular.complete("")
    assert session.candidates("filler 1").texts == popular.complete("filler 1")


def test_adjacency_lists_what_followed() -> None:
    sessions = [["a", "b1"], ["a", "b2"], ["a", "b2", "a"], ["x", "a", "c"], ["b2", "b2"]]
    system = Adjacency(POPULARITY, sessions)
    popular = ["ebay", "new york", "news", "new york times", "new", "東京 天気"]
    session = system.start()
    assert session.candidates("").texts == popular
    session.append("a")
    assert session.candidates("").texts == ["b2", "b1", "c", *popular]
    assert session.candidates("b").texts == ["b2", "b1"]
    assert session.candidates("b2").texts == []  # the echo
    assert session.candidates("ne").texts == ["new york", "news", "new york times", "new"]
    session.append("b2")
    assert session.candidates("").texts == ["a", "b2", *popular]
    session.append("c")  # nothing ever followed it
    assert session.candidates("").texts == popular
    session.append("never seen")
    assert session.candidates("").texts == popular


def test_popular_suffixes_answer_where_no_query_begins_like_that() -> None:
    popularity = [("cheap hotels in rome", 5), ("hotels in paris", 3), ("in rome", 1), ("weather", 9)]
    system = MostPopularSuffix(popularity)
    session = system.start()
    assert session.candidates("hotels").texts == ["hotels in paris"]  # MPC alone, however short
    assert session.candidates("oslo hotels i").texts == ["oslo hotels in rome", "oslo hotels in paris"]
    assert session.candidates("oslo in ").texts == ["oslo in rome", "oslo in paris"]
    assert session.candidates("oslo we").texts == ["oslo weather"]
    assert session.candidates("oslo weather").texts == []  # nothing is longer
    assert session.candidates("oslo zzz").texts == []
    # The longest suffix decides: `hotels in r`, not `in r`.
    assert session.candidates("big hotels in r").texts == ["big hotels in rome"]


@given(popularities, st.lists(texts, max_size=3), texts)
def test_every_list_continues_what_is_typed_and_holds_nothing_twice(
    popularity: list[tuple[str, int]], session: list[str], typed: str
) -> None:
    sessions = [[query for query, _ in popularity]]
    systems = [
        MostPopularCompletion(popularity),
        MostPopularWithTerms(popularity),
        Adjacency(popularity, sessions),
        MostPopularSuffix(popularity),
    ]
    for system in systems:
        asked = system.start()
        for query in session:
            asked.append(query)
        for prefix in ("", typed, typed + " "):
            candidates = asked.candidates(prefix).texts
            assert len(candidates) == len(set(candidates)) <= 10
            assert all(text.startswith(prefix) and text != prefix.rstrip(" ") for text in candidates)


def test_sizes_are_those_of_what_is_stored(tmp_path: Path) -> None:
    Completions(POPULARITY).save(tmp_path / "list")
    stored = (tmp_path / "list").stat().st_size
    assert MostPopularCompletion(POPULARITY).nbytes == stored
    assert MostPopularWithTerms(POPULARITY).nbytes > stored
    few, more = (Adjacency(POPULARITY, [queries]).nbytes for queries in (["a", "b"], ["a", "b", "c", "a", "c"]))
    assert stored < few < more
    assert MostPopularSuffix(POPULARITY).nbytes > stored


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("www.ebay.com", True),
        ("www ebay", True),
        ("http://maps", True),
        ("hotels.com reviews", True),
        ("ebay", True),  # ebay.co.uk is a training query
        ("ebay motors", False),
        ("yahoo", False),
        ("dr. commons", False),
        ("version 2.0", False),
        ("a.company", False),
        ("", False),
    ],
)
def test_navigational_queries(query: str, expected: bool) -> None:
    assert Navigational(["ebay.co.uk", "news", "dr. commons"])(query) is expected


def test_baseline_names() -> None:
    assert parse_names("mpc, ngram+copy, mpc") == ["mpc", "ngram+copy"]
    assert parse_names("none") == []
    with pytest.raises(
        UserError,
        match=r"`--baselines` names `mcp`, which is not a baseline; take any of mpc, mpc\+terms, adj, ngram, "
        r"ngram\+copy, mcg, or none",
    ):
        parse_names("mpc,mcp")
    assert list(BASELINES) == ["mpc", "mpc+terms", "adj", "ngram", "ngram+copy", "mcg"]
