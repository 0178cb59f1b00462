"""The loss of distillation: the truth, the teacher's softened distribution, and the directions of hidden vectors.

For each token to predict, with the student's scores z, the teacher's distribution p and the temperature T
(Hinton et al. 2015, section 2):

    truth * CE(y, softmax(z)) + (1 - truth) * T^2 * KL(p_T || softmax(z / T))
    + states * (1 - cos(A h, h')) + sessions * (1 - cos(B s, s'))

T^2 keeps the size of the gradients when T changes. h and s are the student's decoder state and session vector, h' and
s' the teacher's, A and B learned maps between their widths (the cosine loss of Sanh et al. 2019, section 3); the maps
are dropped when training is over.

Shapes: n tokens to predict, g target queries, k kept tokens, v vocabulary, d the student's width, w the teacher's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import DistillConfig, TrainConfig
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.models.build import Network
from mtn_edge.tokenizer import PAD
from quantize.teacher_outputs import Soft, TeacherOutputs, of_targets, session_vectors

_LEAST_REST = 1e-6
"""What a student's other tokens have together, at least: below it the difference from 1 is rounding."""


class DistillLoss(nn.Module):
    """A module whose call is a `training.objective.Loss`.

    Args:
        outputs: what the teacher said about all that is learnt from.
        distill: the weights and the temperature.
        train: for the label smoothing of the truth.
        width: d.
        teacher_width: w.
    """

    def __init__(
        self, outputs: TeacherOutputs, distill: DistillConfig, train: TrainConfig, *, width: int, teacher_width: int
    ) -> None:
        super().__init__()
        self._outputs, self._distill, self._label_smoothing = outputs, distill, train.label_smoothing
        self.states_map = nn.Linear(width, teacher_width, bias=False) if distill.states else None
        self.sessions_map = nn.Linear(width, teacher_width, bias=False) if distill.sessions else None

    def forward(self, model: Network, batch: Batch, numbers: Tensor) -> Tensor:
        """See `Loss`."""
        distill = self._distill
        said = self._outputs.of(numbers.cpu().numpy(), batch.source.device)
        targets = batch.target_out[batch.target_in != PAD]
        counted = targets != IGNORE
        targets, soft = targets[counted], Soft(*(part[counted] for part in said.soft))  # [n], [n, k]
        with session_vectors(model) as vectors:
            states = model.states(batch.source, batch.target_in, batch.user)[counted]  # [n, d]
        logits = model.logits(states).float()  # [n, v]
        loss = states.new_zeros(())
        if distill.truth:
            truth = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=self._label_smoothing)
            loss = loss + distill.truth * truth
        if distill.truth < 1:
            scale = (1 - distill.truth) * distill.temperature**2
            loss = loss + scale * divergence(soft, logits / distill.temperature).sum()
        if self.states_map is not None and said.states is not None:
            loss = loss + distill.states * turned(self.states_map(states), said.states[counted]).sum()
        if self.sessions_map is not None and said.sessions is not None:
            mine = self.sessions_map(of_targets(vectors[0], batch.target_in))  # [g, w]
            asked = batch.target_in[:, :, 0] != PAD
            weight = (batch.target_out != IGNORE).sum(2)[asked]  # [g] tokens: so that all weights are per token
            loss = loss + distill.sessions * (weight * turned(mine, said.sessions)).sum()
        return loss


def divergence(soft: Soft, logits: Tensor) -> Tensor:
    """Kullback-Leibler divergence [n], in nats, of the student's distributions from the teacher's.

    All tokens that the teacher's `soft` does not name count as one event: a lower bound of the divergence over all
    tokens, 0 when the distributions are equal.

    Args:
        soft: the teacher's, [n, k]; probabilities that do not add up to 1, being rounded, are made to.
        logits: the student's scores divided by the temperature, [n, v].
    """
    theirs = torch.cat([soft.log_probs, soft.rest[:, None]], 1).log_softmax(1)  # [n, k + 1]
    named = logits.gather(1, soft.tokens) - logits.logsumexp(1, keepdim=True)  # [n, k]
    rest = torch.log1p(-named.exp().sum(1, keepdim=True).clamp(max=1 - _LEAST_REST))
    return (theirs.exp() * (theirs - torch.cat([named, rest], 1))).sum(1)


def turned(mine: Tensor, theirs: Tensor) -> Tensor:
    """1 - cosine of vectors [n, w], in [0, 2]."""
    return 1 - F.cosine_similarity(mine.float(), theirs, dim=1)
