"""The optimizers: AdamW for all weights, or Muon for the matrices of the layers and AdamW for the rest.

Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; the scale of a step after Liu et
al. 2025, arXiv 2502.16982, section 2.2) steps along the nearest orthogonal matrix of the momentum: all its directions
count alike, also those that few examples speak for. It is written here and not taken from PyTorch because that one
computes in bfloat16, which takes twenty times as long as float32 on a processor without instructions for it.

Shapes: n matrices of one shape, r rows, c columns, r <= c.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mtn_edge.config import TrainConfig
from mtn_edge.models.build import Network
from mtn_edge.models.tail_lstm import TailLSTM

BETAS = (0.9, 0.98)
"""Decays of AdamW's two means."""
MOMENTUM = 0.95
"""Decay of Muon's mean of gradients."""
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def make_optimizer(model: Network, train: TrainConfig, objective: nn.Module | None = None) -> torch.optim.Optimizer:
    """The optimizer that `train.optimizer` names, of a network and of what its objective learns.

    Only what has two or more dimensions decays.

    Embeddings, positions and output tables are AdamW's with either: their rows are vectors, and few of them have a
    gradient.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    if isinstance(model, TailLSTM):
        tables.add(id(model.output.weight))
    matrices: list[Tensor] = []
    decaying: list[Tensor] = []
    still: list[Tensor] = []
    for parameter in [*model.parameters(), *(objective.parameters() if objective is not None else ())]:
        if train.optimizer == "muon" and parameter.ndim == 2 and id(parameter) not in tables:
            matrices.append(parameter)
        else:
            (decaying if parameter.ndim >= 2 else still).append(parameter)
    groups = [
        {"params": decaying, "weight_decay": train.weight_decay},
        {"params": still, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=train.learning_rate, betas=BETAS, fused=True)
    if train.optimizer == "adamw":
        return adamw
    return Muon(matrices, lr=train.learning_rate, weight_decay=train.weight_decay, others=adamw)


class Muon(torch.optim.Optimizer):
    """Muon for matrices, and the optimizer of all other weights in the same step.

    Args:
        matrices: parameters with two dimensions.
        lr: the rate; a step's root mean square is that of an AdamW step at the same rate.
        weight_decay: decoupled weight decay.
        others: the optimizer of the other weights; its groups and its state are found under this one's.
    """

    def __init__(
        self, matrices: list[Tensor], *, lr: float, weight_decay: float, others: torch.optim.Optimizer
    ) -> None:
        super().__init__([{"params": matrices, "weight_decay": weight_decay}], {"lr": lr})
        self._others = others
        others.state = self.state
        self.param_groups += others.param_groups  # the same dictionaries: who sets a rate sets it for both

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step from the gradients; `closure` computes them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group = self.param_groups[0]
        by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape[tuple(parameter.shape)].append(parameter)
        for shape, parameters in by_shape.items():
            directions = orthogonal(torch.stack([self._momentum(parameter) for parameter in parameters]))
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            scale = -group["lr"] * 0.2 * max(shape) ** 0.5
            torch._foreach_add_(parameters, list(directions.unbind()), alpha=scale)
        self._others.step()
        return loss

    def _momentum(self, parameter: Tensor) -> Tensor:
        """The mean of the gradients with this one, looked at one step ahead (Nesterov)."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(state["momentum"], MOMENTUM)


def orthogonal(matrices: Tensor) -> Tensor:
    """About U Vᵀ of each matrix U Σ Vᵀ: every singular value between 0.7 and 1.2, but for those that are nearly 0.

    Five Newton-Schulz iterations X <- (a + b X Xᵀ + c (X Xᵀ)²) X. They are run on the small matrix X Xᵀ alone, since
    all the factors commute, and their product is applied once at the end: for wide matrices half of the work.

    Args:
        matrices: [n, r, c], or with more rows than columns.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    gram = x @ x.mT  # [n, r, r]
    diagonal = torch.arange(gram.shape[1], device=gram.device)
    product: Tensor | None = None
    for iteration in range(_ITERATIONS):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor[:, diagonal, diagonal] += a
        product = factor if product is None else product @ factor
        if iteration < _ITERATIONS - 1:
            gram = factor @ gram @ factor
    assert product is not None
    x = product @ x
    return x.mT if tall else x  # type: ignore[no-any-return]
