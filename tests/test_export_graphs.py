"""The graphs compute what PyTorch computes, for every kind of model and at every shape."""

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from mtn_edge.config import ModelConfig

onnx = pytest.importorskip("onnx", reason="graphs are built with the extra [train]")
torch = pytest.importorskip("torch", reason="graphs are compared with PyTorch (extra [train])")

from export import parity  # noqa: E402
from export.contract import contract  # noqa: E402
from export.graphs import Graphs, build_graphs, nodes_of  # noqa: E402
from mtn_edge.decoding.prefix_constraint import PrefixConstraint  # noqa: E402
from mtn_edge.decoding.torch_engine import TorchEngine  # noqa: E402
from mtn_edge.models.build import Network, build  # noqa: E402
from mtn_edge.models.mtn import MTN  # noqa: E402
from mtn_edge.models.tail_lstm import TailLSTM  # noqa: E402
from mtn_edge.models.transformer import Transformer  # noqa: E402
from mtn_edge.runtime.engine import OnnxEngine  # noqa: E402
from mtn_edge.tokenizer import EOS  # noqa: E402
from quantize.int8 import Int8Weight  # noqa: E402
from quantize.plan import Precision, uniform_plan  # noqa: E402

SIZES = {"vocab_size": 300, "d_model": 32, "heads": 4, "ffn": 48, "max_tokens": 9, "max_queries": 6}
WORDS = [b"new", b" york", b"ne", b"w ", b"ork", " é".encode(), b"eba", b"ay", b"goo", b"ogle"]


def token_bytes(vocab_size: int) -> list[bytes]:
    spelt = [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *WORDS]
    return spelt + [b"word%d" % number for number in range(vocab_size - len(spelt))]


def random_model(config: ModelConfig, seed: int = 0) -> Network:
    """Random weights in every tensor (norms and biases too), with an end of text that is not too rare."""
    torch.manual_seed(seed)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) * (1 + parameter.std(correction=0)))
        if isinstance(model, TailLSTM):
            model.output.bias[EOS] += 4
        elif isinstance(model, MTN | Transformer):
            norm = model.decoder_norm if config.norm == "pre" else model.decoder_layers[-1].feed_forward_norm
            norm.bias += 4 * model.logits(torch.eye(config.d_model))[:, EOS]
        else:
            model.output.bias += 4 * model.embedding.weight[EOS]
    return model


def lower(model: Network, config: ModelConfig, precision: Precision, folder: Path) -> tuple[Graphs, OnnxEngine]:
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    graphs = build_graphs(state, config, uniform_plan(precision))
    graphs.save(folder)
    return graphs, OnnxEngine(folder, asdict(config))


KINDS: list[dict[str, Any]] = [
    *(
        {"norm": norm, "projection": projection, "memory": memory, "decoder_layers": 1}
        for norm, projection, memory in itertools.product(["pre", "post"], ["position", "full"], ["all", "last"])
    ),
    {"query_layers": 2, "session_layers": 2, "decoder_layers": 3},
    {"norm": "post", "projection": "full", "memory": "last", "query_layers": 3, "session_layers": 2},
    {"levels": 3, "history_layers": 2, "max_sessions": 3},
    {"levels": 3, "norm": "post", "mixer": "ssru"},
    {"refinement": "sum", "query_layers": 2},
    {"refinement": "sum", "norm": "post"},
    {"arch": "transformer", "max_session_tokens": 25},
    *({"arch": arch, "units": 40} for arch in ("seq2seq", "hred", "tail-lstm")),
    # Pruned: fewer heads of the same width, layers of different sizes.
    {"memory_heads": 3, "layer_heads": (1, 2, 4, 3), "layer_ffn": (7, 48, 1, 33)},
    {"session_layers": 2, "memory_heads": 1, "layer_heads": (4, 2, 2, 1, 3), "norm": "post", "memory": "last"},
    {"levels": 3, "history_layers": 2, "max_sessions": 3, "layer_heads": (3, 1, 2, 1, 4, 2), "decoder_layers": 2},
    {"mixer": "ssru", "memory_heads": 2, "layer_heads": (1, 3, 4, 4), "layer_ffn": (5, 6, 7, 8)},
    {"share_decoder": True, "memory_heads": 2, "layer_heads": (1, 3, 2), "layer_ffn": (9, 10, 11)},
    {"arch": "transformer", "memory_heads": 1, "layer_heads": (2, 1, 3, 4), "layer_ffn": (5, 60, 7, 1)},
    # A table of low rank.
    {"embedding_rank": 5},
    {"embedding_rank": 32, "norm": "post", "levels": 3, "mixer": "ssru"},
    {"embedding_rank": 9, "arch": "transformer", "max_session_tokens": 25},
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_every_kind_of_model_equals_pytorch(kind, tmp_path):
    config = ModelConfig(**SIZES, **kind)
    model = random_model(config)
    pytorch = TorchEngine(model)
    _, engine = lower(model, config, "fp32", tmp_path)
    for name, ports in contract(asdict(config)).items():
        graph = onnxruntime.InferenceSession(tmp_path / name, providers=["CPUExecutionProvider"])
        found = {x.name: (x.type, x.shape) for x in (*graph.get_inputs(), *graph.get_outputs())}
        assert found == ports
    constraint = PrefixConstraint(token_bytes(config.vocab_size))
    references = parity.record_references(
        pytorch, constraint, prefixes=["", "ne", "new "], max_steps=config.max_tokens + 1, seed=1
    )
    assert sum(bool(case.tokens) for case in references) == len(references) == 4 * 3 * 3
    for check in [
        parity.check_states(pytorch, engine, seed=1),
        *parity.check_searches(engine, constraint, references),
    ]:
        assert check.ok, check


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """An ordinary model: its configuration, PyTorch's engine, the float32 engine, the int8 graphs and their engine."""
    config = ModelConfig(**SIZES)
    model = random_model(config)
    folders = [tmp_path_factory.mktemp(name) for name in ("fp32", "int8")]
    _, fp32 = lower(model, config, "fp32", folders[0])
    graphs, int8 = lower(model, config, "int8", folders[1])
    return config, TorchEngine(model), fp32, graphs, int8


@pytest.mark.parametrize("beam", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("past", [0, 1, 5])
@pytest.mark.parametrize("tokens", [1, 4, 9])
def test_hypotheses_agree_at_every_shape(plain, beam, past, tokens):
    config, pytorch, engine, _, _ = plain
    constraint = PrefixConstraint(token_bytes(config.vocab_size)).typed("e", config.max_tokens)
    session = parity.random_session(pytorch, past, seed=3)
    session.append(np.random.default_rng(tokens).integers(3, config.vocab_size, size=tokens).tolist())
    wanted, wanted_scores, wanted_mass = pytorch.search(
        parity.state_of(pytorch, session), constraint, beam=beam, max_steps=config.max_tokens + 1
    )
    got, scores, mass = engine.search(
        parity.state_of(engine, session), constraint, beam=beam, max_steps=config.max_tokens + 1
    )
    assert got.shape == wanted.shape
    live = wanted_scores > -1e8
    assert np.array_equal(live, scores > -1e8)
    assert live.any()
    np.testing.assert_array_equal(got[live], wanted[live])
    np.testing.assert_allclose(scores[live], wanted_scores[live], atol=1e-4)
    assert mass == pytest.approx(wanted_mass, abs=1e-4)


def test_search_stops_when_all_have_ended(plain):
    config, pytorch, engine, _, _ = plain
    constraint = PrefixConstraint(token_bytes(config.vocab_size)).exact([259, 260])
    tokens, scores, _ = engine.search(pytorch.start(), constraint, beam=3, max_steps=10)
    assert tokens.shape == (3, 3)
    assert tokens[0].tolist() == [259, 260, 2]
    assert scores[0] > -1e8 > scores[1:].max()


def test_one_step_is_one_step(plain):
    config, pytorch, engine, _, _ = plain
    constraint = PrefixConstraint(token_bytes(config.vocab_size)).typed("", config.max_tokens)
    tokens, scores, mass = engine.search(pytorch.start(), constraint, beam=4, max_steps=1)
    wanted, wanted_scores, wanted_mass = pytorch.search(pytorch.start(), constraint, beam=4, max_steps=1)
    assert tokens.tolist() == wanted.tolist()
    np.testing.assert_allclose(scores, wanted_scores, atol=1e-5)
    assert mass == pytest.approx(wanted_mass, abs=1e-5)


def test_int8_is_near_fp32(plain):
    config, pytorch, fp32, _, int8 = plain
    constraint = PrefixConstraint(token_bytes(config.vocab_size))
    references = parity.record_references(
        pytorch, constraint, prefixes=["", "ne"], max_steps=config.max_tokens + 1, seed=1
    )
    (check,) = parity.check_scores(int8, constraint, references, "int8")
    assert check.ok
    assert check.value > 1e-5  # not the float graphs by mistake
    (exact,) = parity.check_scores(fp32, constraint, references, "int8")
    assert exact.value < 1e-5


def test_all_matrices_are_integer_products(plain):
    config, _, _, graphs, _ = plain
    matrices = sum(isinstance(weight, Int8Weight) for weight in graphs.weights.values())
    counts = graphs.operators()
    # The table is a product and a gather, both in the search. The query encoder runs twice with the same weights.
    again = 4 * config.query_layers
    assert counts["encode"]["DynamicQuantizeMatMul"] + counts["suggest"]["DynamicQuantizeMatMul"] == matrices + again
    assert "MatMul" not in counts["suggest"]
    assert counts["encode"]["MatMul"] == 1  # the query projection by position
    large = [
        (model.graph.name, tensor.name)
        for model in graphs.models.values()
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= config.d_model**2
    ]
    assert large == []


def test_a_pruned_model_in_int8_is_near_pytorch(tmp_path):
    config = ModelConfig(**SIZES, memory_heads=3, layer_heads=(1, 2, 4, 3), layer_ffn=(7, 48, 11, 33))
    model = random_model(config)
    graphs, engine = lower(model, config, "int8", tmp_path)
    constraint = PrefixConstraint(token_bytes(config.vocab_size))
    references = parity.record_references(
        TorchEngine(model), constraint, prefixes=["", "ne"], max_steps=config.max_tokens + 1, seed=1
    )
    (check,) = parity.check_scores(engine, constraint, references, "int8")
    assert check.ok, check
    assert check.value > 1e-5
    assert graphs.weights["decoder_layers.0.attention.qkv.weight"].values.shape == (32, 3 * 4 * 8)
    assert graphs.weights["query_layers.0.feed_forward.up.weight"].values.shape == (32, 7)
    assert graphs.weights["memory.kv.weight"].values.shape == (32, 2 * 2 * 3 * 8)


def test_size_and_the_table_once():
    config = ModelConfig(vocab_size=4096)
    state = {name: tensor.numpy() for name, tensor in random_model(config).state_dict().items()}
    fp32 = build_graphs(state, config, uniform_plan("fp32"))
    int8 = build_graphs(state, config, uniform_plan("int8"))
    size = {"fp32": 0, "int8": 0}
    for name, graphs in (("fp32", fp32), ("int8", int8)):
        size[name] = sum(model.ByteSize() for model in graphs.models.values())
    assert size["int8"] <= 0.30 * size["fp32"]
    # Everything is stored once in the two graphs together, the table in the search alone.
    assert size["int8"] <= 1.05 * int8.weight_bytes
    assert size["fp32"] <= 1.05 * fp32.weight_bytes
    for graphs in (fp32, int8):
        tensors = [tensor for model in graphs.models.values() for tensor in model.graph.initializer]
        assert sum(np.prod(tensor.dims) == 4096 * 128 for tensor in tensors) == 1
        assert not any(np.prod(tensor.dims) == 4096 * 128 for tensor in graphs.models["encode"].graph.initializer)
        blobs = [tensor.raw_data for tensor in tensors if len(tensor.raw_data) > 64]
        assert len(blobs) == len(set(blobs))


def test_axes_stay_dynamic_and_nothing_lies_outside(plain):
    _, _, _, graphs, _ = plain
    axes = {
        (value.name, axis.dim_param)
        for model in graphs.models.values()
        for value in (*model.graph.input, *model.graph.output)
        for axis in value.type.tensor_type.shape.dim
        if axis.dim_param
    }
    assert {
        *{("embedded", "t"), ("session_keys", "q"), ("memory_keys", "m"), ("new_memory_keys", "m + t")},
        *{("start_tokens", "f"), ("next_state", "S"), ("embedded", "f")},
        *{("tokens", "beam"), ("tokens", "steps"), ("scores", "beam")},
    } <= axes
    for model in graphs.models.values():
        assert all(
            tensor.data_location == onnx.TensorProto.DEFAULT and not tensor.external_data
            for tensor in model.graph.initializer
        )


def test_required_operators_name_every_operator(plain):
    _, _, _, graphs, _ = plain
    lines = [line.split(";") for line in graphs.required_operators().splitlines() if not line.startswith("#")]
    assert [(domain, opset) for domain, opset, _ in lines] == [("ai.onnx", "20"), ("com.microsoft", "1")]
    listed = {operator for _, _, operators in lines for operator in operators.split(",")}
    used = {node.op_type for model in graphs.models.values() for node in nodes_of(model.graph)}
    assert listed == used
    assert "Loop" in listed
