"""The oracle of a simulated log as a system."""

import math

import pytest

from mtn_edge.evaluation.protocol import ask, draw_questions
from mtn_edge.evaluation.summary import summarize
from mtn_edge.evaluation.systems import Ceiling


class Coin:
    """A workload of two queries, the one not searched last being three times as probable."""

    texts = ("rome hotels", "rome")

    def start(self) -> "CoinSession":
        return CoinSession()


class CoinSession:
    def __init__(self) -> None:
        self.last = ""

    def append(self, query: str) -> None:
        self.last = query

    def log_probability(self, query: str) -> float:
        return math.log(0.25 if query == self.last else 0.75)

    def candidates(self, prefix: str) -> list[str]:
        fitting = [text for text in Coin.texts if text.startswith(prefix) and text != prefix]
        return sorted(fitting, key=self.log_probability, reverse=True) + ["x"] * 9


def test_the_ceiling_counts_whole_queries_over_the_datasets_tokens() -> None:
    system = Ceiling(Coin(), lambda text: [1] * len(text.split(" ")))
    assert system.nbytes is None
    session = system.start()
    session.append("rome")
    assert session.candidates("").texts[:2] == ["rome hotels", "rome"]
    assert len(session.candidates("").texts) == 10
    assert session.log_probability("rome hotels") == (math.log(0.75), 3)
    questions = draw_questions([["rome", "rome hotels", "rome hotels"]], "suggest", popular=(), max_queries=9, seed=1)
    figures = summarize(questions, [ask(system, questions, progress=lambda _: None)], seed=1)
    assert figures["mrr@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert figures["perplexity"] == pytest.approx(math.exp(-(math.log(0.75) + math.log(0.25)) / 6))
    assert figures["nats_per_character"] == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 24)
