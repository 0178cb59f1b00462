"""What a user sees, on random weights: the rules hold whatever the network says, in PyTorch and on ONNX Runtime."""

import dataclasses
import math
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from export.graphs import build_graphs
from mtn_edge.config import ModelConfig
from mtn_edge.decoding.prefix_constraint import PrefixConstraint
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.errors import UserError
from mtn_edge.models.build import build
from mtn_edge.runtime import suggester as says
from mtn_edge.runtime.blocklist import Blocklist, fold
from mtn_edge.runtime.call import TOO_LATE
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import DEAD, Engine, OnnxEngine
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Session, Suggester, SuggestResult
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import EOS, Tokenizer
from quantize.plan import uniform_plan

POPULAR = {
    "new york hotels": 9,
    "new york": 8,
    "news today": 8,
    "newspaper": 7,
    "restaurants near me": 6,
    "restaurant menu": 5,
    "jobs for teachers": 4,
    "new 🎉 party": 3,
    "東京 天気": 3,
    "сколько стоит билет": 3,
    "مطعم قريب": 2,
    "מסעדה כשרה": 2,
    "naïve café": 2,
    "sussex university": 2,
    "sex": 1,
}
TOKENIZER = Tokenizer.train([query for query, count in POPULAR.items() for _ in range(count)], 420)
CONFIG = ModelConfig(
    vocab_size=len(TOKENIZER),
    d_model=32,
    heads=2,
    ffn=48,
    query_layers=1,
    session_layers=1,
    decoder_layers=2,
    max_tokens=12,
    max_queries=4,
)
MAX_STEPS = CONFIG.max_tokens + 1
DECODING = Decoding(beam=8, max_steps=MAX_STEPS)


def both_engines(folder: Path, config: ModelConfig) -> dict[str, Engine]:
    """Random weights that like to end, in PyTorch and on ONNX Runtime."""
    torch.manual_seed(6)
    model = build(config).eval()
    with torch.no_grad():
        model.decoder_norm.bias.copy_(4 * model.embedding.weight[EOS])  # type: ignore[union-attr, operator]
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    build_graphs(state, config, uniform_plan("fp32")).save(folder)
    return {"torch": TorchEngine(model), "onnx": OnnxEngine(folder, dataclasses.asdict(config))}


@pytest.fixture(scope="module", params=["torch", "onnx"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return both_engines(tmp_path_factory.mktemp("graphs"), CONFIG)[request.param]


@pytest.fixture(scope="module")
def make(engine: Engine) -> Callable[..., Suggester]:
    def suggester(
        popular: dict[str, int] = POPULAR,
        denied: tuple[str, ...] = (),
        engine: Any = engine,
        decoding: Decoding = DECODING,
    ) -> Suggester:
        return Suggester(
            engine=engine,
            tokenizer=TOKENIZER,
            completions=Completions(popular.items()),
            blocklist=Blocklist(denied),
            decoding=decoding,
        )

    return suggester


@pytest.fixture(scope="module")
def session(make: Callable[..., Suggester]) -> Session:
    return make().session(["new york", "restaurants near me"])


def check(result: SuggestResult, typed: str, k: int) -> None:
    """All that must hold of any list."""
    texts = [suggestion.text for suggestion in result.suggestions]
    assert len(texts) <= k
    assert all(text.startswith(typed) and len(text) > len(typed) for text in texts)
    folded = [fold(text) for text in texts]
    assert len({*folded, fold(typed)}) == len(folded) + 1
    for suggestion in result.suggestions:
        assert "\ufffd" not in suggestion.text.removeprefix(typed)
        assert normalize(suggestion.text) == normalize_prefix(typed) + suggestion.text[len(typed) :]
        assert suggestion.score < 0
    model = [suggestion.score for suggestion in result.suggestions if suggestion.source == "model"]
    assert model == sorted(model, reverse=True)
    sources = [suggestion.source for suggestion in result.suggestions]
    assert sources == sorted(sources, reverse=True)  # the model's come first
    assert (result.reason is None) == (len(model) == k > 0)


TYPED = [
    *("", " ", "n", "new", "new ", "new  ", "NEW", "New Y", "restau", "Thre", "goo", "EBAY", "ebay ", "Dette"),
    *(
        "new 🎉",
        "👩\u200d🏫 jobs",
        "👩\u200d",
        "北京 new",
        "東",
        "ＡＯＬ　検索",
        "ﬁn",
        "naïve",
        "nai\u0308ve",
        "e",
        "e\u0301",
    ),
    *(
        "مطعم",
        "מסעד",
        "абвгд",
        "\u200fمطعم",
        "İs",
        "ß",
        "ΣΑΣ",
        "हिन्",
        "ㅎ",
        "ᄒ",
        '20" tv',
        "a\tb",
        "\u3000x",
        "\u00ad",
        "\U0010ffff",
    ),
]


@pytest.mark.parametrize("typed", TYPED)
def test_every_suggestion_begins_with_what_was_typed(session: Session, typed: str) -> None:
    result = session.suggest(typed, 10)
    check(result, typed, 10)
    assert (result.prefix, result.session) == (typed, ["new york", "restaurants near me"])


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12), st.integers(1, 12))
def test_the_rules_hold_for_any_text(session: Session, typed: str, k: int) -> None:
    check(session.suggest(typed, k), typed, k)


def test_the_rules_hold_inside_every_popular_query(session: Session) -> None:
    for query in POPULAR:
        for end in range(len(query)):
            for typed in (query[:end], query[:end].upper(), query[:end] + " "):
                if normalize_prefix(typed.lower()) == normalize_prefix(typed):
                    check(session.suggest(typed, 8), typed, 8)


def test_a_typed_blank_counts(session: Session) -> None:
    assert any(found.text.startswith("news") for found in session.suggest("new", 64).suggestions)
    after = session.suggest("new ", 64)
    assert "new york hotels" in [found.text for found in after.suggestions]
    check(after, "new ", 64)


def test_what_was_typed_is_kept_and_what_follows_is_normal(session: Session) -> None:
    texts = [found.text for found in session.suggest("NEW  Y", 64).suggestions]
    assert "NEW  York hotels".lower().replace("new  y", "NEW  Y") in texts
    assert all(text.startswith("NEW  Y") and text[6:] == text[6:].lower() for text in texts)


def test_strings_are_distinct_and_no_less_probable_than_one_segmentation(session: Session, make: Any) -> None:
    suggester = make({})
    model = suggester.session(session.queries)
    result = model.suggest("n", 50)
    assert len(result.suggestions) >= 20
    check(result, "n", 50)
    for found in result.suggestions:
        alone, _ = model.log_probability(found.text)  # of one segmentation only
        assert found.score >= alone - 1e-3


def test_the_beam_grows_with_k_and_its_first_lines_are_what_wider_beams_can_only_better(session: Session) -> None:
    scores = [session.suggest("n", k).suggestions[0].score for k in (1, 8, 16, 64)]
    assert scores[0] == scores[1]
    assert scores[1] <= scores[2] + 1e-4 <= scores[3] + 2e-4


def test_a_query_appended_is_a_query_opened_with(make: Any) -> None:
    suggester = make()
    queries = ["new york", "news", "", "  ", "restaurant", "東京", "jobs", "new", "york hotels", "x y z", "menu"]
    growing = suggester.session()
    for end, query in enumerate(queries, 1):
        growing.append(query)
        opened = suggester.session(queries[:end])
        assert growing.queries == opened.queries == [text for text in queries[:end] if text.strip()]
        assert growing.suggest("ne", 8).suggestions == opened.suggest("ne", 8).suggestions
        assert growing.state["session_keys"].shape[2] <= CONFIG.max_queries + 1


def test_a_long_session_forgets_its_oldest_queries_only(make: Any) -> None:
    suggester = make()
    queries = ["news", "york", "hotels", "menu", "jobs", "party"]  # two more than the context holds
    kept = suggester.session(queries[2:]).suggest("n", 8).suggestions
    assert suggester.session(queries).suggest("n", 8).suggestions == kept
    assert suggester.session(queries[:1] + queries[2:]).suggest("n", 8).suggestions != kept


def test_an_earlier_query_of_400_words_is_read_by_its_end(make: Any) -> None:
    suggester = make()
    words = ["new", "york"] * 200
    long = suggester.session([" ".join(words)])
    check(long.suggest("res", 8), "res", 8)
    other = suggester.session([" ".join(["menu", *words[1:]])])
    assert long.suggest("res", 8).suggestions == other.suggest("res", 8).suggestions
    assert long.suggest("res", 8).suggestions != suggester.session(["new york jobs"]).suggest("res", 8).suggestions


@pytest.mark.parametrize("typed", ["\ud800", "new \udfff", "new\0york", "\0"])
def test_text_that_is_no_text_gets_an_empty_list(session: Session, typed: str) -> None:
    result = session.suggest(typed)
    assert (result.suggestions, result.reason) == ([], says.UNREADABLE)
    assert result.to_json()["prefix"].encode()


@pytest.mark.parametrize("length", [51, 1_025, 10_000])
def test_text_beyond_reach_gets_an_honest_list_at_once(session: Session, length: int) -> None:
    result = session.suggest("ю" * length, deadline_ms=200)
    assert (result.suggestions, result.reason) == ([], says.TOO_LONG)
    assert result.elapsed_ms < 10_000


def test_popular_completions_answer_where_the_model_cannot_reach(make: Any) -> None:
    typed = "ж" * 40
    result = make({typed + " и": 3}).session().suggest(typed)
    assert [(found.text, found.source) for found in result.suggestions] == [(typed + " и", "completions")]
    assert result.reason == says.TOO_LONG


@pytest.mark.parametrize("k", [0, 1, 10_000])
def test_any_number_may_be_asked_for(session: Session, k: int) -> None:
    result = session.suggest("new", k)
    check(result, "new", k)
    assert (result.reason == says.NOTHING_ASKED) == (k == 0)
    assert (result.reason == says.FEW) == (k == 10_000)


def test_a_negative_number_is_refused(session: Session) -> None:
    with pytest.raises(UserError, match="`k` is -1, and it must be at least 0; ask for 1 or more"):
        session.suggest("new", -1)


def test_an_earlier_query_that_is_no_text_is_refused_and_leaves_the_session_as_it_was(make: Any) -> None:
    opened = make().session(["new"])
    with pytest.raises(UserError, match="lone surrogate"):
        opened.append("a\ud800")
    assert opened.queries == ["new"]


def test_denied_words_are_never_shown_and_innocent_ones_stay(make: Any) -> None:
    opened = make(denied=("sex", "york hotels")).session()
    everything = [found.text for found in opened.suggest("", 10_000).suggestions]
    assert "sussex university" in everything
    assert not {"sex", "new york hotels"} & set(everything)
    assert "sex" in [found.text for found in make().session().suggest("", 10_000).suggestions]
    for typed in ("sex", "SEX ", "ｓｅｘ", "new york  hotels", "sex-shop"):
        result = opened.suggest(typed)
        assert (result.suggestions, result.reason) == ([], says.DENIED), typed
    for typed in ("se", "sexual", "essex", "sussex", "york", "hotels york "):
        check(opened.suggest(typed, 5), typed, 5)
        assert opened.suggest(typed, 5).reason != says.DENIED


def test_a_generated_denied_word_is_left_out(make: Any) -> None:
    free = make({}).session().suggest("n", 8).suggestions
    word = next(found.text for found in free if found.text.isalpha())
    left = make({}, denied=(word,)).session().suggest("n", 8).suggestions
    assert word not in [found.text for found in left]
    kept = [found for found in free if found.text != word and word not in found.text.split()]
    # A wider search was made, which may find a better one for the last place.
    assert left[: len(kept) - 1] == sorted(left, key=lambda found: -found.score)[: len(kept) - 1]
    assert len(set(kept) - set(left)) <= 1


def test_a_deadline_that_passed_gives_the_popular_completions_in_time(session: Session) -> None:
    result = session.suggest("new", 3, deadline_ms=0)
    assert [found.text for found in result.suggestions] == ["new york hotels", "new york", "news today"]
    assert {found.source for found in result.suggestions} == {"completions"}
    assert result.reason == TOO_LATE
    assert session.suggest("new", 3, deadline_ms=60_000).reason is None


def test_eight_threads_get_what_one_gets(make: Any) -> None:
    suggester = make()
    typed = [text for text in TYPED if text] * 3
    sessions = [["new york"], ["jobs", "menu"], []]
    right = [suggester.session(sessions[n % 3]).suggest(text, 5).suggestions for n, text in enumerate(typed)]
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for n in range(first, len(typed), 8):
            found[n] = suggester.session(sessions[n % 3]).suggest(typed[n], 5).suggestions

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(typed))] == right


def test_log_probability_counts_the_end_unless_the_query_is_cut(session: Session) -> None:
    score, count = session.log_probability("News Today")
    assert count == len(TOKENIZER.encode("news today")) + 1
    assert score < 0
    long = "ж" * 40
    assert len(TOKENIZER.encode(long)) > CONFIG.max_tokens
    assert session.log_probability(long)[1] == CONFIG.max_tokens
    exact = TOKENIZER.decode_bytes(TOKENIZER.encode(long)[: CONFIG.max_tokens]).decode(errors="ignore")
    if len(TOKENIZER.encode(exact)) == CONFIG.max_tokens:
        assert session.log_probability(exact)[0] < session.log_probability(long)[0]


@pytest.mark.parametrize("memory", ["all", "last"])
def test_onnx_runtime_gives_what_pytorch_gives(tmp_path: Path, memory: Literal["all", "last"]) -> None:
    engines = both_engines(tmp_path, dataclasses.replace(CONFIG, memory=memory))
    constraint = PrefixConstraint(TOKENIZER.token_bytes, TOKENIZER.encode)
    states = {name: engine.start() for name, engine in engines.items()}
    for query in ("new york", "jobs for teachers", "menu"):
        states = {name: engine.append(TOKENIZER.encode(query), states[name]) for name, engine in engines.items()}
        for prefix, beam in (("", 1), ("n", 4), ("res", 8), ("東", 16), ("new york h", 8)):
            typed = constraint.typed(prefix, CONFIG.max_tokens)
            assert typed is not None
            steps = MAX_STEPS + 1 - len(typed.start_tokens)
            (tokens, scores, mass), (right_tokens, right_scores, right_mass) = (
                engines[name].search(states[name], typed, beam=beam, max_steps=steps) for name in ("onnx", "torch")
            )
            assert mass == pytest.approx(right_mass, abs=1e-4)
            alive = right_scores > DEAD
            assert (tokens[alive] == right_tokens[alive]).all()
            assert scores[alive] == pytest.approx(right_scores[alive], abs=1e-4)


def test_completions_are_looked_up_until_the_list_is_full(make: Any) -> None:
    popular = {f"nono {n}": 100 - n for n in range(20)} | {"nope": 3, "not": 2, "no": 1}
    opened = make(popular, denied=("nono",)).session()
    result = opened.suggest("NO", 2, deadline_ms=0)
    assert [(found.text, found.source) for found in result.suggestions] == [
        ("NOpe", "completions"),
        ("NOt", "completions"),
    ]
    total = sum(popular.values())
    assert result.suggestions[0].score == pytest.approx(math.log(3 / total))
    assert len(opened.suggest("no", 3, deadline_ms=0).suggestions) == 2


def test_json_has_the_fields_of_the_contract(session: Session) -> None:
    document = session.suggest("new", 2).to_json()
    assert list(document) == ["suggestions", "prefix", "session", "reason", "elapsed_ms"]
    assert [list(entry) for entry in document["suggestions"]] == [["text", "score", "source"]] * 2


def test_random_sessions_and_prefixes(make: Any) -> None:
    generator = random.Random(3)
    suggester = make()
    words = sorted({word for query in POPULAR for word in query.split()})
    for _ in range(200):
        opened = suggester.session([" ".join(generator.choices(words, k=2)) for _ in range(generator.randrange(7))])
        text = " ".join(generator.choices(words, k=3))
        typed = text[: generator.randrange(len(text))]
        check(opened.suggest(typed, 8), typed, 8)


@pytest.mark.parametrize("number", [2, 5])
def test_a_fault_of_the_engine_leaves_the_session_as_it_was(
    make: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    queries = ["new york", "news today", "jobs", "menu", "near me"]
    opened = make().session(queries[: number - 1])
    with monkeypatch.context() as broken:
        broken.setattr(engine, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opened.append(queries[number - 1])
    assert opened.queries == queries[: number - 1]
    opened.append(queries[number - 1])
    whole = make().session(queries[:number])
    assert opened.queries == whole.queries
    assert opened.suggest("n", 5).suggestions == whole.suggest("n", 5).suggestions


def test_an_unknown_mode_and_a_deadline_that_is_no_number_are_refused(session: Session) -> None:
    with pytest.raises(UserError, match="`mode` is 'Grounded', and there are generate and grounded; give one of them"):
        session.suggest("new", mode="Grounded")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="`deadline_ms` is nan, and it must be a number; leave it out for none"):
        session.suggest("new", deadline_ms=math.nan)
