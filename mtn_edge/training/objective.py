"""What a run teaches a network: the next token of its dataset, or what another objective adds to that.

An objective takes part in a run at four places: it adds sessions to learn from, makes the loss, says at the end what
came of it, and is part of what a resumed run must have been asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import Config, TrainConfig
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.errors import UserError
from mtn_edge.models.build import Network
from mtn_edge.tokenizer import PAD

if TYPE_CHECKING:
    from mtn_edge.training.inputs import Inputs

Loss = Callable[[Network, Batch, Tensor], Tensor]
"""Network, batch and the numbers of its target queries (`stream.Micro`) to nats summed over the tokens to predict."""


class Rewritten(NamedTuple):
    """Sessions that are learnt from with other targets than their own queries; all lists of one shape."""

    sessions: list[list[str]]
    """What is read."""
    targets: list[list[str]]
    """What is to be predicted in the place of each query."""


@dataclass(frozen=True)
class Clock:
    """How long a run may take (`train.time_budget`)."""

    began: float
    """`time.monotonic` when the command began."""
    budget: float
    """Seconds; 0 for no limit."""

    def check(self, what: str) -> None:
        """Ends a preparation that leaves no time for training.

        Args:
            what: what is going on.

        Raises:
            UserError: the time is up.
        """
        if self.budget and time.monotonic() - self.began >= self.budget:
            raise UserError(
                f"the time budget of {self.budget:,.0f} seconds was over while {what}, before training began; "
                "what is done so far is kept",
                code="time-budget",
                hint="give the same command a longer --time-budget",
            )


class Objective(Protocol):
    """See the head of the file."""

    @property
    def teacher(self) -> str | None:
        """`manifest_sha256` of the checkpoint that the network learns from: the new one's parent."""

    @property
    def min_users(self) -> int | None:
        """How many users issued each query that it has learnt; None without one, or when it does not say."""

    def rewrite(self, sessions: Sequence[Sequence[str]], clock: Clock) -> Rewritten | None:
        """What is learnt from beside the sessions of the training split."""

    def make_loss(self, inputs: Inputs, device: str, clock: Clock) -> nn.Module:
        """A module whose call is a `Loss`; what it learns itself is trained with the network, and dropped at the end.

        Args:
            inputs: what will be learnt from.
            device: `cpu` or `cuda`.
            clock: how long that may take.
        """

    def describe(self, model: Network, inputs: Inputs) -> dict[str, Any]:
        """Figures for the manifest, of the trained network in evaluation mode on the CPU."""


class NextToken:
    """The objective of `train`."""

    teacher = None
    min_users = None

    def rewrite(self, sessions: Sequence[Sequence[str]], clock: Clock) -> None:
        """Nothing."""

    def make_loss(self, inputs: Inputs, device: str, clock: Clock) -> nn.Module:  # noqa: ARG002
        """The cross-entropy."""
        return CrossEntropy(inputs.settings)

    def describe(self, model: Network, inputs: Inputs) -> dict[str, Any]:  # noqa: ARG002
        """Nothing beside what every run says."""
        return {}


class CrossEntropy(nn.Module):
    """The loss of `NextToken`, with label smoothing."""

    def __init__(self, train: TrainConfig) -> None:
        super().__init__()
        self._label_smoothing = train.label_smoothing

    def forward(self, model: Network, batch: Batch, numbers: Tensor) -> Tensor:  # noqa: ARG002
        """See `Loss`."""
        return token_loss(model, batch, label_smoothing=self._label_smoothing)[0]


def require_objective(config: Config, objective: Objective) -> None:
    """Raises a `UserError` when there are settings for a teacher and no teacher."""
    if config.distill is not None and objective.teacher is None:
        raise UserError(
            "a setting of [distill] was given, and `train` has no teacher",
            code="bad-setting",
            hint="leave it out, or take `mtn-edge distill`",
        )


def token_loss(model: Network, batch: Batch, *, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross-entropy summed over the tokens to predict, and how many there are.

    The output layer is the dearest of all, so only positions that count reach it.
    """
    targets = batch.target_out[batch.target_in != PAD]  # [n]
    logits = model.logits(model.states(batch.source, batch.target_in, batch.user))  # [n, v]
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing)
    return loss, (targets != IGNORE).sum()
