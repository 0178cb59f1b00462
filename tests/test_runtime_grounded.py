"""Grounded mode: nothing but popular queries comes out, in the order of the model's probabilities."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtn_edge.cli import app
from mtn_edge.runtime.suggester import DOUBTFUL, NO_MORE_POPULAR, Suggester

SESSIONS = ([], ["jaguar price"], ["new york hotels", "new york weather"])
TYPED = ("", "n", "new york ", "NEW YORK", "jaguar ", "ja", "b", "москва", "東", "near")


@pytest.fixture(scope="module")
def suggester(tiny_bundle: Path) -> Suggester:
    return Suggester.open(tiny_bundle)


@pytest.fixture(scope="module")
def popular(tiny_dataset: Path) -> dict[str, int]:
    from mtn_edge.data.dataset import Dataset

    return dict(Dataset.open(tiny_dataset).popularity())


@pytest.mark.parametrize("queries", SESSIONS, ids=str)
@pytest.mark.parametrize("typed", TYPED)
def test_only_popular_queries_come_out(
    suggester: Suggester, popular: dict[str, int], queries: list[str], typed: str
) -> None:
    result = suggester.session(queries).suggest(typed, 8, mode="grounded")
    texts = [typed.lower() + found.text[len(typed) :] for found in result.suggestions]
    assert len(set(texts)) == len(texts)
    assert set(texts) <= set(popular)
    assert all(found.text.startswith(typed) for found in result.suggestions)
    left = [query for query in popular if query.startswith(typed.lower()) and query != typed.lower()]
    assert len(texts) == min(8, len(left))
    assert (result.reason is None) == (len([found for found in result.suggestions if found.source == "model"]) == 8)


def test_the_model_orders_them_by_its_own_probabilities(suggester: Suggester, popular: dict[str, int]) -> None:
    for queries in SESSIONS:
        session = suggester.session(queries)
        offered = [query for query in popular if query.startswith("new york ")]
        assert len(offered) > 3
        right = sorted(offered, key=lambda query: -session.log_probability(query)[0])
        found = session.suggest("new york ", len(offered), mode="grounded").suggestions
        assert [suggestion.source for suggestion in found] == ["model"] * len(offered)
        scores = {suggestion.text: suggestion.score for suggestion in found}
        for one, other in pairwise(right):
            # int8 scores move a little with the company that a hypothesis has
            assert scores[one] > scores[other] - 0.1


def test_probabilities_are_those_among_the_queries(suggester: Suggester) -> None:
    session = suggester.session(["jaguar price"])
    found = session.suggest("jaguar ", 20, mode="grounded").suggestions
    assert sum(math.exp(suggestion.score) for suggestion in found if suggestion.source == "model") < 1.01
    least = math.exp(found[1].score) * 0.99
    kept = session.suggest("jaguar ", 20, mode="grounded", min_probability=least).suggestions
    assert [suggestion.text for suggestion in kept if suggestion.source == "model"] == [s.text for s in found[:2]]


def test_nothing_popular_is_an_empty_list_with_a_reason(suggester: Suggester) -> None:
    for typed in ("zzzz", "jaguar food near me ", "x" * 900):
        result = suggester.session().suggest(typed, 8, mode="grounded")
        assert (result.suggestions, result.reason) == ([], NO_MORE_POPULAR)


def test_the_command_changes_with_the_block_list(tiny_bundle: Path, popular: dict[str, int], tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("hotels\n", encoding="utf-8")
    arguments = ["suggest", str(tiny_bundle), "-p", "new york ", "--mode", "grounded", "--json"]
    free = json.loads(CliRunner().invoke(app, arguments).stdout)
    left = json.loads(CliRunner().invoke(app, [*arguments, "--blocklist", str(denied)]).stdout)
    texts = {entry["text"] for entry in free["suggestions"]}
    assert "new york hotels" in texts <= set(popular)
    assert {entry["text"] for entry in left["suggestions"]} == {text for text in texts if "hotels" not in text.split()}


def test_an_open_suggester_sees_its_block_list_change(tiny_bundle: Path, tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("", encoding="utf-8")
    session = Suggester.open(tiny_bundle, blocklist=denied).session()

    def texts() -> list[str]:
        return [found.text for found in session.suggest("new york ", 8, mode="grounded").suggestions]

    before = texts()
    assert "new york hotels" in before
    denied.write_text("hotels\n", encoding="utf-8")
    assert texts() == [text for text in before if text != "new york hotels"]
    denied.write_text("price\n", encoding="utf-8")
    assert texts() == before


def test_the_reason_says_whether_popular_queries_are_left(suggester: Suggester) -> None:
    session = suggester.session(["jaguar price"])
    doubtful = session.suggest("new york ", 3, mode="grounded", min_probability=0.99)
    assert {found.source for found in doubtful.suggestions} == {"completions"}
    assert (len(doubtful.suggestions), doubtful.reason) == (3, DOUBTFUL)
    everything = session.suggest("new york ", 10_000, mode="grounded", min_probability=0.99)
    assert everything.reason == NO_MORE_POPULAR
