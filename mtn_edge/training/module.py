"""What a step of training is: the loss of a batch, the optimizer, the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from mtn_edge.config import TrainConfig
from mtn_edge.data.batches import Batch
from mtn_edge.models.build import Network
from mtn_edge.training.faults import diverged
from mtn_edge.training.objective import Loss, token_loss
from mtn_edge.training.optimizer import make_optimizer
from mtn_edge.training.state import OBJECTIVE, Progress
from mtn_edge.training.stream import Micro
from mtn_edge.training.zeros import hold_zeros


class TrainingModule(pl.LightningModule):
    """Teaches a network to predict every query of a session.

    Args:
        model: the network.
        loss: what it learns: a module whose call is an `objective.Loss`.
        train: how to train it.
        total_steps: steps of the whole run.
        progress: where the run stands; its step counts those before a resume too, unlike Lightning's `global_step`.
        world: processes that share a step.
    """

    def __init__(
        self,
        model: Network,
        loss: nn.Module,
        train: TrainConfig,
        *,
        total_steps: int,
        progress: Progress,
        world: int = 1,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = loss
        self.train_config = train
        self.total_steps = total_steps
        self._progress = progress
        # Lightning divides by the batches of a step, and takes the mean of the gradients of the processes.
        self._shares = train.accumulate * world
        # What is compiled must not become a second child, whose weights would count twice.
        self._loss = cast(Loss, torch.compile(loss.forward, dynamic=True) if train.compile else loss.forward)

    def learning(self) -> dict[str, nn.Parameter]:
        """All that learns, by name: the weights of the network, and of the objective under `objective.`."""
        named = dict(self.model.named_parameters())
        return named | {f"{OBJECTIVE}.{name}": x for name, x in self.objective.named_parameters()}

    def training_step(self, micro: Micro) -> Tensor:
        """Loss of a batch; the mean over all batches of its step is the step's loss, nats per token."""
        loss = self._loss(self.model, micro.batch, micro.numbers)
        return loss * (self._shares / micro.tokens)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer that the settings name."""
        optimizer = make_optimizer(self.model, self.train_config, self.objective)
        if self.train_config.keep_zeros:
            hold_zeros(self.model, optimizer)
        return optimizer

    def configure_gradient_clipping(self, *arguments: Any, **named: Any) -> None:  # noqa: ARG002
        """Scales the gradients of a step down to their largest norm.

        Raises:
            UserError: they are no numbers; the weights have not seen them.
        """
        norm = torch.nn.utils.clip_grad_norm_(self.learning().values(), self.train_config.clip_norm)
        if not bool(norm.isfinite()):
            raise diverged(self._progress.step + 1)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """Sets the learning rate of the step that follows: a function of its number, so there is no state to keep."""
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = learning_rate(self._progress.step, self.train_config, self.total_steps)


def learning_rate(step: int, train: TrainConfig, total_steps: int) -> float:
    """Rate of step number `step`: linear warm-up (at most half of all steps), then a cosine down to a tenth."""
    warmup = min(train.warmup_steps, total_steps // 2)
    if step < warmup:
        return train.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, total_steps - warmup)
    return train.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def mean_loss(model: Network, batches: Iterable[Batch]) -> float:
    """Nats per token of the batches, in evaluation mode and without label smoothing."""
    device = model.embedding.weight.device
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    for batch in batches:
        loss, tokens = token_loss(model, Batch(*(x.to(device) for x in batch)))
        total, count = total + float(loss), count + int(tokens)
    model.train(was_training)
    return total / count
