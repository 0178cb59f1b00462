"""Knowledge distillation: a student learns from a teacher's outputs as well as from the dataset.

Hinton et al. 2015 (arXiv 1503.02531); at the level of sequences Kim & Rush 2016 (arXiv 1606.07947). The run is that of
`train`, with another loss and more sessions; docs/compression.md has the equations and what was measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from mtn_edge.config import Config, DistillConfig, check
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.models.build import Network
from mtn_edge.training.checkpoint import Checkpoint
from mtn_edge.training.inputs import Inputs, context_of
from mtn_edge.training.objective import Clock, Rewritten
from mtn_edge.training.processes import find_processes
from mtn_edge.training.run import Device, train_model
from quantize.distill_loss import DistillLoss
from quantize.teacher import agreement, open_teacher
from quantize.teacher_answers import teacher_answers
from quantize.teacher_folder import TeacherFolder, key_name
from quantize.teacher_outputs import ask_teacher


def distill_model(
    dataset: Path,
    output: Path,
    *,
    teacher: Path,
    config: Config,
    device: Device = "auto",
    cache: Path | None = None,
    resume: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Trains a student and writes its checkpoint.

    The teacher is asked once about all that will be learnt from. Its outputs lie in a folder beside `output` until the
    checkpoint stands, or in `cache`, where they stay for other students. As in `train_model`, the weights of a run on
    the CPU that was killed and resumed are those of the unbroken run.

    Args:
        dataset: a dataset folder.
        output: the checkpoint folder to be.
        teacher: the checkpoint to learn from.
        config: the student's settings; without `distill` the defaults of that section.
        device: where the teacher and the student compute.
        cache: a folder for the outputs of teachers.
        resume: go on with an interrupted run.
        force: replace an existing checkpoint, throw an interrupted run away.

    Returns:
        What `train_model` returns; `distillation` says how far the student agrees with the teacher.

    Raises:
        UserError: see `train_model`, `open_teacher` and `ask_teacher`.
        InterruptedRunError: Ctrl-C; all work so far is saved.
    """
    if find_processes(1).world > 1:
        raise UserError(
            "several processes were started, and `distill` works in one",
            code="devices",
            hint="start it without torchrun or srun",
        )
    if output.resolve() == teacher.resolve():
        raise UserError(
            f"`{output}` is the teacher itself, and a student needs a place of its own",
            code="exists",
            hint="choose another name with -o",
        )
    data = Dataset.open(dataset)
    model = dataclasses.replace(config.model, vocab_size=len(data.tokenizer))
    config = check(dataclasses.replace(config, model=model, distill=config.distill or DistillConfig()))
    opened = open_teacher(teacher, data, config)
    key = _key(opened, data, config)
    place = output.parent / f".{output.name}.teacher" if cache is None else cache / key_name(key)
    folder = TeacherFolder(place, key)
    result = None
    try:
        objective = Distillation(opened, config, folder)
        result = train_model(
            dataset, output, config=config, objective=objective, device=device, resume=resume, force=force
        )
    finally:
        folder.close(remove=cache is None and result is not None)
    return result


class Distillation:
    """The objective (`training.objective.Objective`).

    Args:
        teacher: the checkpoint to learn from.
        config: the student's settings.
        folder: where the teacher's outputs lie.
    """

    def __init__(self, teacher: Checkpoint, config: Config, folder: TeacherFolder) -> None:
        assert config.distill is not None
        self._teacher, self._config, self._folder = teacher, config, folder
        self._distill = config.distill
        self._answers: Rewritten | None = None
        self.teacher: str = teacher.manifest["manifest_sha256"]
        self.min_users: int | None = teacher.manifest["lineage"].get("min_users")

    def rewrite(self, sessions: Sequence[Sequence[str]], clock: Clock) -> Rewritten | None:
        """The teacher's own answers, where they are wanted."""
        if not self._distill.answers:
            return None
        self._folder.open()
        self._answers = teacher_answers(
            self._teacher,
            sessions,
            self._folder,
            share=self._distill.answers,
            beam=self._distill.beam,
            seed=self._config.train.seed,
            clock=clock,
        )
        return self._answers

    def make_loss(self, inputs: Inputs, device: str, clock: Clock) -> nn.Module:
        """Asks the teacher, and compares with what it says."""
        self._folder.open()
        teacher = self._teacher.model.to(device)
        outputs = ask_teacher(
            teacher,
            inputs.learnt,
            self._folder,
            model=self._config.model,
            sessions=bool(self._distill.sessions),
            device=device,
            clock=clock,
        )
        return DistillLoss(
            outputs,
            teacher.logits,
            self._distill,
            self._config.train,
            width=self._config.model.d_model,
            teacher_width=self._teacher.config.model.d_model,
        )

    def describe(self, model: Network, inputs: Inputs) -> dict[str, Any]:
        """The settings, and how far the student agrees with the teacher on the validation split."""
        found = agreement(model, self._teacher.model.cpu(), inputs.valid)
        about: dict[str, Any] = {
            **dataclasses.asdict(self._distill),
            "kl": round(found.kl, 4),
            "top1": round(found.top1, 4),
            "teacher_valid_loss": round(found.teacher_loss, 4),
            "tokens": found.tokens,
        }
        if self._answers is not None:
            pairs = [
                (query, answer)
                for session, answers in zip(*self._answers, strict=True)
                for query, answer in zip(session, answers, strict=True)
            ]
            about["answered_queries"] = len(pairs)
            about["answers_as_searched"] = round(sum(a == b for a, b in pairs) / max(1, len(pairs)), 4)
        return {"distillation": about}


def _key(teacher: Checkpoint, data: Dataset, config: Config) -> dict[str, Any]:
    """What the teacher's outputs depend on."""
    distill = config.distill
    assert distill is not None
    return {
        "teacher": teacher.manifest["manifest_sha256"],
        "dataset": data.manifest["manifest_sha256"],
        "context": context_of(config.model),
        "sessions": bool(distill.sessions),
        "answers": [distill.answers, distill.beam, config.train.seed] if distill.answers else None,
    }
