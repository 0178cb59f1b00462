"""What compression costs, cell by cell: a teacher, a student alone and taught, the teacher pruned, the same size anew.

A cell is one system on one corpus with one seed. The teacher is an MTN of the preset `small`; the student one of `tiny`
with one decoder layer. All are trained as the corpus says (`comparing.corpora`), and answer what the systems of the
quality table answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from comparing.answers import load_answers, save_answers
from comparing.cells import lowered, questions_of
from comparing.corpora import Corpus
from export.compress.sizes import weight_bytes
from mtn_edge.config import Config, override, preset
from mtn_edge.data.dataset import Dataset
from mtn_edge.evaluation.protocol import Answers, Task, ask
from mtn_edge.evaluation.systems import Model
from mtn_edge.folders import MANIFEST
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.run import train_model
from quantize.distill import distill_model
from quantize.plan import Precision
from quantize.prune import prune_checkpoint
from quantize.prune_steps import Shares

TEACHER, ALONE, TAUGHT, PRUNED, ANEW = "teacher", "student alone", "student taught", "pruned", "pruned size anew"
PRECISIONS: dict[str, tuple[Precision, ...]] = {
    TEACHER: ("fp32", "int8"),
    ALONE: ("fp32",),
    TAUGHT: ("fp32", "int8", "int4"),
    PRUNED: ("fp32", "int8"),
    ANEW: ("fp32",),
}
"""The systems, each after those that it is made from, and what they are measured as."""
SHARES = Shares(ffn=0.5, heads=0.5)
RECOVERY = 2
"""Epochs after pruning; half as many as there are when there are fewer than four."""


class Shrunk(NamedTuple):
    """One cell."""

    corpus: Corpus
    system: str
    seed: int

    def checkpoint(self, work: Path) -> Path:
        """Its network."""
        return work / self.corpus.name / "checkpoints" / f"{self.system.replace(' ', '-')}-{self.seed}"

    def folder(self, work: Path) -> Path:
        """Where its answers lie."""
        return work / self.corpus.name / "cells"

    def name(self, precision: Precision) -> str:
        """How its files are called."""
        return f"{self.system.replace(' ', '-')}-{precision}-{self.seed}"

    def is_done(self, work: Path) -> bool:
        """Whether it was measured as everything that it is measured as."""
        return all((self.folder(work) / f"{self.name(each)}.json").is_file() for each in PRECISIONS[self.system])

    def load(self, work: Path, precision: Precision) -> tuple[dict[Task, Answers], dict[str, Any]]:
        """What it found."""
        return load_answers(self.folder(work), self.name(precision))


def run_shrunk(cell: Shrunk, datasets: Path, work: Path) -> None:
    """Makes the network, and asks it everything in each precision.

    Args:
        cell: which.
        datasets: where the quality table keeps its datasets.
        work: where these cells are kept.
    """
    data = Dataset.open(cell.corpus.dataset(datasets))
    place = cell.checkpoint(work)
    place.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if not (place / MANIFEST).is_file():
        _MAKERS[cell.system](cell, data, work, place)
    torch.set_num_threads(1)
    made = time.monotonic() - began
    questions = questions_of(cell.corpus, data)
    checkpoint = load_checkpoint(place)
    training, weights = checkpoint.manifest["training"], dict(checkpoint.model.state_dict())
    for precision in PRECISIONS[cell.system]:
        suggester = lowered(place, precision)
        answers = {task: ask(Model(suggester), asked, progress=lambda _: None) for task, asked in questions.items()}
        about = {
            "parameters": training["parameters"],
            "valid_loss": training["valid_loss"],
            "distillation": training.get("distillation"),
            "bytes": sum(weight_bytes(checkpoint.config.model, weights, precision).values()),
            "making_s": round(made, 1),
        }
        save_answers(cell.folder(work), cell.name(precision), answers, about)


def _config(cell: Shrunk, name: str, *more: str) -> Config:
    return override(preset(name), [*cell.corpus.settings_of("mtn"), *more, f"train.seed={cell.seed}"])


def _teacher(cell: Shrunk, data: Dataset, _work: Path, place: Path) -> None:
    train_model(data.path, place, config=_config(cell, "small"), device="cpu", resume=True)


def _alone(cell: Shrunk, data: Dataset, _work: Path, place: Path) -> None:
    config = _config(cell, "tiny", "model.decoder_layers=1")
    train_model(data.path, place, config=config, device="cpu", resume=True)


def _taught(cell: Shrunk, data: Dataset, work: Path, place: Path) -> None:
    teacher = cell._replace(system=TEACHER).checkpoint(work)
    config = _config(cell, "tiny", "model.decoder_layers=1")
    distill_model(data.path, place, teacher=teacher, config=config, device="cpu", resume=True)


def _pruned(cell: Shrunk, data: Dataset, work: Path, place: Path) -> None:
    teacher = cell._replace(system=TEACHER).checkpoint(work)
    epochs = max(1, min(RECOVERY, load_checkpoint(teacher).config.train.epochs // 2))
    prune_checkpoint(
        teacher, place, shares=SHARES, dataset=data.path, rounds=1, recover_epochs=epochs, force=False, seed=cell.seed
    )


def _anew(cell: Shrunk, data: Dataset, work: Path, place: Path) -> None:
    config = load_checkpoint(cell._replace(system=PRUNED).checkpoint(work)).config
    train = _config(cell, "small").train
    train_model(data.path, place, config=replace(config, train=train), device="cpu", resume=True)


_MAKERS: dict[str, Callable[[Shrunk, Dataset, Path, Path], None]] = {
    TEACHER: _teacher,
    ALONE: _alone,
    TAUGHT: _taught,
    PRUNED: _pruned,
    ANEW: _anew,
}
