"""The optimizers: what Muon steps along, which weights are whose, one rate for all."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtn_edge.config import Config, ModelConfig, TrainConfig, override, preset
from mtn_edge.models.build import build
from mtn_edge.training.optimizer import MOMENTUM, make_optimizer, orthogonal

ARCHS = ("mtn", "transformer", "seq2seq", "hred", "tail-lstm")


def small(arch: str = "mtn") -> ModelConfig:
    config = override(preset("tiny", arch), ["model.d_model=16", "model.heads=2", "model.ffn=24", "model.units=20"])
    return dataclasses.replace(config.model, vocab_size=50)


def iterated(matrix: Tensor) -> Tensor:
    """The five iterations as they are published, on the matrix itself, in float64."""
    x = matrix.double()
    x = x.mT if len(x) > x.shape[1] else x
    x = x / x.norm()
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if len(matrix) > matrix.shape[1] else x  # type: ignore[no-any-return]


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3), st.integers(0, 1000))
def test_the_small_matrix_alone_gives_what_all_iterations_give(rows: int, columns: int, n: int, seed: int) -> None:
    matrices = torch.randn(n, rows, columns, generator=torch.Generator().manual_seed(seed))
    for found, matrix in zip(orthogonal(matrices), matrices, strict=True):
        assert torch.allclose(found.double(), iterated(matrix), atol=5e-4)


def test_all_directions_count_alike() -> None:
    left, _ = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(1)))
    right, _ = torch.linalg.qr(torch.randn(30, 12, generator=torch.Generator().manual_seed(2)))
    matrix = left @ torch.diag(torch.logspace(0, -1.5, 12)) @ right.T  # one direction 30 times as strong as another
    values = torch.linalg.svdvals(orthogonal(matrix[None])[0])
    assert float(values.min()) > 0.65
    assert float(values.max()) < 1.25
    # A matrix without a gradient stays where it is.
    assert torch.equal(orthogonal(torch.zeros(1, 3, 4)), torch.zeros(1, 3, 4))


def test_a_step_of_muon() -> None:
    model = build(small())
    train = TrainConfig(learning_rate=0.01, weight_decay=0.5)
    optimizer = make_optimizer(model, train)
    matrix = model.get_parameter("query_layers.0.feed_forward.up.weight")
    before = matrix.detach().clone()
    momentum = torch.zeros_like(matrix)
    for step in range(2):
        gradient = torch.randn(matrix.shape, generator=torch.Generator().manual_seed(step))
        matrix.grad = gradient.clone()
        optimizer.step()
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        ahead = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        before = before * (1 - 0.01 * 0.5) - 0.01 * 0.2 * 24**0.5 * iterated(ahead).float()
        assert torch.allclose(matrix, before, atol=1e-5)
    # A step is about as large as one of AdamW at the same rate.
    assert float((iterated(ahead) * 0.2 * 24**0.5).square().mean().sqrt()) == pytest.approx(0.2, rel=0.2)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_every_weight_is_in_one_group_and_moves(arch: str, kind: str) -> None:
    torch.manual_seed(1)
    model = build(small(arch))
    config = override(Config(), [f"train.optimizer={kind}", "train.weight_decay=0.5", "train.learning_rate=0.1"])
    optimizer = make_optimizer(model, config.train)
    grouped = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    for group in optimizer.param_groups:
        assert all(p.ndim >= 2 for p in group["params"]) or group["weight_decay"] == 0
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.01  # what was asked for at first, 0.1, would be seen below
    optimizer.step()
    for name, parameter in model.named_parameters():
        moved = float((parameter.detach() - before[name]).abs().max())
        assert 0 < moved < 0.05, name
        # Tables are AdamW's: a step from the start is the rate, whatever the gradient.
        if name in {"embedding.weight", "recency.weight"} or kind == "adamw":
            assert moved == pytest.approx(0.01, rel=0.6), name
    fields = {tuple(sorted(optimizer.state[p])) for p in model.parameters()}
    adamw = ("exp_avg", "exp_avg_sq", "step")
    assert fields == ({adamw, ("momentum",)} if kind == "muon" else {adamw})


def test_the_loss_is_computed_by_the_step() -> None:
    """The training loop hands the optimizer a function that computes loss and gradients."""
    model = build(small())
    optimizer = make_optimizer(model, TrainConfig())

    def closure() -> float:
        optimizer.zero_grad()
        loss = torch.stack([p.square().sum() for p in model.parameters()]).sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first
