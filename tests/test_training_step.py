"""One step: gradients of its parts, arithmetic, the running mean of the weights."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtn_edge.config import ModelConfig, TrainConfig, override, preset
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions
from mtn_edge.models.build import Network, build
from mtn_edge.training.average import Average
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.module import TrainingModule
from mtn_edge.training.objective import CrossEntropy
from mtn_edge.training.run import train_model
from mtn_edge.training.state import Progress, load_state
from mtn_edge.training.stream import Micro, Stream

SMALL = [
    *("model.d_model=16", "model.heads=2", "model.ffn=16", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=4", "model.dropout=0", "train.epochs=2", "train.warmup_steps=5"),
    *("train.validate_every=10", "train.valid_queries=100"),
]


def small(dropout: float = 0.0) -> Network:
    torch.manual_seed(0)
    return build(ModelConfig(vocab_size=130, d_model=8, heads=2, ffn=8, max_tokens=8, max_queries=4, dropout=dropout))


def gradients(parts: int, queries: int) -> list[dict[str, Tensor]]:
    """The gradient of each step of an epoch, as the loop sums it over the parts of the step."""
    sessions = [["ab", "cdefg"], ["x"], ["yz", "y", "aaaa"], ["q" * 12], ["b", "c"], ["mm"], ["n", "nnn", "o"]]
    texts = TokenizedSessions(sessions, lambda queries: [[ord(x) for x in query] for query in queries])
    batches = Batches(texts, max_tokens=8, max_queries=4, batch_queries=queries, parts=parts)
    train = TrainConfig(accumulate=parts, label_smoothing=0.1)
    model = small()
    module = TrainingModule(model, CrossEntropy(train), train, total_steps=9, progress=Progress())
    found, stream = [], list(Stream(batches, Progress(), seed=1, epochs=1, accumulate=parts))
    assert len(stream) == len(batches) * parts
    for first in range(0, len(stream), parts):
        model.zero_grad()
        for micro in stream[first : first + parts]:
            (module.training_step(micro) / parts).backward()  # the loop divides by the batches of a step
        found.append({name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None})
    return found


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_step_give_the_gradient_of_one_batch(parts: int) -> None:
    whole, summed = gradients(1, 2 * parts), gradients(parts, 2)
    assert len(whole) == len(summed) > 1
    for one, many in zip(whole, summed, strict=True):
        assert set(one) <= set(many)
        for name, gradient in many.items():
            torch.testing.assert_close(gradient, one.get(name, torch.zeros_like(gradient)), rtol=1e-4, atol=1e-6)


def train(dataset: Path, output: Path, *more: str) -> dict[str, float]:
    return train_model(dataset, output, config=override(preset("tiny"), [*SMALL, *more]), device="cpu")


def test_accumulation_trains_like_one_batch(tiny_dataset: Path, tmp_path: Path) -> None:
    one = train(tiny_dataset, tmp_path / "one", "train.batch_queries=64")
    two = train(tiny_dataset, tmp_path / "two", "train.batch_queries=16", "train.accumulate=4")
    assert one["steps"] == two["steps"] > 30
    assert two["valid_loss"] == pytest.approx(one["valid_loss"], rel=1e-3)
    assert two["train_loss"] == pytest.approx(one["train_loss"], rel=1e-3)


def test_bfloat16_learns_as_well(tiny_dataset: Path, tmp_path: Path) -> None:
    """The weights stay in float32, and so does the validation."""
    full = train(tiny_dataset, tmp_path / "full", "train.batch_queries=64")
    half = train(tiny_dataset, tmp_path / "half", "train.batch_queries=64", "train.precision=bf16")
    assert half["train_loss"] < 5.4  # log 379 = 5.9 at the start
    assert half["valid_loss"] == pytest.approx(full["valid_loss"], rel=0.02)
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in ("full", "half")}
    assert weights["full"] != weights["half"]
    assert load_checkpoint(tmp_path / "half").model.embedding.weight.dtype == torch.float32


@pytest.mark.slow
def test_the_compiled_loss_learns_as_well(tiny_dataset: Path, tmp_path: Path) -> None:
    plain = train(tiny_dataset, tmp_path / "plain", "train.batch_queries=64")
    compiled = train(tiny_dataset, tmp_path / "compiled", "train.batch_queries=64", "train.compile=true")
    assert compiled["valid_loss"] == pytest.approx(plain["valid_loss"], rel=1e-3)


def test_the_mean_moves_towards_the_weights() -> None:
    model = small()
    first = {name: x.detach().clone() for name, x in model.named_parameters()}
    average = Average(model, 0.9)
    expected = dict(first)
    for step in range(1, 200):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = {name: decay * expected[name] + (1 - decay) * x for name, x in model.named_parameters()}
    before = copy.deepcopy(model.state_dict())
    with average.in_place():
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter, expected[name])
            assert not torch.equal(parameter, before[name])
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_the_mean_is_validated_and_published(tiny_dataset: Path, tmp_path: Path) -> None:
    plain = train(tiny_dataset, tmp_path / "plain")
    result = train(tiny_dataset, tmp_path / "mean", "train.average=0.99")
    state = load_state(tmp_path / "mean" / "training_state")
    assert state is not None
    published = load_checkpoint(tmp_path / "mean").model.state_dict()
    assert result["best_step"] == state.progress.step  # so the newest mean is the published one
    for name, tensor in state.part("average").items():
        assert torch.equal(published[name], tensor)
    # The steps themselves are those of a run without a mean.
    unaveraged = load_state(tmp_path / "plain" / "training_state")
    assert unaveraged is not None
    assert all(torch.equal(x, state.part("model")[name]) for name, x in unaveraged.part("model").items())
    assert result["valid_loss"] != plain["valid_loss"]


def test_three_levels_pass_the_users_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = small(), []
    states = model.states

    def spy(source: Tensor, target_in: Tensor, user: Tensor | None = None) -> Tensor:
        seen.append(user)
        return states(source, target_in)

    monkeypatch.setattr(model, "states", spy)
    texts = TokenizedSessions([["a"], ["b"], ["c"]], lambda x: [[ord(y) for y in text] for text in x], [1, 1, 2])
    batches = Batches(texts, max_tokens=8, max_queries=4, batch_queries=9, max_sessions=3)
    (batch,) = batches.stream(1, 0)
    module = TrainingModule(model, CrossEntropy(TrainConfig()), TrainConfig(), total_steps=1, progress=Progress())
    module.training_step(Micro(Batch(*batch), 6, 3, torch.arange(3)))
    assert [user.tolist() for user in seen] == [batch.user.tolist()]
    assert sorted(batch.user.tolist()) in ([0, 0, 1], [0, 1, 1])
