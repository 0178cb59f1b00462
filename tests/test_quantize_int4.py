"""Four-bit blocks: what the codes stand for, that the runtime computes it, and that the search for scales helps."""

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from quantize.int4 import BLOCK, CENTRE, FACTORS, Int4Weight, quantize_blocks
from quantize.plan import GROUPS, WIDE, apply_plan, bytes_of, precision_of, uniform_plan

pytest.importorskip("onnx", reason="graphs are built with the extra [train]")

from export import graph_layers
from export.graph_builder import FLOAT, GraphBuilder


def matrix(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def error(quantized: Int4Weight, weight: np.ndarray) -> float:
    return float(np.square(quantized.dequantize() - weight).sum())


def test_known_values():
    weight = np.zeros((32, 1), dtype=np.float32)
    weight[:16, 0] = np.arange(16) - 4  # -4 ... 11: exactly sixteen levels
    quantized = quantize_blocks("w", weight)
    assert quantized.scale.tolist() == [[1.0]]
    assert quantized.zero_point is not None
    assert quantized.zero_point.tolist() == [[4]]
    assert quantized.codes[0, 0].tolist() == [*range(16), *[4] * 16]
    # 16 bytes of codes, the first of a pair in the lower half; 4 of the scale; 1 of the zero point.
    assert quantized.packed[0, 0].tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, *[0x44] * 8]
    assert quantized.nbytes == 21
    np.testing.assert_array_equal(quantized.dequantize(), weight)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 100), st.integers(1, 9), st.booleans(), st.integers(0, 99))
def test_shapes_bytes_and_errors_of_any_matrix(inputs, outputs, symmetric, seed):
    weight = matrix(inputs, outputs, seed=seed)
    quantized = quantize_blocks("w", weight, symmetric=symmetric)
    blocks = -(-inputs // BLOCK)
    assert quantized.scale.shape == (outputs, blocks)
    assert quantized.dequantize().shape == weight.shape
    assert quantized.nbytes == outputs * (blocks * 20 + (0 if symmetric else -(-blocks // 2)))
    assert (quantized.scale > 0).all()
    # No block is worse than with its whole range and steps of a fifteenth of it.
    padded = np.pad(weight, ((0, blocks * BLOCK - inputs), (0, 0))).T.reshape(outputs, blocks, BLOCK)
    span = np.abs(padded).max(axis=2) * 2 if symmetric else np.maximum(padded.max(2), 0) - np.minimum(padded.min(2), 0)
    found = np.pad(quantized.dequantize(), ((0, blocks * BLOCK - inputs), (0, 0))).T.reshape(outputs, blocks, BLOCK)
    assert (np.square(found - padded).sum(axis=2) <= BLOCK * np.square(span / 15) * 1.001).all()


def test_the_search_for_scales_and_the_zero_points_lower_the_error(monkeypatch):
    weight = matrix(256, 64)
    searched, symmetric = quantize_blocks("w", weight), quantize_blocks("w", weight, symmetric=True)
    monkeypatch.setattr("quantize.int4.FACTORS", ())
    assert error(searched, weight) < 0.95 * error(quantize_blocks("w", weight), weight)
    assert error(searched, weight) < 0.9 * error(symmetric, weight)
    assert min(FACTORS) < 1 < max(FACTORS)


def test_dead_blocks_stay_zero_and_dead_matrices_are_refused():
    weight = matrix(64, 3)
    weight[:32, 1] = 0
    quantized = quantize_blocks("w", weight)
    assert np.isfinite(1 / quantized.scale).all()
    assert not quantized.dequantize()[:32, 1].any()
    with pytest.raises(UserError, match="weight `w` is zero everywhere"):
        quantize_blocks("w", np.zeros((64, 3), dtype=np.float32))
    weight[3, 0] = np.nan
    with pytest.raises(UserError, match="weight `w` holds NaN"):
        quantize_blocks("w", weight)


def graph_of(weights: dict) -> onnxruntime.InferenceSession:
    """A graph of one product."""
    graph = GraphBuilder("product")
    layers = graph_layers.Layers(graph, weights, head_width=8, norm="pre")
    weight = weights["w.weight"]
    x = graph.input("x", FLOAT, ["r", weight.inputs])
    graph.output(layers.product(x, "w"), "y", FLOAT, ["r", len(weight.scale)])
    return onnxruntime.InferenceSession(graph.model().SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 384), (96, 33), (70, 16), (512, 128)])
def test_the_graph_is_the_product_with_the_dequantized_matrix(inputs, outputs, symmetric, monkeypatch):
    weight = quantize_blocks("w", matrix(inputs, outputs), symmetric=symmetric)
    bias = matrix(outputs, seed=1)
    x = matrix(8, inputs, seed=2)
    wanted = x @ weight.dequantize() + bias
    rough = graph_of({"w.weight": weight, "w.bias": bias}).run(None, {"x": x})[0]
    monkeypatch.setattr(graph_layers, "ACCURACY_LEVEL", 1)
    exact = graph_of({"w.weight": weight, "w.bias": bias}).run(None, {"x": x})[0]
    np.testing.assert_allclose(exact, wanted, atol=2e-5 * np.sqrt(inputs))
    # Level 4 rounds x in blocks to 8 bits: a step of 1/127 of the largest of 32 numbers.
    assert 0 < np.abs(rough - wanted).max() < 0.02 * np.sqrt(inputs)


def test_plan_of_int4_keeps_the_table_in_int8():
    tensors = {"embedding.weight": matrix(32, 50), "memory.kv.weight": matrix(32, 64), "memory.kv.bias": matrix(64)}
    weights = apply_plan(tensors, uniform_plan("int4"))
    assert precision_of(weights) == {"embedding": "int8", "memory": "int4", "biases": "fp32"}
    assert bytes_of(weights) == {"embedding": 50 * 36, "memory": 64 * 21, "biases": 256}
    assert {group for group in GROUPS if uniform_plan("int4")[group] == "int8"} == set(WIDE)
    with pytest.raises(ValueError, match="embedding and output have no four-bit form"):
        apply_plan(tensors, uniform_plan("int4") | {"embedding": "int4"})


def test_symmetric_blocks_have_their_zero_in_the_middle():
    quantized = quantize_blocks("w", matrix(32, 4), symmetric=True)
    assert quantized.zero_point is None
    assert quantized.packed_zero_point is None
    assert quantize_blocks("w", np.eye(32, dtype=np.float32), symmetric=True).codes.min() == CENTRE
