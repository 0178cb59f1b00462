import math
import random
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.evaluation.lists import MostPopularCompletion
from mtn_edge.evaluation.prefixes import prefix_lengths
from mtn_edge.evaluation.protocol import ask, draw_questions
from mtn_edge.evaluation.summary import MEASURES, summarize
from mtn_edge.evaluation.systems import Candidates

SESSIONS = [
    ["rome hotels", "rome weather", "rome weather"],
    ["ebay"],
    ["a", "rome hotels cheap"],
]


class Script:
    """A system that answers from a table (session so far, prefix) and writes down what it was asked."""

    nbytes = None
    settings: ClassVar[dict[str, Any]] = {}

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

    def candidates(self, prefix: str) -> Candidates:
        self.script.asked.append((self.queries, prefix))
        return Candidates(self.script.answers.get((self.queries, prefix), []))

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
    figures = summarize(questions, [ask(script, questions, progress=nothing)], seed=1)
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
    third = figures["slices"]["position_2+"]
    assert set(third) == {*MEASURES, "bleu_precisions", "n", "ci95"}
    assert (third["n"], third["mrr@10"]) == (1, 1.0)
    assert third["bleu_precisions"] == pytest.approx([100, 100, 0, 0])  # there are no three words
    assert third["ci95"]["mrr@10"] == [1.0, 1.0]
    # Twelve characters and the end of one query for log 8.
    assert third["nats_per_character"] == pytest.approx(math.log(8) / 13)
    assert figures["nats_per_character"] == pytest.approx(3 * math.log(8) / (13 + 13 + 18))
    assert figures["slices"]["seen"]["mrr@10"] == pytest.approx(3 / 4)
    assert figures["slices"]["unseen"]["mrr@10"] == 0
    free = figures["slices"]["repeat_free"]
    assert free["mrr@10"] == pytest.approx(1 / 4)
    assert free["bleu_precisions"] == pytest.approx([100, 0, 0, 0])  # "rome" and nothing: no pair at all
    assert free["perplexity"] == pytest.approx(8 ** (2 / 7))
    assert "position_0" not in figures["slices"]
    low, high = figures["ci95"]["mrr@10"]
    assert [low, high] == pytest.approx([0, 3 / 4])


def from_key(query: str, typed: int, candidates: list[str]) -> dict[tuple[tuple[str, ...], str], list[str]]:
    """The same list after `typed` characters and after every further one."""
    return {((), query[:length]): candidates for length in range(typed, len(query))}


def test_complete_counts_keys_until_the_bar_shows_the_query() -> None:
    questions = draw_questions([["ebay"]], "complete", popular=(), max_queries=100, seed=1)

    def figures_of(answers: dict[tuple[tuple[str, ...], str], list[str]]) -> dict[str, Any]:
        return summarize(questions, [ask(Script(answers), questions, progress=nothing)], seed=1)

    figures = figures_of(from_key("ebay", 2, ["x", "y", "ebay"]))
    assert figures["keystrokes_saved"] == pytest.approx((5 - 3) / 5)  # "e", "b", tap instead of "ebay" and Enter
    assert figures["mrl"] == 2
    assert figures["perplexity"] is None
    assert figures["bleu"] is None
    fourth = figures_of(from_key("ebay", 1, ["x", "y", "z", "ebay"]) | from_key("ebay", 3, ["ebay"]))
    assert fourth["keystrokes_saved"] == pytest.approx((5 - 4) / 5)  # fourth place is outside the bar
    assert fourth["mrl"] == 3  # but among the ten
    at_once = figures_of(from_key("ebay", 0, ["ebay"]))
    assert at_once["keystrokes_saved"] == pytest.approx((5 - 1) / 5)  # a tap before the first key
    assert at_once["mrl"] == 4
    never = figures_of({})
    assert never["keystrokes_saved"] == 0
    assert never["mrr@10"] == 0
    assert never["mrl"] == 0


@given(
    st.integers(1, 40).flatmap(
        lambda length: st.tuples(st.just(length), st.integers(0, length), st.integers(0, length))
    )
)
def test_few_lists_tell_what_all_would(case: tuple[int, int, int]) -> None:
    length, one, two = case
    in_ten, in_bar = min(one, two), max(one, two)
    query = "abcdefghij" * 4
    query = query[:length]
    script = Script(from_key(query, in_ten, ["1", "2", "3", query]) | from_key(query, in_bar, [query]))
    questions = draw_questions([[query]], "complete", popular=(), max_queries=9, seed=1)
    answers = ask(script, questions, progress=nothing)
    assert answers.keys is not None
    assert answers.keys[0].tolist() == [in_bar + 1, length + 1]
    assert answers.recovered is not None
    assert answers.recovered.tolist() == [length - in_ten]
    assert len(script.asked) == len(set(script.asked)) <= 3 + 2 * 6


def test_complete_asks_each_group_of_prefix_lengths_once_and_never_the_whole_query() -> None:
    questions = draw_questions(SESSIONS, "complete", popular=(), max_queries=100, seed=1)
    for queries, prefixes_of in zip(questions.sessions, questions.prefixes, strict=True):
        for query, prefixes in zip(queries, prefixes_of, strict=True):
            assert all(query.startswith(prefix) and len(prefix) < len(query) for prefix in prefixes)
    assert [len(x) for x in questions.prefixes[0]] == [3, 3, 3]
    assert [len(x) for x in questions.prefixes[1]] == [1]
    assert [len(x) for x in questions.prefixes[2]] == [0, 3]
    assert questions.target_session.tolist() == [0, 0, 0, 1, 2, 2]


def test_each_prefix_is_asked_once_and_the_first_query_has_a_probability_too() -> None:
    questions = draw_questions([["abc", "abcd"]], "complete", popular=(), max_queries=100, seed=1)
    script = Script({}, log_probability=-1.0)
    answers = ask(script, questions, progress=nothing)
    assert len(script.asked) == len(set(script.asked))
    assert answers.log_probability is not None
    assert answers.log_probability.tolist() == [[-1, 2], [-1, 2]]
    figures = summarize(questions, [answers], seed=1)
    assert figures["slices"]["position_0"]["nats_per_character"] == pytest.approx(1 / 4)
    assert figures["slices"]["position_1"]["nats_per_character"] == pytest.approx(1 / 5)
    assert figures["slices"]["prefix_1-3"]["nats_per_character"] is None


def test_slices_by_hand() -> None:
    sessions = [["ebay", "ebay.com toys", "toys"], ["toys", "toys", "www maps"]]
    popular = {"ebay.com", "toys"}
    questions = draw_questions(sessions, "complete", popular=popular, max_queries=100, seed=1)
    assert questions.navigational.tolist() == [True, True, False, False, False, True]
    assert questions.repeat.tolist() == [False, False, False, False, True, False]
    assert questions.seen.tolist() == [False, False, True, True, True, False]
    assert questions.position.tolist() == [0, 1, 2, 0, 1, 2]
    asked = [(query, length) for queries in sessions for query in queries for length in prefix_lengths(query)]
    assert questions.prefix_length.tolist() == [length for _, length in asked]
    begins = [any(known.startswith(query[:length]) for known in popular) for query, length in asked]
    assert questions.seen_prefix.tolist() == begins
    parts = summarize(questions, [ask(Script({}), questions, progress=nothing)], seed=1)["slices"]
    asked_of = [len(prefix_lengths(query)) for queries in sessions for query in queries]
    assert parts["navigational"]["n"] == sum(asked_of[place] for place in (0, 1, 5))
    assert parts["repeat_free"]["n"] == sum(asked_of) - asked_of[4]
    assert parts["unseen_prefix"]["n"] == begins.count(False)
    assert parts["seen_prefix"]["n"] + parts["unseen_prefix"]["n"] == len(asked)
    assert parts["position_0"]["n"] + parts["position_1+"]["n"] == len(asked)
    assert sum(parts[f"prefix_{group}"]["n"] for group in ("1-3", "4-7", "8+")) == len(asked)


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
        summarize(questions, [ask(system, questions, progress=nothing)], seed=1)
        for questions in (
            draw_questions(order, "suggest", popular=(), max_queries=10_000, seed=1) for order in (sessions, shuffled)
        )
    ]
    assert figures[0]["mrr@10"] == pytest.approx(figures[1]["mrr@10"])
    assert figures[0]["mrr@10"] > 0
    assert figures[0]["bleu"] == pytest.approx(figures[1]["bleu"])
