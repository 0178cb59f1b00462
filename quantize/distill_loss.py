"""The loss of distillation: the truth, the teacher's softened distribution, and the directions of hidden vectors.

For each token to predict, with the student's scores z, the teacher's z' and the temperature T (Hinton et al. 2015,
section 2):

    truth * CE(y, softmax(z)) + (1 - truth) * T^2 * KL(softmax(z' / T) || softmax(z / T))
    + states * (1 - cos(A h, h')) + sessions * (1 - cos(B s, s'))

T^2 keeps the size of the gradients when T changes. h and s are the student's decoder state and session vector, h' and
s' the teacher's, A and B learned maps between their widths (the cosine loss of Sanh et al. 2019, section 3); the maps
are dropped when training is over.

Shapes: n tokens to predict, g target queries, v vocabulary, d the student's width, w the teacher's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import DistillConfig, TrainConfig
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.models.build import Network
from mtn_edge.tokenizer import PAD
from quantize.teacher_outputs import TeacherOutputs, of_targets, session_vectors


class DistillLoss(nn.Module):
    """A module whose call is a `training.objective.Loss`.

    Args:
        outputs: what the teacher said about all that is learnt from.
        teacher_logits: the teacher's output layer: its states [n, w] to scores [n, v].
        distill: the weights and the temperature.
        train: for the label smoothing of the truth.
        width: d.
        teacher_width: w.
    """

    def __init__(
        self,
        outputs: TeacherOutputs,
        teacher_logits: Callable[[Tensor], Tensor],
        distill: DistillConfig,
        train: TrainConfig,
        *,
        width: int,
        teacher_width: int,
    ) -> None:
        super().__init__()
        self._outputs, self._teacher_logits = outputs, teacher_logits
        self._distill, self._label_smoothing = distill, train.label_smoothing
        self.states_map = nn.Linear(width, teacher_width, bias=False) if distill.states else None
        self.sessions_map = nn.Linear(width, teacher_width, bias=False) if distill.sessions else None

    def forward(self, model: Network, batch: Batch, numbers: Tensor) -> Tensor:
        """See `Loss`."""
        distill = self._distill
        said = self._outputs.of(numbers.cpu().numpy(), batch.source.device)
        targets = batch.target_out[batch.target_in != PAD]
        counted = targets != IGNORE
        with session_vectors(model) as vectors:
            mine = model.states(batch.source, batch.target_in, batch.user)[counted]  # [n, d]
        theirs = said.states[counted]  # [n, w]
        logits = model.logits(mine).float()  # [n, v]
        loss = logits.new_zeros(())
        if distill.truth:
            smoothing = self._label_smoothing
            truth = F.cross_entropy(logits, targets[counted], reduction="sum", label_smoothing=smoothing)
            loss = loss + distill.truth * truth
        if distill.truth < 1:
            with torch.no_grad(), torch.autocast(theirs.device.type, enabled=False):
                teacher_logits = self._teacher_logits(theirs)
            loss = loss + (1 - distill.truth) * soft_loss(logits, teacher_logits, distill.temperature).sum()
        if self.states_map is not None:
            loss = loss + distill.states * turned(self.states_map(mine), theirs).sum()
        if self.sessions_map is not None and said.sessions is not None:
            vector = self.sessions_map(of_targets(vectors[0], batch.target_in))  # [g, w]
            asked = batch.target_in[:, :, 0] != PAD
            weight = (batch.target_out != IGNORE).sum(2)[asked]  # [g] tokens: so that all weights are per token
            loss = loss + distill.sessions * (weight * turned(vector, said.sessions)).sum()
        return loss


def soft_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """T^2 KL [n], in nats, of the student's softened distributions from the teacher's; scores [n, v]."""
    mine, theirs = ((scores / temperature).log_softmax(1) for scores in (logits, teacher_logits))
    return temperature**2 * F.kl_div(mine, theirs, reduction="none", log_target=True).sum(1)


def turned(mine: Tensor, theirs: Tensor) -> Tensor:
    """1 - cosine of vectors [n, w], in [0, 2]."""
    return 1 - F.cosine_similarity(mine.float(), theirs, dim=1)
