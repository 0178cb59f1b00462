"""A teacher: a checkpoint that fits a dataset and a student, and how far a student agrees with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional as F

from mtn_edge.config import Config
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.models.build import Network
from mtn_edge.tokenizer import PAD, Tokenizer
from mtn_edge.training.checkpoint import Checkpoint, load_checkpoint
from quantize.teacher_outputs import teacher_reads


class Agreement(NamedTuple):
    """How far a student says what its teacher says, at the same positions."""

    kl: float
    """Nats a token: the student's distribution from the teacher's, over all tokens, without a temperature."""
    top1: float
    """Share of the positions at which both find the same token most probable."""
    teacher_loss: float
    """The teacher's own nats a token."""
    tokens: int
    """How many positions there were."""


def open_teacher(path: Path, data: Dataset, config: Config) -> Checkpoint:
    """Opens a teacher and holds it against the dataset and the student.

    Args:
        path: a checkpoint.
        data: what the student will learn from.
        config: the student's settings.

    Raises:
        UserError: it is no checkpoint of this version, or does not fit; the sentence says to what.
    """
    teacher = load_checkpoint(path)
    if not same_tokenizer(teacher.tokenizer, data.tokenizer):
        raise UserError(
            f"the teacher `{path}` cuts texts with another tokenizer ({len(teacher.tokenizer):,} tokens) than the "
            f"dataset `{data.path}` ({len(data.tokenizer):,} tokens), and both must be the same",
            code="other-tokenizer",
            hint="train the teacher on this dataset, or name the dataset that it was trained on",
        )
    for name in ("max_tokens", "max_queries"):
        theirs, mine = getattr(teacher.config.model, name), getattr(config.model, name)
        if theirs < mine:
            raise UserError(
                f"the teacher `{path}` has `model.{name}` {theirs} and the student {mine}, "
                "and a teacher must see as much as its student",
                code="teacher-too-narrow",
                hint=f"give the student as much at most: model.{name}={theirs}",
            )
    distill, arch = config.distill, teacher.config.model.arch
    if distill is not None and (distill.states or distill.sessions) and arch != "mtn":
        raise UserError(
            f"the teacher `{path}` is of the architecture {arch}, and `distill.states` and `distill.sessions` need an "
            "MTN",
            code="bad-setting",
            hint="set both to 0",
        )
    return teacher


@torch.inference_mode()
def agreement(student: Network, teacher: Network, batches: Iterable[Batch]) -> Agreement:
    """Compares two networks in evaluation mode on the CPU."""
    kl = same = nats = 0.0
    tokens = 0
    for batch in batches:
        targets = batch.target_out[batch.target_in != PAD]
        counted = targets != IGNORE
        mine = student.logits(student.states(batch.source, batch.target_in, batch.user)[counted]).log_softmax(1)
        theirs = teacher.logits(teacher.states(*teacher_reads(batch, teacher))[counted]).log_softmax(1)
        kl += float(F.kl_div(mine, theirs, reduction="sum", log_target=True))
        same += int((mine.argmax(1) == theirs.argmax(1)).sum())
        nats += float(F.nll_loss(theirs, targets[counted], reduction="sum"))
        tokens += len(mine)
    return Agreement(kl / tokens, same / tokens, nats / tokens, tokens)


def same_tokenizer(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether both cut every text alike."""
    return one.token_bytes == other.token_bytes and one.merges() == other.merges()
