"""What a step of training is: the loss of a batch, the optimizer, the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from mtn_edge.config import TrainConfig
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.models.build import Network
from mtn_edge.tokenizer import PAD
from mtn_edge.training.faults import diverged
from mtn_edge.training.optimizer import make_optimizer
from mtn_edge.training.state import Progress
from mtn_edge.training.stream import Micro


class TrainingModule(pl.LightningModule):
    """Teaches a network to predict every query of a session.

    Args:
        model: the network.
        train: how to train it.
        total_steps: steps of the whole run.
        progress: where the run stands; its step counts those before a resume too, unlike Lightning's `global_step`.
        world: processes that share a step.
    """

    def __init__(
        self, model: Network, train: TrainConfig, *, total_steps: int, progress: Progress, world: int = 1
    ) -> None:
        super().__init__()
        self.model = model
        self.train_config = train
        self.total_steps = total_steps
        self._progress = progress
        # Lightning divides by the batches of a step, and takes the mean of the gradients of the processes.
        self._shares = train.accumulate * world
        self._loss: Callable[..., tuple[Tensor, Tensor]] = (
            torch.compile(token_loss, dynamic=True) if train.compile else token_loss
        )

    def training_step(self, micro: Micro) -> Tensor:
        """Loss of a batch; the mean over all batches of its step is the step's loss, nats per token."""
        loss, _ = self._loss(self.model, micro.batch, label_smoothing=self.train_config.label_smoothing)
        return loss * (self._shares / micro.tokens)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer that the settings name."""
        return make_optimizer(self.model, self.train_config)

    def configure_gradient_clipping(self, *arguments: Any, **named: Any) -> None:  # noqa: ARG002
        """Scales the gradients of a step down to their largest norm.

        Raises:
            UserError: they are no numbers; the weights have not seen them.
        """
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.train_config.clip_norm)
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


def token_loss(model: Network, batch: Batch, *, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross-entropy summed over the tokens to predict, and how many there are.

    The output layer is the dearest of all, so only positions that count reach it.
    """
    targets = batch.target_out[batch.target_in != PAD]  # [n]
    logits = model.logits(model.states(batch.source, batch.target_in, batch.user))  # [n, v]
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing)
    return loss, (targets != IGNORE).sum()


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
