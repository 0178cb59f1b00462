import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.evaluation.baselines import BASELINES, MostPopularCompletion, parse_names
from mtn_edge.evaluation.protocol import ask, draw_prefixes, draw_questions
from mtn_edge.evaluation.summary import summarize

SESSIONS = [
    ["rome hotels", "rome weather", "rome weather"],
    ["ebay"],
    ["a", "rome hotels cheap"],
]


class Script:
    """A system that answers from a table (session so far, prefix) and writes down what it was asked."""

    def __init__(self, answers: dict[tuple[tuple[str, ...], str], list[str]], log_probability: float | None = None):
        self.answers = answers
        self.chance = log_probability
        self.asked: list[tuple[tuple[str, ...], str]] = []

    def start(self) -> "ScriptSession":
        return ScriptSession(self)


class ScriptSession:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.queries: tuple[str, ...] = ()

    def append(self, query: str) -> None:
        self.queries = (*self.queries, query)

    def candidates(self, prefix: str) -> list[str]:
        self.script.asked.append((self.queries, prefix))
        return self.script.answers.get((self.queries, prefix), [])

    def log_probability(self, query: str) -> tuple[float, int] | None:
        return None if self.script.chance is None else (self.script.chance, len(query.split()) + 1)


def nothing(done: int) -> None:
    pass


def test_suggest_asks_every_query_from_the_second_on() -> None:
    questions = draw_questions(SESSIONS, "suggest", popular={"rome weather"}, max_queries=100, seed=1)
    script = Script({})
    counted: list[int] = []
    ask(script, questions, progress=counted.append)
    assert script.asked == [(("rome hotels",), ""), (("rome hotels", "rome weather"), ""), (("a",), "")]
    assert counted == [1, 2, 3]
    assert questions.session.tolist() == [0, 0, 1]
    assert questions.position.tolist() == [1, 2, 1]
    assert questions.seen.tolist() == [True, True, False]
    assert questions.repeat.tolist() == [False, True, False]
    assert questions.available == 3


def test_suggest_figures_by_hand() -> None:
    questions = draw_questions(SESSIONS, "suggest", popular={"rome weather"}, max_queries=100, seed=1)
    script = Script(
        {
            (("rome hotels",), ""): ["rome", "rome weather"],  # rank 2, partial 1
            (("rome hotels", "rome weather"), ""): ["rome weather"],  # rank 1
        },
        log_probability=-math.log(8),
    )
    figures = summarize(questions, ask(script, questions, progress=nothing), seed=1)
    assert figures["n"] == 3
    assert figures["mrr@10"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert figures["pmrr@10"] == pytest.approx((1 + 1 + 0) / 3)
    assert figures["success@1"] == pytest.approx(1 / 3)
    assert figures["success@10"] == pytest.approx(2 / 3)
    # log 1/8 for each of three queries, over 3 + 3 + 4 tokens.
    assert figures["perplexity"] == pytest.approx(8 ** (3 / 10))
    # First candidates "rome", "rome weather", "": words 3 of 3, pairs 1 of 1, length 3 against 7.
    assert figures["bleu_precisions"][:2] == pytest.approx([100, 100])
    assert figures["keystrokes_saved"] is None
    assert figures["slices"]["position_1"]["mrr@10"] == pytest.approx(1 / 4)
    assert figures["slices"]["position_2+"] == {
        "n": 1,
        "mrr@10": 1.0,
        "success@1": 1.0,
        "success@10": 1.0,
        "pmrr@10": 1.0,
        "ci95": {measure: [1.0, 1.0] for measure in ("mrr@10", "success@1", "success@10", "pmrr@10")},
    }
    assert figures["slices"]["seen"]["mrr@10"] == pytest.approx(3 / 4)
    assert figures["slices"]["unseen"]["mrr@10"] == 0
    assert figures["slices"]["repeat_free"]["mrr@10"] == pytest.approx(1 / 4)
    assert "position_0" not in figures["slices"]
    low, high = figures["ci95"]["mrr@10"]
    assert [low, high] == pytest.approx([0, 3 / 4])


def test_complete_counts_keys_until_the_bar_shows_the_query() -> None:
    script = Script({((), "eb"): ["x", "y", "ebay"], ((), "eba"): ["ebay"]})
    questions = draw_questions([["ebay"]], "complete", popular=(), max_queries=100, seed=1)
    figures = summarize(questions, ask(script, questions, progress=nothing), seed=1)
    assert figures["keystrokes_saved"] == pytest.approx((5 - 3) / 5)  # "e", "b", tap instead of "ebay" and Enter
    assert figures["perplexity"] is None
    assert figures["bleu"] is None
    fourth = Script({((), "eb"): ["x", "y", "z", "ebay"], ((), "eba"): ["ebay"]})
    saved = summarize(questions, ask(fourth, questions, progress=nothing), seed=1)["keystrokes_saved"]
    assert saved == pytest.approx((5 - 4) / 5)  # fourth place is outside the bar
    at_once = Script({((), ""): ["ebay"]})
    saved = summarize(questions, ask(at_once, questions, progress=nothing), seed=1)["keystrokes_saved"]
    assert saved == pytest.approx((5 - 1) / 5)  # a tap before the first key
    never = summarize(questions, ask(Script({}), questions, progress=nothing), seed=1)
    assert never["keystrokes_saved"] == 0
    assert never["mrr@10"] == 0


def test_complete_asks_each_group_of_prefix_lengths_once_and_never_the_whole_query() -> None:
    questions = draw_questions(SESSIONS, "complete", popular=(), max_queries=100, seed=1)
    for queries, prefixes_of in zip(questions.sessions, questions.prefixes, strict=True):
        for query, prefixes in zip(queries, prefixes_of, strict=True):
            assert all(query.startswith(prefix) and len(prefix) < len(query) for prefix in prefixes)
    assert [len(x) for x in questions.prefixes[0]] == [3, 3, 3]
    assert [len(x) for x in questions.prefixes[1]] == [1]
    assert [len(x) for x in questions.prefixes[2]] == [0, 3]
    assert questions.target_session.tolist() == [0, 0, 0, 1, 2, 2]


@given(st.text(min_size=0, max_size=40), st.integers(0, 1000))
def test_prefixes_obey_their_rule(query: str, seed: int) -> None:
    prefixes = draw_prefixes(query, np.random.default_rng(seed))
    lengths = [len(prefix) for prefix in prefixes]
    assert all(query.startswith(prefix) and len(prefix) < len(query) for prefix in prefixes)
    wanted = [group for group, least in ((0, 1), (1, 4), (2, 8)) if len(query) > least]
    assert [0 if n <= 3 else 1 if n <= 7 else 2 for n in lengths] == wanted


def test_questions_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    sessions = [[f"query number {a} {b}" for b in range(3)] for a in range(50)]
    first, again, other = (
        draw_questions(sessions, "complete", popular=(), max_queries=30, seed=seed) for seed in (1, 1, 2)
    )
    assert first.prefixes == again.prefixes
    assert first.sessions == again.sessions
    assert first.sessions != other.sessions
    assert len(first.target_session) == 30
    assert all(len(queries) == 3 for queries in first.sessions)
    assert first.available == 150


def test_one_session_is_taken_even_beyond_the_cap() -> None:
    questions = draw_questions([["a b", "c d", "e f"]], "suggest", popular=(), max_queries=1, seed=1)
    assert len(questions.target_session) == 2


def test_nothing_to_ask_about_is_said() -> None:
    with pytest.raises(UserError, match="task `suggest` needs a session of two queries, and the split has none"):
        draw_questions([["alone"]], "suggest", popular=(), max_queries=10, seed=1)
    with pytest.raises(UserError, match="task `complete` needs a session, and the split has none"):
        draw_questions([], "complete", popular=(), max_queries=10, seed=1)


def test_figures_do_not_depend_on_the_order_of_sessions() -> None:
    sessions = [[f"topic {a} word {b}" for b in range(a % 4 + 2)] for a in range(30)]
    popularity = [(query, 1) for queries in sessions[::2] for query in queries]
    system = MostPopularCompletion(popularity)
    shuffled = random.Random(4).sample(sessions, len(sessions))
    figures = [
        summarize(questions, ask(system, questions, progress=nothing), seed=1)
        for questions in (
            draw_questions(order, "suggest", popular=(), max_queries=10_000, seed=1) for order in (sessions, shuffled)
        )
    ]
    assert figures[0]["mrr@10"] == pytest.approx(figures[1]["mrr@10"])
    assert figures[0]["mrr@10"] > 0
    assert figures[0]["bleu"] == pytest.approx(figures[1]["bleu"])


POPULARITY = [("ebay", 9), ("new york", 5), ("news", 5), ("new york times", 3), ("new", 2), ("東京 天気", 1)]


def test_most_popular_completion() -> None:
    session = MostPopularCompletion(POPULARITY).start()
    assert session.candidates("") == ["ebay", "new york", "news", "new york times", "new", "東京 天気"]
    assert session.candidates("new") == ["new york", "news", "new york times"]
    assert session.candidates("new ") == ["new york", "new york times"]
    assert session.candidates("東") == ["東京 天気"]
    assert session.candidates("zzz") == []
    many = MostPopularCompletion([("a", 99), *((f"a{number}", 1) for number in range(12))])
    assert many.complete("a") == sorted(f"a{number}" for number in range(12))[:10]
    session.append("news")
    assert session.candidates("new") == ["new york", "news", "new york times"]
    assert session.log_probability("news") is None


@given(
    st.lists(
        st.tuples(st.text("ab ", min_size=1, max_size=5), st.integers(1, 9)), max_size=40, unique_by=lambda x: x[0]
    )
)
def test_most_popular_completion_equals_a_plain_filter(counts: list[tuple[str, int]]) -> None:
    popularity = sorted(counts, key=lambda x: (-x[1], x[0]))
    system = MostPopularCompletion(popularity)
    for prefix in ("", "a", "ab", "a ", "b"):
        echo = prefix.rstrip(" ")
        plain = [query for query, _ in popularity if query.startswith(prefix) and query != echo]
        assert system.complete(prefix) == plain[:10]


def test_baseline_names() -> None:
    assert parse_names("mpc, mpc") == ["mpc"]
    assert parse_names("none") == []
    with pytest.raises(UserError, match="`--baselines` names `mcp`, which is not a baseline; take any of mpc, or none"):
        parse_names("mpc,mcp")
    assert list(BASELINES) == ["mpc"]
