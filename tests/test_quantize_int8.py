"""Int8 weights: what the integers stand for, what is refused, and which tensors become integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mtn_edge.errors import UserError
from quantize.int8 import LEVELS, PAIR, SMALLEST_SCALE, Int8Weight, quantize_weight, reach
from quantize.plan import GROUPS, apply_plan, group_of, precision_of, uniform_plan


def matrix(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_error_is_half_a_step_at_most():
    weight = matrix(64, 16) * np.logspace(-6, 3, 16, dtype=np.float32)
    quantized = quantize_weight("w", weight)
    assert quantized.values.dtype == np.int8
    assert quantized.scale.shape == (16,)
    assert np.all(np.abs(quantized.dequantize() - weight) <= 0.5001 * quantized.scale)


def test_every_column_uses_all_that_its_largest_pair_leaves():
    quantized = quantize_weight("w", matrix(200, 8))
    assert all(LEVELS - 1 <= largest <= PAIR for largest in reach(quantized.values.astype(int)).max(axis=0))
    assert np.abs(quantized.values).max() <= LEVELS


@settings(max_examples=60, deadline=None)
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 9), st.integers(1, 3)),
        elements=st.floats(-2, 2, width=32) | st.sampled_from([0.0, 1.0, -1.0, 63.5, -64.5, 1e-3]),
    )
)
def test_no_pair_of_products_leaves_sixteen_bits(weight):
    """Whatever the activations are: both 255 is the worst that they can be."""
    if not np.abs(weight).max() / LEVELS > SMALLEST_SCALE:
        return
    values = quantize_weight("w", weight).values.astype(int)
    padded = np.pad(values, ((0, len(values) % 2), (0, 0))).reshape(-1, 2, values.shape[1])
    for first, second in ((255, 255), (255, 0), (0, 255)):
        sums = first * padded[:, 0] + second * padded[:, 1]
        assert sums.max(initial=0) <= 32_767
        assert sums.min(initial=0) >= -32_768
    assert reach(values).max() <= PAIR


def test_known_values():
    quantized = quantize_weight("w", np.array([[1.27, -4.0], [-0.5, 2.0]], dtype=np.float32))
    np.testing.assert_allclose(quantized.scale, [0.01, 4 / 127], rtol=1e-6)  # different signs are no pair
    assert quantized.values.tolist() == [[127, -127], [-50, 64]]
    assert quantized.nbytes == 4 + 8
    pair = quantize_weight("w", np.array([[1.0], [0.27], [-0.7], [-0.5], [1.1]], dtype=np.float32))
    np.testing.assert_allclose(pair.scale, [0.01], rtol=1e-6)
    assert pair.values.T.tolist() == [[100, 27, -70, -50, 110]]


def test_a_zero_column_stays_zero_with_a_usable_scale():
    weight = matrix(8, 3)
    weight[:, 1] = 0
    quantized = quantize_weight("w", weight)
    assert quantized.values[:, 1].tolist() == [0] * 8
    assert quantized.scale.min() > 0
    assert np.isfinite(1 / quantized.scale).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(value):
    weight = matrix(4, 4)
    weight[2, 3] = value
    with pytest.raises(UserError, match=r"weight `decoder\.up` holds NaN or infinite values"):
        quantize_weight("decoder.up", weight)


@pytest.mark.parametrize("value", [0.0, 1e-44])
def test_a_matrix_of_zeros_is_refused(value):
    with pytest.raises(UserError, match="weight `w` is zero everywhere"):
        quantize_weight("w", np.full((4, 4), value, dtype=np.float32))


def test_only_matrices_are_quantized():
    with pytest.raises(ValueError, match="`w` has 1 dimensions"):
        quantize_weight("w", np.ones(4, dtype=np.float32))


TENSORS = {
    "embedding.weight": "embedding",
    "query_layers.0.attention.qkv.weight": "query_encoder",
    "query_layers.0.attention.qkv.bias": "biases",
    "query_layers.0.attention_norm.weight": "norms",
    "query_layers.0.attention_norm.bias": "norms",
    "query_positions.weight": "positions",
    "query_norm.weight": "norms",
    "projection.weight": "projection",
    "session_layers.1.feed_forward.up.weight": "session_encoder",
    "memory.kv.weight": "memory",
    "memory.kv.bias": "biases",
    "decoder_layers.0.cross_attention.out.weight": "decoder",
    "decoder_positions.weight": "positions",
    "decoder_norm.bias": "norms",
}


@pytest.mark.parametrize(("name", "group"), TENSORS.items())
def test_groups(name, group):
    assert group_of(name) == group


def test_an_unknown_tensor_belongs_to_no_group():
    with pytest.raises(ValueError, match=r"tensor `router\.weight` belongs to no group"):
        group_of("router.weight")


def test_plan_of_int8_quantizes_matrices_alone():
    tensors = {name: matrix(6, 6) if name.endswith(".weight") else matrix(6) for name in TENSORS}
    for name in tensors:
        if "norm" in name:
            tensors[name] = matrix(6)
    weights = apply_plan(tensors, uniform_plan("int8"))
    integer = {name for name, weight in weights.items() if isinstance(weight, Int8Weight)}
    assert integer == {name for name, group in TENSORS.items() if group in GROUPS}
    assert precision_of(weights) == {group: "int8" if group in GROUPS else "fp32" for group in TENSORS.values()}


def test_plan_can_spare_a_group():
    plan = uniform_plan("int8") | {"embedding": "fp32"}
    weights = apply_plan({"embedding.weight": matrix(4, 9), "memory.kv.weight": matrix(4, 8)}, plan)
    assert precision_of(weights) == {"embedding": "fp32", "memory": "int8"}


def test_a_projection_by_position_stays_float():
    weights = apply_plan({"projection.weight": matrix(1, 9)}, uniform_plan("int8"))
    assert precision_of(weights) == {"projection": "fp32"}
