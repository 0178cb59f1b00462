"""`suggest.onnx` against its reference, row by row: settled words, floors, few steps, every kind of decoder."""

import itertools
import math
import re
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.config import ModelConfig

pytest.importorskip("onnx", reason="graphs are built with the extra [train]")
torch = pytest.importorskip("torch", reason="graphs are compared with PyTorch (extra [train])")

from export.graphs import build_graphs  # noqa: E402
from export.parity import random_session, state_of  # noqa: E402
from mtn_edge.decoding.prefix_constraint import FORBIDDEN, Constraint, PrefixConstraint  # noqa: E402
from mtn_edge.decoding.torch_engine import TorchEngine  # noqa: E402
from mtn_edge.models.build import Network, build  # noqa: E402
from mtn_edge.models.mtn import MTN  # noqa: E402
from mtn_edge.models.tail_lstm import TailLSTM  # noqa: E402
from mtn_edge.models.transformer import Transformer  # noqa: E402
from mtn_edge.runtime.engine import DEAD, IMPOSSIBLE, NO_FLOOR, Hypotheses, OnnxEngine  # noqa: E402
from mtn_edge.tokenizer import BOS, EOS, PAD  # noqa: E402
from quantize.plan import uniform_plan  # noqa: E402

SIZES = {"vocab_size": 300, "d_model": 32, "heads": 4, "ffn": 48, "max_tokens": 9, "max_queries": 5}
MOST = 9
WORDS = (b"new", b" york", b" ho", b"tels", b"ne", b"w ", b"ork", b" new", b" h")
SPELT = [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *WORDS]
SPELT += [b"word%d" % number for number in range(SIZES["vocab_size"] - len(SPELT))]
KINDS: list[dict[str, Any]] = [
    *(
        {"norm": norm, "memory": memory, "decoder_layers": layers}
        for norm, memory, layers in itertools.product(["pre", "post"], ["all", "last"], [1, 2])
    ),
    {"decoder_layers": 1, "projection": "full"},
    {"norm": "post", "memory": "last", "projection": "full"},
    {"mixer": "ssru"},
    {"mixer": "ssru", "norm": "post", "memory": "last"},
    {"share_decoder": True, "decoder_layers": 3},
    {"share_decoder": True, "mixer": "ssru"},
    {"arch": "transformer", "max_session_tokens": 20},
    {"arch": "transformer", "norm": "post", "decoder_layers": 1},
    *({"arch": arch, "units": 40} for arch in ("seq2seq", "hred", "tail-lstm")),
]
BEAMS = (1, 4, 8, 16)
PREFIXES = ("", "ne", "new ", "new york ho", "new new new h")
FLOORS = (NO_FLOOR, -9.0, -5.0, -2.0)


def encode(text: str) -> list[int]:
    """The longest tokens first, word by word."""
    tokens = []
    for word in re.findall(" ?[^ ]+", text):
        left = word.encode()
        while left:
            tokens.append(max((n for n in range(3, 300) if left.startswith(SPELT[n])), key=lambda n: len(SPELT[n])))
            left = left[len(SPELT[tokens[-1]]) :]
    return tokens


CONSTRAINT = PrefixConstraint(SPELT, encode)


class Pair(NamedTuple):
    """One model on both engines."""

    config: ModelConfig
    model: Network
    pytorch: TorchEngine
    graph: OnnxEngine


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def pair(request, tmp_path_factory):
    config = ModelConfig(**SIZES, **request.param)
    torch.manual_seed(11)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) * (1 + parameter.std(correction=0)))
        _expect_the_end(model, config)
    folder = tmp_path_factory.mktemp("graphs")
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    build_graphs(state, config, uniform_plan("fp32")).save(folder)
    return Pair(config, model, TorchEngine(model), OnnxEngine(folder, asdict(config)))


def _expect_the_end(model: Network, config: ModelConfig) -> None:
    """Makes `<eos>` probable everywhere, so that hypotheses end."""
    if isinstance(model, TailLSTM):
        model.output.bias[EOS] += 3
    elif isinstance(model, MTN | Transformer):
        last = model.decoder_norm if config.norm == "pre" else model.decoder_layers[-1].feed_forward_norm
        last.bias += 3 * model.embedding.weight[EOS]
    else:
        model.output.bias += 3 * model.embedding.weight[EOS]


def typed(prefix: str) -> Constraint:
    found = CONSTRAINT.typed(prefix, MOST)
    assert found is not None
    return found


def both(pair: Pair, session: list[list[int]], constraint: Constraint, **asked: float) -> tuple[Hypotheses, Hypotheses]:
    """What the reference and the graph find, each on a cache of its own, built query by query."""
    wanted, got = (
        engine.search(state_of(engine, session), constraint, **asked) for engine in (pair.pytorch, pair.graph)
    )
    return wanted, got


def assert_same(wanted: Hypotheses, got: Hypotheses) -> int:
    """Every living row is the same in both; returns how many there are."""
    assert got.tokens.shape == wanted.tokens.shape
    assert got.mass == pytest.approx(wanted.mass, abs=1e-4)
    alive = wanted.scores > DEAD
    np.testing.assert_array_equal(got.scores > DEAD, alive)
    np.testing.assert_allclose(got.scores[alive], wanted.scores[alive], atol=1e-4)
    # Two whose scores differ by less than arithmetic does may stand in either order.
    rows = {tuple(row): score for row, score in zip(wanted.tokens[alive].tolist(), wanted.scores[alive], strict=True)}
    for row, score in zip(got.tokens[alive].tolist(), got.scores[alive], strict=True):
        assert rows.pop(tuple(row)) == pytest.approx(score, abs=1e-4)
    return int(alive.sum())


def steps_left(constraint: Constraint) -> int:
    return MOST + 2 - len(constraint.start_tokens)


def test_finished_words_are_settled_in_these_tests() -> None:
    assert [len(typed(prefix).start_tokens) for prefix in PREFIXES] == [1, 1, 2, 3, 4]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("beam", BEAMS)
def test_graph_is_reference_hypothesis_by_hypothesis(pair, beam, prefix):
    constraint = typed(prefix)
    alive = 0
    for queries in (0, 1, 3):
        session = random_session(pair.pytorch, queries, seed=queries)
        for floor in FLOORS:
            wanted, got = both(pair, session, constraint, beam=beam, max_steps=steps_left(constraint), floor=floor)
            alive += assert_same(wanted, got)
    assert alive >= 6


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_few_steps_are_few_steps(pair, steps):
    for prefix, beam in itertools.product(PREFIXES, (1, 8)):
        wanted, got = both(pair, [[5, 6]], typed(prefix), beam=beam, max_steps=steps)
        assert_same(wanted, got)
        assert got.tokens.shape[0] == beam
        assert got.tokens.shape[1] <= steps
    assert steps or (got.tokens.shape[1], got.scores.max()) == (0, np.float32(IMPOSSIBLE))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    text=st.text("new yorkhtls", max_size=14),
    beam=st.integers(1, 24),
    queries=st.integers(0, 5),
    floor=st.just(NO_FLOOR) | st.floats(-12, -0.5),
    steps=st.integers(0, MOST + 1),
    seed=st.integers(0, 99),
)
def test_graph_is_reference_for_any_request(pair, text, beam, queries, floor, steps, seed):
    constraint = CONSTRAINT.typed(re.sub(" +", " ", text).lstrip(), MOST)
    if constraint is None:
        return
    session = random_session(pair.pytorch, queries, seed)
    steps = min(steps, steps_left(constraint))
    assert_same(*both(pair, session, constraint, beam=beam, max_steps=steps, floor=floor))


def next_log_probabilities(model: Network, session: list[list[int]], target: list[int]) -> np.ndarray:
    """Log p(next token) [u + 1, v] along `target`, by the training pass on the whole session: nothing is cached."""
    queries = [[BOS], *session]
    source = torch.full((1, len(queries), max(map(len, queries))), PAD)
    for row, query in enumerate(queries):
        source[0, row, : len(query)] = torch.tensor(query)
    target_in = torch.full((1, len(queries), len(target) + 1), PAD)
    target_in[0, -1] = torch.tensor([BOS, *target])
    with torch.inference_mode():
        return model.logits(model.states(source, target_in)).log_softmax(-1).numpy()


@pytest.mark.parametrize("queries", [0, 1, 3, 5])
def test_cached_scores_and_mass_are_those_of_the_whole_session_at_once(pair, queries):
    session = random_session(pair.pytorch, queries, seed=40 + queries)
    compared = 0
    for prefix in PREFIXES:
        constraint = typed(prefix)
        settled = constraint.start_tokens[1:].tolist()
        found = pair.graph.search(state_of(pair.graph, session), constraint, beam=8, max_steps=steps_left(constraint))
        first = next_log_probabilities(pair.model, session, settled)[-1]
        allowed = constraint.next_state[constraint.start_state] != FORBIDDEN
        assert found.mass == pytest.approx(float(np.logaddexp.reduce(first[allowed])), abs=1e-4)
        for row, score in zip(found.tokens.tolist(), found.scores.tolist(), strict=True):
            written = [token for token in row if token != PAD]
            if score <= DEAD:
                continue
            log_probs = next_log_probabilities(pair.model, session, [*settled, *written[:-1]])[len(settled) :]
            right = sum(float(log_probs[place, token]) for place, token in enumerate(written))
            assert score == pytest.approx(right, abs=1e-4 * len(written))
            compared += 1
    assert compared >= 20


def test_the_floor_gives_up_exactly_what_fell_to_it(pair):
    given_up = 0
    for prefix, depth, beam in itertools.product(PREFIXES, (2.0, 4.0, 7.0), (4, 16)):
        constraint = typed(prefix)
        steps = steps_left(constraint)
        session = random_session(pair.pytorch, 2, seed=7)
        state = state_of(pair.graph, session)
        found = pair.graph.search(state, constraint, beam=beam, max_steps=steps, floor=-depth)
        free = pair.graph.search(state, constraint, beam=beam, max_steps=steps)
        settled = constraint.start_tokens[1:].tolist()
        floor = found.mass - depth
        for row, score in zip(found.tokens.tolist(), found.scores.tolist(), strict=True):
            if score <= DEAD or EOS in row:
                continue
            written = [token for token in row if token != PAD]
            log_probs = next_log_probabilities(pair.model, session, [*settled, *written[:-1]])[len(settled) :]
            sums = np.cumsum([log_probs[place, token] for place, token in enumerate(written)])
            assert (sums[:-1] > floor - 1e-4).all()  # while it was above it went on
            if score <= floor:
                given_up += 1
                assert set(row[len(written) :]) <= {PAD}
            else:
                assert len(written) == steps  # only the number of steps stopped it
        above, without = (
            {
                tuple(row[: row.index(EOS) + 1]): score
                for row, score in zip(x.tokens.tolist(), x.scores.tolist(), strict=True)
                if EOS in row and score > floor
            }
            for x in (found, free)
        )
        # What ends above the floor is untouched by it: a row that was given up stands behind all of these.
        assert list(above) == list(without)
        assert list(above.values()) == pytest.approx(list(without.values()), abs=1e-4)
    assert given_up >= 50


def test_embeddings_come_with_the_search(pair):
    state = pair.graph.start()
    tokens = np.array([BOS, 7, 7, 299, EOS], dtype=np.int64)
    for steps in (0, 2):
        (embedded,) = pair.graph._suggest.run(
            ["embedded"],
            {
                **{name: part for name, part in state.items() if name.startswith("memory_")},
                "start_tokens": tokens,
                "next_state": typed("").next_state,
                "start_state": np.array([0], dtype=np.int64),
                "beam": np.array([2], dtype=np.int64),
                "max_steps": np.array(steps, dtype=np.int64),
                "floor": np.array(NO_FLOOR, dtype=np.float32),
            },
        )
        rows = pair.model.embedding.weight.detach().numpy()[tokens] * math.sqrt(SIZES["d_model"])
        np.testing.assert_allclose(embedded, rows, rtol=1e-5)
