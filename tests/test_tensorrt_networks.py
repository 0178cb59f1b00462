"""The engines' networks on PyTorch: what the product's own search finds, in batches of any size and mixture."""

import random
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engines' networks are PyTorch modules (extra [train])")

from export.checks import Check  # noqa: E402
from export.parity import random_session, state_of  # noqa: E402
from export.tensorrt import agreement  # noqa: E402
from export.tensorrt.batch import BatchEngine, KeyPress, search_feeds  # noqa: E402
from export.tensorrt.networks import QuantizedLinear, build_networks, in_half, in_int8  # noqa: E402
from export.tensorrt.sizes import Sizes  # noqa: E402
from mtn_edge.config import ModelConfig  # noqa: E402
from mtn_edge.decoding.prefix_constraint import PrefixConstraint  # noqa: E402
from mtn_edge.decoding.torch_engine import TorchEngine  # noqa: E402
from mtn_edge.errors import UserError  # noqa: E402
from mtn_edge.models.build import build  # noqa: E402
from mtn_edge.models.mtn import MTN  # noqa: E402
from mtn_edge.runtime.blocklist import Blocklist  # noqa: E402
from mtn_edge.runtime.completions import Completions  # noqa: E402
from mtn_edge.runtime.search import Decoding  # noqa: E402
from mtn_edge.runtime.suggester import Mode, Suggester  # noqa: E402
from mtn_edge.tokenizer import BOS, PAD, Tokenizer  # noqa: E402

SIZES: dict[str, Any] = {"d_model": 32, "heads": 4, "ffn": 48, "max_tokens": 9, "max_queries": 5, "decoder_layers": 1}
KINDS: list[dict[str, Any]] = [
    {"decoder_layers": 2, "query_layers": 2},
    {"norm": "post", "memory": "last"},
    {"projection": "full", "refinement": "sum"},
    {"share_decoder": True, "decoder_layers": 2, "session_layers": 2},
    {"memory_heads": 2, "layer_heads": (3, 2, 1), "layer_ffn": (40, 20, 7)},
]
PREFIXES = ("", "ne", "new ", "new york ho", "new new new h")
POPULAR = ("new york", "new york hotels", "new hotels", "naïve café", "york weather", "berlin hotels", "newer")
BEAM, STEPS, MAX_BATCH = 4, 5, 7


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["new york hotels", "new york weather", "berlin hotels", "naïve café"] * 4, 290)


def model_of(kind: dict[str, Any], vocab_size: int) -> tuple[MTN, ModelConfig]:
    """A network of random weights, none of them zero."""
    torch.manual_seed(5)
    config = ModelConfig(**{**SIZES, "vocab_size": vocab_size} | kind)
    model = build(config).eval()
    assert isinstance(model, MTN)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    return model, config


def cases_of(model: MTN, sizes: Sizes, tokenizer: Tokenizer) -> tuple[BatchEngine, list[agreement.Case]]:
    engine = build_networks(model, sizes).engine(sizes)
    constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode)
    return engine, agreement.record(TorchEngine(model), engine, sizes, constraint, PREFIXES, seed=2)


def all_hold(checks: list[Check]) -> None:
    assert [check for check in checks if not check.ok] == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_networks_find_what_the_reference_finds(kind: dict[str, Any], tokenizer: Tokenizer) -> None:
    model, config = model_of(kind, len(tokenizer))
    sizes = Sizes.of(config, beam=BEAM, steps=STEPS, max_batch=MAX_BATCH)
    engine, cases = cases_of(model, sizes, tokenizer)
    assert len(cases) >= 30
    all_hold(agreement.check(engine, sizes, cases, "fp32", "networks"))


def test_a_wrong_network_is_found_out(tokenizer: Tokenizer) -> None:
    model, config = model_of({}, len(tokenizer))
    sizes = Sizes.of(config, beam=BEAM, steps=STEPS, max_batch=MAX_BATCH)
    engine, cases = cases_of(model, sizes, tokenizer)
    with torch.no_grad():
        model.session_positions.weight[1, 0] += 1
    assert not all(check.ok for check in agreement.check(engine, sizes, cases, "fp32", "networks"))


def test_lists_are_those_of_the_product(tokenizer: Tokenizer) -> None:
    model, config = model_of({"decoder_layers": 2}, len(tokenizer))
    sizes = Sizes.of(config, beam=8, steps=10, max_batch=1)
    engines = (TorchEngine(model), build_networks(model, sizes).engine(sizes))
    ours, theirs = (
        Suggester(
            engine=engine,
            tokenizer=tokenizer,
            completions=Completions([(text, 9 - place) for place, text in enumerate(POPULAR)]),
            blocklist=Blocklist(["berlin"]),
            decoding=Decoding(beam=8, max_steps=10),
        )
        for engine in engines
    )
    rng, texts = random.Random(4), (*POPULAR, "berlin", "weather 東京", "")
    found = 0
    modes: tuple[Mode, ...] = ("generate", "grounded")
    for mode in modes * 14:
        session = [text for text in rng.choices(texts, k=rng.randint(0, 7)) if text]
        typed = rng.choice(texts)[: rng.randint(0, 5)]
        lists = [suggester.session(session).suggest(typed, 8, mode=mode) for suggester in (ours, theirs)]
        assert [s.text for s in lists[0].suggestions] == [s.text for s in lists[1].suggestions]
        scores = [[s.score for s in result.suggestions] for result in lists]
        np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)
        found += sum(s.source == "model" for s in lists[1].suggestions)
    assert found > 10


def test_a_batch_changes_nobodys_answer(tokenizer: Tokenizer) -> None:
    model, config = model_of({}, len(tokenizer))
    sizes = Sizes.of(config, beam=BEAM, steps=STEPS, max_batch=MAX_BATCH)
    engine, cases = cases_of(model, sizes, tokenizer)
    presses = [case.press for case in cases[:: len(cases) // MAX_BATCH]][:MAX_BATCH]
    for press, together in zip(presses, engine.run(presses), strict=True):
        alone = engine.run([press])[0]
        assert alone.tokens.tolist() == together.tokens.tolist()
        np.testing.assert_allclose(alone.scores, together.scores, rtol=1e-6, atol=1e-5)


def test_half_precision_and_int8_stay_close(tokenizer: Tokenizer) -> None:
    model, config = model_of({}, len(tokenizer))
    sizes = Sizes.of(config, beam=BEAM, steps=STEPS, max_batch=MAX_BATCH)
    networks = build_networks(model, sizes)
    _, cases = cases_of(model, sizes, tokenizer)
    half = in_half(networks)
    assert half.search.scores.weight is half.search.model.embedding.weight
    assert {part.dtype for network in half for part in network.parameters()} == {torch.float16}
    all_hold(agreement.check(half.engine(sizes), sizes, cases, "fp16", "networks"))
    rounded = in_int8(networks, sizes, [case.press for case in cases])
    assert not any(
        isinstance(layer, torch.nn.Linear) for layer in rounded.search.model.decoder_layers[0].attention.modules()
    )
    assert sum(isinstance(layer, QuantizedLinear) for layer in rounded.encoder.modules()) >= 8
    all_hold(agreement.check(rounded.engine(sizes), sizes, cases, "int8", "networks"))
    assert not any(isinstance(layer, QuantizedLinear) for network in networks for layer in network.modules())


def test_arrays_of_a_batch(tokenizer: Tokenizer) -> None:
    constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode)
    session = np.array([[BOS, PAD, PAD]])
    typed = [constraint.typed(text, 9) for text in ("", "new york ho")]
    feeds = search_feeds([KeyPress(session, one, 4) for one in typed if one is not None])
    long = typed[1]
    assert long is not None
    assert feeds["start_tokens"].tolist() == [[BOS] + [PAD] * (len(long.start_tokens) - 1), long.start_tokens.tolist()]
    assert feeds["next_state"].shape == (2, len(long.next_state), len(tokenizer))
    assert not feeds["next_state"][0, -3:].any()  # states that the shorter text has not
    assert feeds["max_steps"].tolist() == [4, 4]


def test_what_does_not_fit_is_refused(tokenizer: Tokenizer) -> None:
    model, config = model_of({}, len(tokenizer))
    sizes = Sizes.of(config, beam=BEAM, steps=STEPS, max_batch=2)
    engine = build_networks(model, sizes).engine(sizes)
    typed = PrefixConstraint(tokenizer.token_bytes).typed("n", 9)
    assert typed is not None
    state = state_of(engine, random_session(engine, 2, 1))
    with pytest.raises(UserError, match=r"a batch of 3 key presses was given, and the engines take 1 to 2"):
        engine.run([KeyPress(state["session_queries"], typed, 3)] * 3)
    with pytest.raises(UserError, match=r"a beam of 9 was asked for, and the engine has one of 4"):
        engine.search(state, typed, beam=9, max_steps=3)


@pytest.mark.parametrize(
    ("setting", "sizes", "sentence"),
    [
        ({}, {"beam": 65}, r"`--beam` is 65, and it must be 1 to 64"),
        ({}, {"steps": 11}, r"`--steps` is 11, and it must be 1 to 10"),
        ({}, {"max_batch": 0}, r"`--max-batch` is 0, and it must be 1 to 1024"),
        (
            {"mixer": "ssru"},
            {},
            r"`model.mixer` of the checkpoint is ssru, and TensorRT engines are built for attention",
        ),
        ({"fusion": "all"}, {}, r"`model.fusion` of the checkpoint is all"),
        ({"levels": 3}, {}, r"`model.levels` of the checkpoint is 3"),
        ({"arch": "hred"}, {}, r"`model.arch` of the checkpoint is hred"),
    ],
)
def test_settings_that_cannot_be_built(setting: dict[str, Any], sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Sizes.of(ModelConfig(**SIZES | setting), **{"beam": 4, "steps": 5, "max_batch": 8} | sizes)


def test_profiles_hold_every_request() -> None:
    sizes = Sizes.of(ModelConfig(**SIZES), beam=4, steps=5, max_batch=8)
    profile = sizes.profile(sizes.encoder | sizes.search)
    assert profile["queries"] == [[1, 1, 9], [2, 4, 9], [8, 6, 9]]
    assert profile["memory_bias"] == [[1, 4, 9], [2, 4, 36], [8, 4, 54]]
    assert profile["next_state"][2] == [8, 255, 4096]
    assert all(low <= usual <= high for shapes in profile.values() for low, usual, high in zip(*shapes, strict=True))
    assert Sizes(**asdict(sizes)) == sizes
    last = Sizes.of(ModelConfig(**SIZES, memory="last"), beam=4, steps=5, max_batch=8)
    assert last.profile(last.search)["memory_bias"] == [[1, 4, 9], [2, 4, 9], [8, 4, 9]]
