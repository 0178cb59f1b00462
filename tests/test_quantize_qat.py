"""Training for int8: rounding that equals the graphs', gradients that pass it, and a run that keeps what is better."""

import copy

import numpy as np
import pytest

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")

import torch

from export.bundle import write_bundle
from export.verify import verify_bundle
from mtn_edge.config import Config, ModelConfig
from mtn_edge.errors import UserError
from mtn_edge.models.build import build
from quantize import qat
from quantize.fake import ROWS, fake_activation, fake_weight
from quantize.int8 import quantize_weight

SIZES = {"vocab_size": 50, "d_model": 16, "heads": 2, "ffn": 24, "max_tokens": 6, "max_queries": 4, "dropout": 0.0}


def test_rounded_weights_are_those_of_the_graphs():
    weight = torch.randn(24, 16, generator=torch.Generator().manual_seed(1))
    wanted = quantize_weight("w", np.ascontiguousarray(weight.numpy().T)).dequantize().T
    np.testing.assert_allclose(fake_weight(weight).numpy(), wanted, atol=1e-6)


def test_rounded_inputs_are_those_of_the_runtime():
    onnx = pytest.importorskip("onnx")
    import onnxruntime

    x = np.random.default_rng(0).normal(1, 2, size=(2 * ROWS + 3, 16)).astype(np.float32)
    found = fake_activation(torch.from_numpy(x).view(1, -1, 16)).numpy()[0]
    # The runtime's own operator, on as many rows as share a range.
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    undo = onnx.helper.make_node("DequantizeLinear", ["y", "scale", "zero"], ["z"])
    shape = ["r", 16]
    graph = onnx.helper.make_graph(
        [node, undo],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, shape)],
        [onnx.helper.make_tensor_value_info("z", 1, shape)],
    )
    opset = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for start in range(0, len(x), ROWS):
        wanted = session.run(None, {"x": x[start : start + ROWS]})[0]
        step = (max(x[start : start + ROWS].max(), 0) - min(x[start : start + ROWS].min(), 0)) / 255
        difference = np.abs(found[start : start + ROWS] - wanted)
        assert difference.max() < 1.01 * step  # a number half-way between two steps may go either way
        assert np.median(difference) < 1e-5


def test_gradients_pass_the_rounding():
    x = torch.randn(5, 4, requires_grad=True)
    weight = torch.randn(3, 4, requires_grad=True)
    (fake_activation(x) @ fake_weight(weight).T).sum().backward()
    np.testing.assert_allclose(x.grad, fake_weight(weight).detach().sum(0).expand(5, 4), rtol=1e-5)
    np.testing.assert_allclose(weight.grad, fake_activation(x).detach().sum(0).expand(3, 4), rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("arch", ["mtn", "transformer"])
def test_a_rounded_network_keeps_its_tensors_and_its_copies_are_its_own(arch):
    torch.manual_seed(0)
    model = build(ModelConfig(**SIZES, arch=arch)).eval()
    source, target = torch.randint(3, 50, (2, 3, 4)), torch.randint(3, 50, (2, 3, 4))
    before, names = model.logits(model.states(source, target)), set(model.state_dict())
    qat.round_products(model)
    rounded = model.logits(model.states(source, target))
    assert set(model.state_dict()) == names
    assert 1e-4 < float((rounded - before).abs().mean()) < 0.1 * float(before.abs().mean())
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    assert torch.equal(model.logits(model.states(source, target)), rounded)
    assert not torch.equal(other.logits(other.states(source, target)), rounded)


def test_recurrent_networks_are_refused():
    with pytest.raises(UserError, match=r"`--method qat` reaches products of linear layers only.*checkpoint is a hred"):
        qat.require_linear(Config(model=ModelConfig(arch="hred")), "qat")


def test_a_dataset_of_another_tokenizer_is_refused(tiny_checkpoint, wide_dataset, tmp_path):
    with pytest.raises(UserError, match=r"has another tokenizer than .* and --method qat trains on its tokens"):
        write_bundle(
            tiny_checkpoint, tmp_path / "out", precision="int8", method="qat", dataset=wide_dataset, force=False, seed=1
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("better", [True, False])
def test_a_bundle_is_trained_for_int8(better, tiny_checkpoint, tiny_dataset, tmp_path, monkeypatch):
    if not better:
        monkeypatch.setattr(qat, "_loss", lambda *_: 0.0)
    manifest = write_bundle(
        tiny_checkpoint, tmp_path / "out", precision="int8", method="qat", dataset=tiny_dataset, force=False, seed=1
    )
    about = manifest["quantization"]
    training = about["training"]
    assert about["method"] == "qat"
    assert (training["valid_loss"] < training["valid_loss_before"]) == training["kept"] == better
    assert ("fp32_trained" in manifest["quality"]["test"]) == better
    assert "int8" in manifest["quality"]["test"]
    assert all(check.ok for check in verify_bundle(tmp_path / "out"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert ("after training for int8" in (tmp_path / "out" / "MODEL_CARD.md").read_text()) == better
    assert not list((tmp_path / "out").glob("*qat*"))
