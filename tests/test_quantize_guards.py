"""Sabotage: what is quantized wrongly, and still answers, never becomes a bundle."""

import copy
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="bundles are made with the extra [train]")
pytest.importorskip("torch", reason="bundles are made with the extra [train]")

from export import graph_layers
from export.bundle import write_bundle
from export.graph_builder import CONTRIB
from mtn_edge.errors import EXIT_GATE, GateError
from quantize import int4, int8
from quantize.int8 import Activation, Int8Weight
from quantize.plan import group_of

VICTIM = "decoder_layers.0.feed_forward.up.weight"


@pytest.fixture
def refused(tiny_checkpoint: Path, tmp_path: Path) -> Callable[[str], str]:
    """Makes a bundle, which must fail a gate and leave nothing behind; gives the sentence."""

    def call(precision: str) -> str:
        with pytest.raises(GateError) as caught:
            write_bundle(tiny_checkpoint, tmp_path / "out", precision=precision, dataset=None, force=False, seed=1)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []
        assert caught.value.exit_code == EXIT_GATE
        return str(caught.value)

    return call


def change(monkeypatch: pytest.MonkeyPatch, **fields: Callable[[np.ndarray], np.ndarray]) -> None:
    """Lets the quantization of one matrix go wrong."""
    for name, quantize in (("quantize_weight", int8.quantize_weight), ("quantize_blocks", int4.quantize_blocks)):

        def wrong(tensor_name: str, weight: np.ndarray, quantize: Callable = quantize) -> object:
            right = quantize(tensor_name, weight)
            if tensor_name != VICTIM:
                return right
            there = {field: make(getattr(right, field)) for field, make in fields.items() if hasattr(right, field)}
            return dataclasses.replace(right, **there)

        monkeypatch.setattr(f"quantize.plan.{name}", wrong)


def with_one(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def make(scale: np.ndarray) -> np.ndarray:
        scale = scale.copy()
        scale.flat[3] = value
        return scale

    return make


@pytest.mark.parametrize(
    ("precision", "scale"),
    [("int8", np.ones_like), ("int4", with_one(0.0)), ("int8", with_one(np.nan))],
    ids=["one", "zero", "nan"],
)
def test_a_wrong_scale_is_refused(
    precision: str,
    scale: Callable[[np.ndarray], np.ndarray],
    refused: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(monkeypatch, scale=scale)
    assert f"`quantized: scales that are 1 everywhere, 0 or no number` is {VICTIM}" in refused(precision)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_matrix_of_zeros_is_refused(
    precision: str, refused: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    zero = int4.CENTRE if precision == "int4" else 0
    change(
        monkeypatch,
        values=np.zeros_like,
        codes=lambda codes: np.full_like(codes, zero),
        zero_point=lambda _: None,
    )
    assert f"`quantized: matrices that are zero everywhere` is {VICTIM}" in refused(precision)


def test_a_fixed_range_without_a_scale_is_refused(
    refused: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(name: str, weight: np.ndarray) -> Int8Weight:
        return dataclasses.replace(int8.quantize_weight(name, weight), activation=Activation(1.0, 128))

    monkeypatch.setattr("quantize.plan.quantize_weight", wrong)
    assert "`quantized: scales that are 1 everywhere, 0 or no number` is " in refused("int8")


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_group_that_stays_float_is_refused(
    precision: str, refused: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    product = graph_layers.Layers.product

    def forgetful(self: graph_layers.Layers, x: str, name: str) -> str:
        weight = self.weights[f"{name}.weight"]
        if group_of(f"{name}.weight") == "session_encoder" and not isinstance(weight, np.ndarray):
            self = copy.copy(self)
            self.weights = {**self.weights, f"{name}.weight": weight.dequantize()}
        return product(self, x, name)

    monkeypatch.setattr(graph_layers.Layers, "product", forgetful)
    sentence = refused(precision)
    assert "`quantized: matrices left in another precision than asked` is session_layers.0.attention.out" in sentence
    assert "session_layers.0.feed_forward.up.weight" in sentence
    assert "decoder" not in sentence


def test_a_table_that_lies_there_twice_is_refused(
    refused: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(self: graph_layers.Layers, x: str) -> str:
        table = self.weights["embedding.weight"]
        if not isinstance(table, Int8Weight):
            return right(self, x)
        columns = self.graph.constant(table.values, "embedding.values")
        scale = self.graph.constant(table.scale, "embedding.scale")
        return self.graph.node("DynamicQuantizeMatMul", x, columns, scale, domain=CONTRIB)

    right = graph_layers.Layers.scores
    monkeypatch.setattr(graph_layers.Layers, "scores", scores)
    assert "`quantized: copies of the embedding table beside the one` is 1" in refused("int8")


def test_the_command_ends_with_status_3(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mtn_edge.cli import main

    change(monkeypatch, scale=np.ones_like)
    monkeypatch.setattr(
        sys, "argv", ["mtn-edge", "quantize", str(tiny_checkpoint), "-o", str(tmp_path / "o"), "--int8"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_GATE
    assert f"is {VICTIM}, and it must be = none" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
