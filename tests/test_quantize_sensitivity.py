"""The scan of groups and the mixed plan: what is measured, what is chosen, when nothing will do."""

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="networks are compared with the extra [train]")
pytest.importorskip("onnx", reason="graphs are built with the extra [train]")

import torch

from export import mixing
from export.bundle import write_bundle
from export.sessions import batches_of, read_sessions
from export.simulation import simulated
from export.verify import verify_bundle
from mtn_edge import folders
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import EXIT_GATE, GateError, UserError
from mtn_edge.training.checkpoint import load_checkpoint
from quantize.int4 import quantize_blocks
from quantize.int8 import quantize_weight
from quantize.plan import GROUPS, Plan, uniform_plan
from quantize.sensitivity import Effect, alone, mean_kl, mixed_plan

EFFECTS = [
    Effect("decoder", "int4", kl=0.01, mrr_loss=None, saved=1000),
    Effect("memory", "int4", kl=0.001, mrr_loss=None, saved=500),
    Effect("embedding", "int8", kl=0.0001, mrr_loss=None, saved=2000),
]
COST = {"int4": {"decoder": 0.05, "memory": 0.004}, "int8": {"decoder": 0.006, "memory": 0.001, "embedding": 0.002}}


def additive(plan: Plan) -> float:
    """A drop that is the sum of the groups'."""
    return sum(COST[plan[group]][group] for group in GROUPS if plan[group] != "fp32")


def quantized(plan: Plan) -> dict[str, str]:
    return {group: plan[group] for group in GROUPS if plan[group] != "fp32"}


@pytest.mark.parametrize(
    ("max_drop", "wanted"),
    [
        (0.06, {"decoder": "int4", "memory": "int4", "embedding": "int8"}),
        (0.012, {"decoder": "int8", "memory": "int4", "embedding": "int8"}),
        (0.007, {"memory": "int4", "embedding": "int8"}),
        (0.0025, {"embedding": "int8"}),
        (0.0015, {"memory": "int8"}),
    ],
)
def test_the_cheapest_groups_come_first_and_each_as_small_as_it_can_be(max_drop, wanted):
    best, tried = mixed_plan(EFFECTS, additive, max_drop)
    assert best is not None
    assert quantized(best.plan) == wanted
    assert best.drop == pytest.approx(additive(best.plan))
    assert best.drop <= max_drop
    assert tried[0].plan == uniform_plan("fp32") | {effect.group: effect.precision for effect in EFFECTS}
    assert len(tried) <= 1 + 2 * len(EFFECTS)


def test_nothing_fits():
    best, tried = mixed_plan(EFFECTS, lambda plan: additive(plan) + 0.1, 0.01)
    assert best is None
    assert min(point.drop for point in tried) == pytest.approx(0.101)


@pytest.fixture(scope="module")
def opened(tiny_checkpoint, tiny_dataset):
    checkpoint = load_checkpoint(tiny_checkpoint)
    return checkpoint, batches_of(read_sessions(Dataset.open(tiny_dataset), "valid", 20), checkpoint)


def test_kl_of_known_distributions():
    class Fixed:
        """Says the same of every token."""

        def __init__(self, *probabilities):
            self.log = torch.tensor(probabilities).log()

        def states(self, source, target_in, user):  # noqa: ARG002
            return torch.zeros(int((target_in != 0).sum()), 1)

        def logits(self, states):
            return self.log.expand(len(states), -1)

    from mtn_edge.data.batches import IGNORE, Batch

    batch = Batch(torch.ones(1, 1, 1), torch.tensor([[[1, 2, 2, 0]]]), torch.tensor([[[2, 2, IGNORE, IGNORE]]]), None)
    found = mean_kl(Fixed(0.25, 0.75), Fixed(0.5, 0.5), [batch, batch])
    assert found == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5), rel=1e-6)


def test_the_simulation_holds_what_the_integers_stand_for(opened):
    checkpoint, batches = opened
    model, config = checkpoint.model, checkpoint.config.model
    other = simulated(model, config, alone("decoder", "int8") | {"memory": "int4"})
    before, after = model.state_dict(), other.state_dict()
    for name, tensor in before.items():
        own = np.ascontiguousarray(tensor.numpy().T) if tensor.ndim == 2 else None
        if name == "decoder_layers.0.feed_forward.up.weight":
            np.testing.assert_array_equal(after[name].numpy().T, quantize_weight(name, own).dequantize())
        elif name == "decoder_layers.0.cross_attention.kv.weight":
            np.testing.assert_array_equal(after[name].numpy().T, quantize_blocks(name, own).dequantize())
        elif not name.startswith("decoder") or tensor.ndim != 2 or "positions" in name:
            assert torch.equal(after[name], tensor), name
    assert mean_kl(model, model, batches) == 0
    kl = {kind: mean_kl(model, simulated(model, config, uniform_plan(kind)), batches) for kind in ("int4", "int8")}
    assert 0 < 3 * kl["int8"] < kl["int4"] < 1


def test_a_mixed_plan_is_made_and_told(tiny_checkpoint, wide_dataset, tmp_path, monkeypatch):
    drops = iter([0.0] * 5 + [0.5])  # five groups alone, then all of them: too much

    def measure(*_):
        return lambda plan: next(drops, 0.3 if plan["decoder"] == "int4" else 0.0)

    monkeypatch.setattr(mixing, "_drop_measure", measure)
    manifest = write_bundle(
        tiny_checkpoint, tmp_path / "out", precision="int4", max_drop=0.01, dataset=wide_dataset, force=False, seed=1
    )
    about = manifest["quantization"]
    assert (about["asked"], about["max_drop"], about["mrr_drop"], about["mixed"]) == ("int4", 0.01, 0.0, True)
    assert about["groups"]["decoder"]["precision"] == manifest["precision"]["decoder"] == "int8"
    assert about["groups"]["memory"]["precision"] == manifest["precision"]["memory"] == "int4"
    assert about["groups"]["memory"]["products"] == {"MatMulNBits": 1}
    assert about["groups"]["memory"]["kl"] > 0
    assert about["groups"]["norms"]["kl"] is None
    assert about["groups"]["memory"]["bytes"] < 0.2 * about["groups"]["memory"]["bytes_fp32"]
    assert about["kl"] > 0
    assert [point["mrr_drop"] for point in about["tried"]][:1] == [0.5]
    assert sum(group["bytes"] for group in about["groups"].values()) == manifest["sizes"]["weights"]
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    assert "At most 1.00% of MRR may be lost on validation pairs, and 0.00% is." in card
    assert "| memory | int4 |" in card
    assert all(check.ok for check in verify_bundle(tmp_path / "out"))
    assert folders.read_manifest(tmp_path / "out")["quantization"] == about


def test_a_drop_that_nothing_holds_is_a_gate(tiny_checkpoint, wide_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(mixing, "_drop_measure", lambda *_: lambda _: 0.125)
    with pytest.raises(GateError) as caught:
        write_bundle(
            tiny_checkpoint,
            tmp_path / "out",
            precision="int8",
            max_drop=0.01,
            dataset=wide_dataset,
            force=False,
            seed=1,
        )
    assert "no group of tensors can be quantized with a loss of MRR of at most 1.00%: the best of 6 plans" in str(
        caught.value
    )
    assert "loses 12.50%" in str(caught.value)
    assert caught.value.exit_code == EXIT_GATE
    assert list(tmp_path.iterdir()) == []


def test_the_drop_is_measured_on_the_graphs(tiny_checkpoint, wide_dataset, tmp_path):
    manifest = write_bundle(
        tiny_checkpoint, tmp_path / "out", precision="int8", max_drop=0.5, dataset=wide_dataset, force=False, seed=1
    )
    about = manifest["quantization"]
    assert about["mixed"] is False
    assert abs(about["mrr_drop"]) < 0.1
    assert {gate["name"]: gate["value"] for gate in manifest["gates"]}[
        "loss of MRR relative to float32, validation"
    ] == pytest.approx(about["mrr_drop"], abs=1e-3)
    losses = [group["mrr_loss"] for group in about["groups"].values() if group["mrr_loss"] is not None]
    assert len(losses) == 5


def test_too_few_pairs_are_refused(tiny_checkpoint, tiny_dataset, tmp_path):
    with pytest.raises(UserError, match=r"on 50 validation sessions at least, and `--data` has 37; prepare a larger"):
        write_bundle(
            tiny_checkpoint, tmp_path / "out", precision="int8", max_drop=0.1, dataset=tiny_dataset, force=False, seed=1
        )
    assert list(tmp_path.iterdir()) == []
