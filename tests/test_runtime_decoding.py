"""How hypotheses become a list: summed by string, ranked by length, cut at the confidence floor, with the reason."""

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.graphs import build_graphs
from mtn_edge.config import ModelConfig
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.errors import UserError
from mtn_edge.models.build import build
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import NO_FLOOR, Engine, Hypotheses, OnnxEngine
from mtn_edge.runtime.lists import Mixing
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import DOUBTFUL, FEW, Suggester, Suggestion
from mtn_edge.tokenizer import EOS, PAD, Tokenizer
from quantize.plan import uniform_plan

POPULAR = {
    "new york hotels": 9,
    "new york": 8,
    "news today": 8,
    "newspaper": 7,
    "restaurants near me": 6,
    "東京 天気": 3,
    "net": 1,
}
TOKENIZER = Tokenizer.train([query for query, count in POPULAR.items() for _ in range(count)], 400)
MOST = 12


class SaidBefore:
    """An engine that gives the rows it was made with, and keeps what it was asked.

    Args:
        rows: what each row spells, as texts (spelt as the tokenizer does) or tokens, and its score.
        mass: what the first step allows.
    """

    vocab_size, max_tokens, max_queries = len(TOKENIZER), MOST, 4

    def __init__(self, rows: Sequence[tuple[str | list[int], float]], mass: float = 0.0) -> None:
        self.mass, self.asked = mass, list[dict[str, Any]]()
        tokens = [[*TOKENIZER.encode(spelt), EOS] if isinstance(spelt, str) else spelt for spelt, _ in rows]
        longest = max(map(len, tokens))
        self.tokens = np.array([row + [PAD] * (longest - len(row)) for row in tokens])
        self.scores = np.array([score for _, score in rows], dtype=np.float32)

    def start(self) -> None:
        return None

    def search(self, *_: Any, **asked: Any) -> Hypotheses:
        self.asked.append(asked)
        return Hypotheses(self.tokens, self.scores, self.mass)


def suggester(engine: Any, decoding: Decoding, popular: dict[str, int] | None = None) -> Suggester:
    return Suggester(
        engine=engine,
        tokenizer=TOKENIZER,
        completions=Completions((popular or {}).items()),
        blocklist=Blocklist(),
        decoding=decoding,
    )


def letters(text: str) -> list[int]:
    return [TOKENIZER.token_bytes.index(bytes([byte])) for byte in text.encode()]


def shown(suggestions: Sequence[Suggestion]) -> list[tuple[str, float, str]]:
    return [(found.text, round(found.score, 4), found.source) for found in suggestions]


def test_segmentations_are_summed_and_what_is_dead_or_unfinished_is_dropped() -> None:
    assert len(TOKENIZER.encode("news")) < 4
    rows = [
        ("newspaper", -2.0),
        ("news", -2.5),
        ([*letters("news"), EOS], -2.5),
        ([*TOKENIZER.encode("new york"), *TOKENIZER.encode(" h")], -3.0),
        ("net", -1e9),
    ]
    result = suggester(SaidBefore(rows), Decoding()).session().suggest("ne", 5)
    assert shown(result.suggestions) == [
        ("news", round(math.log(2) - 2.5, 4), "model"),
        ("newspaper", -2.0, "model"),
    ]
    assert result.reason == FEW
    ended = suggester(SaidBefore([row for row in rows if row[1] != -3.0]), Decoding()).session().suggest("ne", 5)
    assert (ended.suggestions, ended.reason) == (result.suggestions, FEW)


def test_scores_are_given_what_was_typed() -> None:
    rows: list[tuple[str | list[int], float]] = [("newspaper", -5.0), ("news", -6.0), ([*letters("news"), EOS], -6.0)]
    result = suggester(SaidBefore(rows, mass=-4.5), Decoding()).session().suggest("ne", 5)
    assert shown(result.suggestions) == [
        ("newspaper", -0.5, "model"),
        ("news", round(-1.5 + math.log(2), 4), "model"),
    ]


@pytest.mark.parametrize(
    ("decoding", "asked", "typed", "floor"),
    [
        (Decoding(), None, "ne", NO_FLOOR),
        (Decoding(), None, "", NO_FLOOR),
        (Decoding(min_probability_complete=0.1, min_probability_suggest=0.02), None, "ne", math.log(0.1)),
        (Decoding(min_probability_complete=0.1, min_probability_suggest=0.02), None, "", math.log(0.02)),
        (Decoding(min_probability_complete=0.1, min_probability_suggest=0.02), None, "  ", math.log(0.02)),
        (Decoding(min_probability_complete=0.1, min_probability_suggest=0.02), 0, "ne", NO_FLOOR),
        (Decoding(min_probability_complete=0.1, min_probability_suggest=0.02), 0.0, "", NO_FLOOR),
        (Decoding(), 0.3, "ne", math.log(0.3)),
    ],
)
def test_the_search_gets_the_floor_of_the_task_or_of_the_request(
    decoding: Decoding, asked: float | None, typed: str, floor: float
) -> None:
    engine = SaidBefore([("newspaper", -0.1)])
    suggester(engine, decoding).session().suggest(typed, 3, min_probability=asked)
    assert [request["floor"] for request in engine.asked] == [pytest.approx(floor)]


def test_nothing_below_the_floor_is_shown_and_completions_fill_the_list() -> None:
    rows: list[tuple[str | list[int], float]] = [
        ("newspaper", math.log(0.3)),
        ("new york", math.log(0.15)),
        ([*letters("new york"), EOS], math.log(0.1)),  # too little each, enough together
        ("net", math.log(0.19)),
    ]
    opened = suggester(SaidBefore(rows), Decoding(min_probability_complete=0.2), POPULAR).session()
    result = opened.suggest("ne", 5)
    assert shown(result.suggestions)[:2] == [
        ("newspaper", round(math.log(0.3), 4), "model"),
        ("new york", round(math.log(0.25), 4), "model"),
    ]
    assert [(found.text, found.source) for found in result.suggestions[2:]] == [
        ("new york hotels", "completions"),
        ("news today", "completions"),
        ("net", "completions"),
    ]
    assert result.reason == DOUBTFUL
    assert opened.suggest("ne", 2).reason is None
    without = opened.suggest("ne", 3, min_probability=0)
    assert [(found.text, found.source) for found in without.suggestions] == [
        ("newspaper", "model"),
        ("new york", "model"),
        ("net", "model"),
    ]


def test_a_doubtful_list_stays_empty_and_says_so() -> None:
    engine = SaidBefore([("newspaper", math.log(0.3)), ("net", math.log(0.2))], mass=math.log(0.9))
    result = suggester(engine, Decoding(min_probability_complete=0.5)).session().suggest("ne", 5)
    assert (result.suggestions, result.reason) == ([], DOUBTFUL)


@pytest.mark.parametrize("wrong", [-0.1, 1, 1.5, float("nan"), float("inf")])
def test_what_is_no_probability_is_refused(wrong: float) -> None:
    opened = suggester(SaidBefore([("net", -1.0)]), Decoding()).session()
    with pytest.raises(UserError, match=r"`min_probability` is .*, and it must be at least 0 and below 1; give 0"):
        opened.suggest("ne", 5, min_probability=wrong)
    assert opened.suggest("ne", 5, min_probability=0).suggestions


TEXTS = ("news", "newspaper", "new york", "new york hotels", "news today", "net")


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_ranks_follow_the_formula_and_scores_stay_log_probabilities(power: float) -> None:
    scores = {text: -1.0 - 0.3 * place for place, text in enumerate(sorted(TEXTS, key=len))}
    rows: list[tuple[str | list[int], float]] = list(scores.items())
    result = suggester(SaidBefore(rows), Decoding(length_normalization=power)).session().suggest("ne", 9)
    counts = {text: len(TOKENIZER.encode(text)) + 1 for text in TEXTS}
    right = sorted(TEXTS, key=lambda text: (-scores[text] / counts[text] ** power, text))
    assert [found.text for found in result.suggestions] == right
    for found in result.suggestions:
        assert found.score == pytest.approx(scores[found.text], abs=1e-5)
    assert len(set(counts.values())) > 2
    assert (right == sorted(TEXTS, key=lambda text: -scores[text])) == (power == 0)


def test_the_most_probable_segmentation_gives_the_length() -> None:
    rows: list[tuple[str | list[int], float]] = [
        ("net", -1.9),
        ([*letters("newspaper"), EOS], -2.0),  # -2.0 / 10 tokens, not -2.0 / 2
        ("newspaper", -9.0),
    ]
    assert [len(TOKENIZER.encode(text)) for text in ("net", "newspaper")] == [1, 1]
    for power, right in ((0.0, ["net", "newspaper"]), (1.0, ["newspaper", "net"])):
        found = suggester(SaidBefore(rows), Decoding(length_normalization=power)).session().suggest("ne").suggestions
        assert [suggestion.text for suggestion in found] == right


def test_equal_ranks_stand_in_the_order_of_their_texts() -> None:
    rows: list[tuple[str | list[int], float]] = [(text, -1.0) for text in ("news", "net", "new york", "newspaper")]
    result = suggester(SaidBefore(rows), Decoding()).session().suggest("ne", 4)
    assert [found.text for found in result.suggestions] == sorted(["news", "net", "new york", "newspaper"])


def test_the_manifest_keeps_all_settings() -> None:
    decoding = Decoding(
        beam=5,
        max_steps=7,
        min_probability_complete=0.125,
        min_probability_suggest=0.25,
        length_normalization=0.5,
        mix_complete=Mixing(0.1, 0.2, 3.0),
        mix_suggest=Mixing(0.0, 0.5, 1.0),
    )
    section = json.loads(json.dumps(dataclasses.asdict(decoding)))
    assert len(section) == 7
    for wrong in ([1.0, 0, 1], [0, -0.1, 1], [0, 0, 0], [0.1], "x"):
        with pytest.raises(UserError, match="out of range"):
            Decoding.from_manifest({**section, "mix_complete": wrong})
    assert Decoding.from_manifest({**section, "of a later version": [1]}) == decoding
    for name in section:
        with pytest.raises(UserError, match="lacks a setting"):
            Decoding.from_manifest({key: value for key, value in section.items() if key != name})


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    """Random weights that like to end, in PyTorch and on ONNX Runtime."""
    config = ModelConfig(
        vocab_size=len(TOKENIZER), d_model=32, heads=2, ffn=48, decoder_layers=1, max_tokens=MOST, max_queries=4
    )
    folder = tmp_path_factory.mktemp("graphs")
    torch.manual_seed(5)
    model = build(config).eval()
    with torch.no_grad():
        model.decoder_norm.bias.copy_(4 * model.embedding.weight[EOS])  # type: ignore[union-attr, operator]
    build_graphs({name: x.numpy() for name, x in model.state_dict().items()}, config, uniform_plan("fp32")).save(folder)
    return {"torch": TorchEngine(model), "onnx": OnnxEngine(folder, dataclasses.asdict(config))}


@pytest.mark.parametrize("kind", ["torch", "onnx"])
@pytest.mark.parametrize("typed", ["", "ne", "new ", "new york h"])
@pytest.mark.parametrize("least", [0.001, 0.01, 0.05, 0.3])
def test_a_floor_cuts_the_list_and_changes_nothing_above_it(
    engines: dict[str, Engine], kind: str, typed: str, least: float
) -> None:
    opened = suggester(engines[kind], Decoding(beam=16, max_steps=MOST + 1)).session(["news"])
    free = {found.text: found.score for found in opened.suggest(typed, 16).suggestions}
    result = opened.suggest(typed, 16, min_probability=least)
    cut = {found.text: found.score for found in result.suggestions}
    assert all(score > math.log(least) for score in cut.values())
    assert cut.keys() <= {text for text, score in free.items() if score > math.log(least)}
    # Some of its segmentations may be given up; half of a probability is never lost to that here.
    assert cut.keys() >= {text for text, score in free.items() if score > math.log(2 * least)}
    for text, score in cut.items():
        assert free[text] - math.log(2) < score < free[text] + 1e-4
    if len(cut) < 16:
        assert result.reason == DOUBTFUL


@pytest.mark.parametrize("beam", [1, 4, 8])
@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_any_beam_keeps_to_the_text_and_a_cached_session_is_one_opened_at_once(
    engines: dict[str, Engine], kind: str, beam: int
) -> None:
    made = suggester(engines[kind], Decoding(beam=beam, max_steps=MOST + 1))
    growing, queries = made.session(), ["news", "new york", "東京", "net", "restaurants near me", "hotels"]
    for end, query in itertools.chain([(0, "")], enumerate(queries, 1)):
        growing.append(query)
        opened = made.session(queries[:end])
        for typed in ("", "n", "NEW ", "new york h", "東", "restau"):
            rows, right = (made.search.hypotheses(session.state, typed.lower(), beam) for session in (growing, opened))
            assert rows is not None
            assert right is not None
            np.testing.assert_array_equal(rows.tokens, right.tokens)
            np.testing.assert_array_equal(rows.scores, right.scores)
            assert rows.tokens.shape[0] == beam
            texts = [found.text for found in growing.suggest(typed, beam).suggestions]
            assert all(text.startswith(typed) and len(text) > len(typed) for text in texts)


def test_repeated_requests_give_the_same_list(engines: dict[str, Engine], tmp_path: Path) -> None:
    for engine in engines.values():
        opened = suggester(engine, Decoding(max_steps=MOST + 1)).session(["news"])
        first = {typed: opened.suggest(typed).suggestions for typed in ("", "n", "new ", "東")}
        for _ in range(20):
            for typed, suggestions in first.items():
                assert opened.suggest(typed).suggestions == suggestions
