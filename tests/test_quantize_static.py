"""Fixed ranges: bounded memory, what each calibrator keeps, what neural-compressor says, and the graphs of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="networks are observed with the extra [train]")
pytest.importorskip("onnx", reason="graphs are built with the extra [train]")

import onnxruntime
from torch import nn

from export import graph_layers, ranges, sessions
from export.bundle import write_bundle
from export.graph_builder import FLOAT, GraphBuilder
from export.simulation import TABLE
from export.verify import verify_bundle
from export.weights import graph_name
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.training.checkpoint import load_checkpoint
from quantize import inc, static
from quantize.int8 import Activation, quantize_weight
from quantize.static import BINS, CALIBRATORS, Observer, activation_of, calibrated, least_squares, minmax, percentile


def seen(*parts: np.ndarray) -> Observer:
    observer = Observer()
    for part in parts:
        observer.add(part.astype(np.float32))
    return observer


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.floats(0.01, 100), st.integers(0, 99))
def test_an_observer_counts_everything_in_the_same_memory(counts, scale, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(rng.normal(), scale * rng.random() + 0.01, size=count) for count in counts]
    observer = seen(*parts)
    values = np.concatenate([part.astype(np.float32) for part in parts])
    assert len(observer.counts) == BINS
    assert observer.counts.sum() == sum(counts)
    assert minmax(observer) == (min(0.0, values.min()), max(0.0, values.max()))
    # The middle of the histogram is the middle of the values, to within a few bins.
    middle = observer.centres()[np.searchsorted(np.cumsum(observer.counts), sum(counts) / 2)]
    below = np.sort(values)[[max(0, sum(counts) // 2 - 1), min(sum(counts) - 1, sum(counts) // 2)]]
    width = len(parts) * (observer.high - observer.low) / BINS
    assert below[0] - width <= middle <= below[1] + width


def test_calibrators_on_a_known_distribution():
    values = np.random.default_rng(0).normal(size=200_000)
    observer = seen(values, np.array([60.0]))
    assert minmax(observer)[1] == 60
    low, high = percentile(observer)
    assert (low, high) == pytest.approx((-3.89, 3.89), abs=0.2)
    # The clipped outlier and the steps of all others weigh the same: (60 - h) / n = (h + 4) / (255 ** 2 * 12).
    assert least_squares(observer)[1] == pytest.approx(46.9, rel=0.08)

    def error(bounds: tuple[float, float]) -> float:
        given = activation_of(*bounds)
        levels = np.clip(np.rint(values / given.scale) + given.zero_point, 0, 255)
        return float(np.square((levels - given.zero_point) * given.scale - values).mean())

    errors = {name: error(calibrator(observer)) for name, calibrator in CALIBRATORS.items()}
    assert errors["percentile"] < errors["minmax"] / 20


def test_least_squares_is_the_best_range_of_its_grid():
    values = np.random.default_rng(1).standard_t(3, size=50_000)
    observer = seen(values)

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        levels = (np.clip(values, low, high) / step).round() * step
        return float(np.square(levels - values).mean())

    best = error(*least_squares(observer))
    others = [
        error(observer.low * one, observer.high * other) for one in static.PARTS[::4] for other in static.PARTS[::4]
    ]
    assert best <= 1.02 * min(others)
    assert best < error(*percentile(observer)) < error(*minmax(observer)) * 2


def test_zero_is_always_exact():
    assert activation_of(1.0, 2.55) == Activation(pytest.approx(0.01), 0)
    assert activation_of(-2.55, -1.0) == Activation(pytest.approx(0.01), 255)
    assert activation_of(-1.0, 1.55) == Activation(pytest.approx(0.01), 100)
    assert activation_of(0.0, 0.0).scale > 0


def test_the_graph_rounds_inputs_to_the_fixed_range():
    rng = np.random.default_rng(0)
    weight = quantize_weight("w", rng.normal(size=(64, 40)).astype(np.float32))
    given = Activation(0.02, 100)
    bias, x = rng.normal(size=40).astype(np.float32), rng.normal(scale=2, size=(8, 64)).astype(np.float32)
    graph = GraphBuilder("product")
    tensors = {"w.weight": type(weight)(weight.values, weight.scale, given), "w.bias": bias}
    layers = graph_layers.Layers(graph, tensors, head_width=8, norm="pre")
    graph.output(layers.product(graph.input("x", FLOAT, ["r", 64]), "w"), "y", FLOAT, ["r", 40])
    session = onnxruntime.InferenceSession(graph.model().SerializeToString(), providers=["CPUExecutionProvider"])
    rounded = (np.clip(np.rint(x / np.float32(0.02)) + 100, 0, 255) - 100) * np.float32(0.02)
    assert np.abs(rounded - x).max() > 1  # some are clipped
    np.testing.assert_allclose(session.run(None, {"x": x})[0], rounded @ weight.dequantize() + bias, atol=1e-3)


@pytest.fixture(scope="module")
def network(tiny_checkpoint, tiny_dataset):
    """The tiny network, the names of its products, and a few batches."""
    checkpoint = load_checkpoint(tiny_checkpoint)
    named = {
        module: graph_name(f"{name}.weight", checkpoint.config.model)
        for name, module in checkpoint.model.named_modules()
        if isinstance(module, nn.Linear)
    }
    found = sessions.read_sessions(Dataset.open(tiny_dataset), "train", 60)
    return checkpoint.model, named, sessions.batches_of(found, checkpoint)


def test_every_product_is_observed_and_nothing_stays_behind(network):
    model, named, batches = network
    observed = static.observe(model, batches, named, TABLE)
    assert set(observed) == {*named.values(), TABLE}
    assert "memory.kv.weight" in observed
    # A product's inputs after a ReLU are never negative.
    assert observed["decoder_layers.0.feed_forward.down.weight"].low == 0
    assert observed[TABLE].high > 0
    assert not any(module._forward_pre_hooks for module in named)
    ranges_ = calibrated(observed, "minmax")
    assert all(0 <= each.zero_point <= 255 and each.scale > 0 for each in ranges_.values())


def test_neural_compressor_calibrates_the_same_products(network):
    pytest.importorskip("neural_compressor", reason="it comes with the extra [inc]")
    model, named, batches = network
    ours = calibrated(static.observe(model, batches, named, TABLE), "minmax")
    theirs = inc.calibrate(model, batches, named, TABLE, "kl")
    assert set(theirs) == set(ours)
    for name, activation in theirs.items():
        assert 0.2 < activation.scale / ours[name].scale < 1.2, name
        assert abs(activation.zero_point - ours[name].zero_point) < 40, name


def test_a_bundle_with_fixed_ranges(tiny_checkpoint, tiny_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(inc, "is_installed", lambda: False)
    manifest = write_bundle(
        tiny_checkpoint, tmp_path / "out", precision="int8", method="static", dataset=tiny_dataset, force=False, seed=1
    )
    about = manifest["quantization"]
    calibration = about["calibration"]
    assert set(calibration["calibrators"]) == set(CALIBRATORS)
    assert calibration["calibrators"][calibration["calibrator"]] == min(calibration["calibrators"].values())
    assert about["groups"]["decoder"]["products"] == {"MatMulIntegerToFloat": 7}
    assert all("DynamicQuantizeMatMul" not in counts for counts in manifest["operators"].values())
    assert (
        manifest["operators"]["suggest"]["QuantizeLinear"] == manifest["operators"]["suggest"]["MatMulIntegerToFloat"]
    )
    assert 0 < about["kl"] < 0.01
    assert all(check.ok for check in verify_bundle(tmp_path / "out"))


def test_too_few_sessions_are_refused(tiny_checkpoint, tiny_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(ranges, "read_sessions", lambda data, split, _: data.sessions(split)[:7])
    with pytest.raises(UserError, match=r"calibrated on 32 training sessions at least, and `.*dataset` has 7; prepare"):
        write_bundle(
            tiny_checkpoint,
            tmp_path / "o",
            precision="int8",
            method="static",
            dataset=tiny_dataset,
            force=False,
            seed=1,
        )
    assert list(tmp_path.iterdir()) == []


def test_sessions_are_spread_over_the_split(tiny_dataset):
    data = Dataset.open(tiny_dataset)
    everything = data.sessions("train")
    some = sessions.read_sessions(data, "train", 50)
    assert len(some) == 50
    every = len(everything) // 50
    assert some == everything[::every][:50]
