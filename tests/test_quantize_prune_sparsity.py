"""Single weights that become zero: which ones, that they stay zero whatever follows, and what the report says of it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")
pytest.importorskip("onnx", reason="bundles are made with the extra [train]")

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from export.weights import graph_tensors
from mtn_edge.cli import app
from mtn_edge.config import ModelConfig, TrainConfig, override, preset
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest
from mtn_edge.models.build import build
from mtn_edge.training.average import Average
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.optimizer import make_optimizer
from mtn_edge.training.run import train_model
from mtn_edge.training.zeros import hold_zeros, layer_matrices
from quantize.int4 import Int4Weight
from quantize.int8 import Int8Weight
from quantize.plan import apply_plan, group_of, uniform_plan
from quantize.prune_sparsity import has_two_of_four, matrix_shapes, zero_weights
from quantize.qat import fine_tune

RUN = CliRunner()
SIZES = {"vocab_size": 60, "d_model": 24, "heads": 3, "ffn": 10, "max_tokens": 6, "max_queries": 5, "dropout": 0.0}
KINDS: list[dict[str, Any]] = [
    {},
    {"mixer": "ssru", "levels": 3, "embedding_rank": 7},
    {"arch": "transformer", "layer_ffn": (5, 7, 9, 11)},
    *({"arch": arch, "units": 18} for arch in ("seq2seq", "hred", "tail-lstm")),
]
ALL_KINDS = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())) or "plain")


def prune(*arguments: object) -> dict[str, Any]:
    result = RUN.invoke(app, ["prune", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def refused(*arguments: object) -> str:
    result = RUN.invoke(app, ["prune", *map(str, arguments)])
    assert result.exit_code != 0
    return str(result.exception) if isinstance(result.exception, UserError) else result.output


def network(seed: int = 3, **kind: Any) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    config = ModelConfig(**{**SIZES, **kind})
    torch.manual_seed(seed)
    model = build(config)
    return config, {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()}


def zeros_of(weights: dict[str, torch.Tensor], config: ModelConfig) -> dict[str, torch.Tensor]:
    return {name: weights[name] == 0 for name in matrix_shapes(config)}


@ALL_KINDS
def test_matrices_of_layers_and_nothing_else(kind: dict[str, Any]) -> None:
    config, weights = network(**kind)
    left = zero_weights(config, weights, 0.5)
    changed = {name for name in weights if not torch.equal(left[name], weights[name])}
    assert changed == set(matrix_shapes(config))
    vectors = {name for name, tensor in weights.items() if tensor.ndim == 1}
    tables = {name for name in weights if "positions" in name or name.startswith(("embedding.", "recency."))}
    apart = {
        "embedding_up.weight",
        "embedding_down.weight",
        *(["output.weight"] if "lstm.bias_hh_l0" in weights else []),
    }
    assert set(weights) - changed == vectors | tables | (apart & set(weights))


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 0.9), st.integers(0, 99), st.integers(1, 4))
def test_the_smallest_weights_go_and_every_output_keeps_one(share: float, seed: int, rounds: int) -> None:
    config, weights = network(seed, decoder_layers=1)
    name = "query_layers.0.attention.qkv.weight"
    weights[name][5] *= 1e-3  # an output that is smaller than all others as a whole
    left = weights
    for number in range(1, rounds + 1):
        before = zeros_of(left, config)
        left = zero_weights(config, left, share, done=number / rounds)
        assert all(bool((left[each][gone] == 0).all()) for each, gone in before.items())
    at_once = zero_weights(config, weights, share)
    for each, gone in zeros_of(left, config).items():
        assert torch.equal(left[each], at_once[each])
        assert int(gone.sum()) == math.floor(gone.numel() * share + 1e-9)
        assert torch.equal(left[each][~gone], weights[each][~gone])
        assert not bool(gone.all(1).any())
        largest = weights[each].abs().amax(1, keepdim=True) == weights[each].abs()
        if gone.any() and (~gone & ~largest).any():
            assert weights[each][gone].abs().max() <= weights[each][~gone & ~largest].abs().min()


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 13), st.integers(0, 99))
def test_two_of_every_four_inputs_stay(outputs: int, inputs: int, seed: int) -> None:
    config, weights = network(seed, layer_ffn=(inputs, outputs, 10, 11))
    half, left = (zero_weights(config, weights, "2:4", done=done) for done in (0.5, 1.0))
    for name, (_, i) in matrix_shapes(config).items():
        assert has_two_of_four(left[name])
        for start in range(0, i, 4):
            group, kept = weights[name][:, start : start + 4].abs(), left[name][:, start : start + 4].abs()
            count = min(2, group.shape[1])
            torch.testing.assert_close(kept.sort(1).values[:, -count:], group.sort(1).values[:, -count:])
            assert int((kept != 0).sum()) == count * len(group)
            assert int((half[name][:, start : start + 4] != 0).sum()) == min(3, group.shape[1]) * len(group)
        assert has_two_of_four(weights[name]) == (i <= 2)


@ALL_KINDS
def test_zeros_survive_the_quantization_in_the_form_that_tensorrt_wants(kind: dict[str, Any]) -> None:
    """In the graphs a matrix is [i, o], and the sum of a product runs over the first axis."""
    config, weights = network(**kind)
    tensors = graph_tensors(
        {name: tensor.numpy() for name, tensor in zero_weights(config, weights, "2:4").items()}, config
    )
    seen = 0
    for precision in ("int8", "int4"):
        for name, weight in apply_plan(tensors, uniform_plan(precision)).items():  # type: ignore[arg-type]
            if not isinstance(weight, Int8Weight | Int4Weight) or group_of(name) in (
                "embedding",
                "output",
                "projection",
            ):
                continue
            values = weight.values if isinstance(weight, Int8Weight) else weight.dequantize()
            assert not values[tensors[name] == 0].any(), name
            padded = np.pad(values, ((0, -len(values) % 4), (0, 0))).reshape(-1, 4, values.shape[1])
            assert ((padded != 0).sum(axis=1) <= 2).all(), name
            assert values.any()
            seen += 1
    assert seen >= 6


@pytest.mark.parametrize("optimizer_name", ["muon", "adamw"])
def test_every_step_leaves_zeros_zero(optimizer_name: Any) -> None:
    config, weights = network(decoder_layers=1)
    model = build(config)
    model.load_state_dict(zero_weights(config, weights, 0.5))
    gone = zeros_of(model.state_dict(), config)
    train = TrainConfig(optimizer=optimizer_name, learning_rate=0.01, weight_decay=0.3)
    optimizer = make_optimizer(model, train)
    hold_zeros(model, optimizer)
    average = Average(model, 0.9)
    source, target = torch.randint(3, 60, (4, 3, 4)), torch.randint(3, 60, (4, 3, 4))
    for step in range(1, 5):
        optimizer.zero_grad()
        model.logits(model.states(source, target)).square().mean().backward()
        for name, parameter in layer_matrices(model).items():
            assert parameter.grad is not None
            assert not parameter.grad[gone[name]].any()
            assert parameter.grad.any()
        optimizer.step()
        average.update(step)
        for tensors in (model.state_dict(), average.tensors):
            for name, zeros in gone.items():
                # Zero and not -0, whose bytes are others.
                assert not tensors[name][zeros].view(torch.int32).any()
                assert bool((tensors[name][~zeros] != 0).all())
    assert not any(torch.equal(parameter, weights[name]) for name, parameter in layer_matrices(model).items())


@pytest.fixture(scope="module")
def sparse(
    tiny_dataset: Path, tiny_settings: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """A checkpoint; what `--sparsity 2:4` and recovery with a running mean make of it; and the report."""
    folder = tmp_path_factory.mktemp("sparse")
    more = ["train.average=0.9", "train.epochs=5"]
    train_model(tiny_dataset, folder / "whole", config=override(preset("tiny"), [*tiny_settings, *more]), device="cpu")
    report = prune(
        *(folder / "whole", "-o", folder / "out", "--sparsity", "2:4"),
        *("--data", tiny_dataset, "--recover-epochs", 1, "--rounds", 2),
    )
    return folder / "whole", folder / "out", report


def test_zeros_stay_zero_through_recovery(sparse: tuple[Path, Path, dict[str, Any]]) -> None:
    whole, out, report = sparse
    before, after = load_checkpoint(whole), load_checkpoint(out)
    assert after.config.train.keep_zeros
    weights = after.model.state_dict()
    for name, zeros in zeros_of(weights, after.config.model).items():
        assert has_two_of_four(weights[name])
        assert float(zeros.float().mean()) == 0.5  # all sizes are multiples of four
        assert not torch.equal(weights[name][~zeros], before.model.state_dict()[name][~zeros])
    losses = [stage["valid_loss"] for stage in report["stages"]]
    assert losses[-1] < losses[-2]
    assert losses[1] < losses[3]  # one of four, then two


def test_the_report_says_what_zeros_give(sparse: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    whole, out, report = sparse
    about = report["zeros"]
    assert report["removed"] == {"sparsity": "2:4"}
    assert report["before"] == report["after"]
    assert read_manifest(out)["training"]["pruning"]["zeros"] == about
    assert (about["zeros"], about["two_of_four"]) == (0.5, True)
    shapes = matrix_shapes(load_checkpoint(out).config.model)
    assert about["weights"] == sum(map(math.prod, shapes.values()))
    assert about["int8_bytes"]["before"] == about["int8_bytes"]["after"]
    # Two of four: 1 bit and a half say which, and half of the bytes are left.
    saved = about["int8_deflated_bytes"]["before"] - about["int8_deflated_bytes"]["after"]
    assert 0.15 * about["weights"] < saved < 0.5 * about["weights"]
    assert about["onnxruntime"].startswith("no gain on this runtime")
    assert "two zeros at least, as TensorRT's sparse kernels want it" in about["tensorrt"]

    said = RUN.invoke(app, ["prune", str(whole), "-o", str(tmp_path / "half"), "--sparsity", "0.5", "--ffn", "0.25"])
    words = " ".join(said.stdout.split())
    assert ": after --ffn 0.25 --sparsity 0.5, " in words
    assert "50.0% of the" in words
    assert "weights of the layers' matrices are zero" in words
    assert "Latency: no gain on this runtime" in words
    assert "TensorRT: no gain either" in words


def test_zeros_stay_through_what_comes_after(
    sparse: tuple[Path, Path, dict[str, Any]], tiny_dataset: Path, tmp_path: Path
) -> None:
    """Pruned again and recovered, trained for int8, and in the integers of the bundle."""
    _, out, _ = sparse
    checkpoint = load_checkpoint(out)
    model, _ = fine_tune(checkpoint, Dataset.open(tiny_dataset), tmp_path, seed=1)
    assert all(map(has_two_of_four, layer_matrices(model).values()))

    again = prune(out, "-o", tmp_path / "again", "--layers", 0, "--rank", 0.5, "--data", tiny_dataset)
    assert again["removed"] == {"rank": 0.5}
    assert again["zeros"]["two_of_four"]
    assert load_checkpoint(tmp_path / "again").config.train.keep_zeros

    made = RUN.invoke(app, ["quantize", str(tmp_path / "again"), "-o", str(tmp_path / "bundle"), "--int8"])
    assert made.exit_code == 0, made.output + str(made.exception)
    assert RUN.invoke(app, ["verify", str(tmp_path / "bundle")]).exit_code == 0
    found = 0
    for name in ("encode", "suggest"):
        for tensor in onnx.load(tmp_path / "bundle" / f"{name}.onnx").graph.initializer:
            if tensor.name.endswith(".values") and not tensor.name.startswith("embedding"):
                values = numpy_helper.to_array(tensor).reshape(-1, 4, tensor.dims[1])
                assert ((values != 0).sum(axis=1) <= 2).all(), tensor.name
                found += 1
    assert found >= 8


def test_recurrent_networks_can_lose_weights_too(tiny_dataset: Path, tmp_path: Path) -> None:
    small = ["model.arch=seq2seq", "model.d_model=16", "model.units=16", "train.epochs=1", "train.batch_queries=400"]
    train_model(tiny_dataset, tmp_path / "c", config=override(preset("tiny"), small), device="cpu")
    more = ("--data", tiny_dataset, "--recover-epochs", 1)
    assert prune(tmp_path / "c", "-o", tmp_path / "out", "--sparsity", 0.4, *more)["zeros"]["zeros"] == pytest.approx(
        0.4, abs=0.001
    )


def test_what_makes_no_sense(
    tiny_checkpoint: Path, tiny_dataset: Path, tiny_settings: list[str], tmp_path: Path
) -> None:
    out = ("-o", tmp_path / "out")
    for text in ("3:4", "half", "0", "1", "-0.5", "nan"):
        assert f"`--sparsity` is {text}, and it must be 2:4 or the share that becomes zero" in refused(
            tiny_checkpoint, *out, f"--sparsity={text}"
        )
    # 32 inputs: one of 32 weights stays at least, and without recovery or with it no output is left without one.
    for more in ((), ("--data", tiny_dataset, "--ffn", 0.5, "--rank", 0.5)):
        sentence = refused(tiny_checkpoint, *out, "--sparsity", 0.99, *more)
        assert "3,041 of the 3,072 weights of `query_layers.0.attention.qkv.weight` were to become zero" in sentence
        assert "and 2,976 can at most: every output keeps one; give a smaller share" in sentence
    assert "`--sparsity 1e-05` makes none of the weights zero" in refused(tiny_checkpoint, *out, "--sparsity", 1e-5)
    config = override(preset("tiny"), [*tiny_settings, "train.keep_zeros=true"])
    with pytest.raises(UserError, match="a network that begins with random weights has no zeros to keep"):
        train_model(tiny_dataset, tmp_path / "out", config=config, device="cpu")
    assert list(tmp_path.iterdir()) == []
    assert prune(tiny_checkpoint, *out, "--sparsity", 0.95)["zeros"]["zeros"] == pytest.approx(0.95, abs=0.001)
