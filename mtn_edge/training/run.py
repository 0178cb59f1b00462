"""A training run from a dataset to a checkpoint: fresh, resumed, or found finished."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import lightning
import lightning.pytorch as pl
import numpy as np
import torch

from mtn_edge.config import Config, TrainConfig, check
from mtn_edge.console import progress as show_progress
from mtn_edge.console import say
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest
from mtn_edge.models.build import Network, build
from mtn_edge.training.checkpoint import TOKENIZER, write_checkpoint
from mtn_edge.training.module import TrainingModule
from mtn_edge.training.state import Progress, TrainingState, load_state
from mtn_edge.training.watch import Watch, stop_on_interrupt
from mtn_edge.training.workplace import Workplace

Device = Literal["auto", "cpu", "cuda"]


def train_model(
    dataset: Path,
    output: Path,
    *,
    config: Config,
    device: Device = "auto",
    resume: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Trains a network and writes its checkpoint.

    While it runs, its state lives in a folder beside `output`. The weights of a run on the CPU that was killed and
    resumed, at whatever moment and however often, are bit for bit those of the unbroken run with as many threads.

    Args:
        dataset: a dataset folder.
        output: the checkpoint folder to be.
        config: the settings; `model.vocab_size` is set from the dataset's tokenizer.
        device: `cuda` computes in bfloat16 where that is safe; `auto` takes it when there is one.
        resume: go on with an interrupted run; nothing is done when the checkpoint stands already.
        force: replace an existing checkpoint, throw an interrupted run away.

    Returns:
        `checkpoint` (its path), `status` (`trained` or `finished already`), and the manifest's `training`.

    Raises:
        UserError: something about the input, the settings, the output or the device is wrong, or training diverged.
        InterruptedRunError: Ctrl-C; the state is saved.
    """
    workplace = Workplace(output)
    if resume and workplace.is_finished(force=force):
        training = read_manifest(output, "checkpoint")["training"]
        return {"checkpoint": str(output), "status": "finished already", **training}
    accelerator = _accelerator(device)
    data = Dataset.open(dataset)
    config = check(replace(config, model=replace(config.model, vocab_size=len(data.tokenizer))))
    run = {"config": asdict(config), "dataset": data.manifest["manifest_sha256"]}
    state = workplace.find(run, resume=resume, force=force)
    if resume:
        say("nothing to resume: training starts anew" if state is None else f"resuming at step {state.progress.step:,}")
    split = _Split.of(data, config)
    torch.manual_seed(config.train.seed)
    model = build(config.model)
    if state is None:
        workplace.make()
        state = TrainingState(run=run, progress=Progress(), tensors={})
    else:
        model.load_state_dict(state.part("model"))
    if state.progress.step < split.total_steps and state.progress.misses < config.train.patience:
        _fit(model, state, split, workplace, config.train, accelerator)
    return _finish(model, split, workplace, data, config, force=force)


@dataclass(frozen=True)
class _Split:
    """What a run learns from and is measured on."""

    train: Batches
    valid: list[Batch]
    queries: int
    """Queries of the training split."""
    total_steps: int

    @classmethod
    def of(cls, data: Dataset, config: Config) -> _Split:
        sizes = {"max_tokens": config.model.max_tokens, "max_queries": config.model.max_queries}
        splits: dict[str, TokenizedSessions] = {}
        for name in ("train", "valid"):
            sessions = data.sessions(name)
            if name == "valid":
                sessions = _sample(sessions, config.train.valid_queries)
            splits[name] = TokenizedSessions(sessions, data.tokenizer.encode_batch)
            if not len(splits[name]):
                raise UserError(
                    f"`{data.path}` has no sessions in its {name} split",
                    code="no-sessions",
                    hint="prepare it from a larger log, or with another --split or a lower --min-users",
                )
        train = Batches(splits["train"], **sizes, batch_queries=config.train.batch_queries)
        valid = Batches(splits["valid"], **sizes, batch_queries=max(256, config.train.batch_queries))
        return cls(
            train=train,
            valid=list(valid.stream(0, 0)),
            queries=splits["train"].queries,
            total_steps=len(train) * config.train.epochs,
        )


class _Stream:
    """The batches of all epochs from a step on: the order depends on the seed and the step alone."""

    def __init__(self, batches: Batches, *, seed: int, step: int, epochs: int) -> None:
        self._batches, self._seed, self._step, self._epochs = batches, seed, step, epochs

    def __len__(self) -> int:
        return len(self._batches) * self._epochs - self._step

    def __iter__(self) -> Iterator[Batch]:
        first, position = divmod(self._step, len(self._batches))
        for epoch in range(first, self._epochs):
            yield from self._batches.stream(self._seed, epoch, position if epoch == first else 0)


def _fit(
    model: Network, state: TrainingState, split: _Split, workplace: Workplace, train: TrainConfig, accelerator: str
) -> None:
    stream = _Stream(split.train, seed=train.seed, step=state.progress.step, epochs=train.epochs)
    queries = split.queries * train.epochs
    with _quiet(), show_progress("training", queries, "queries", start=state.progress.queries) as report:
        watch = Watch(state, workplace, valid=split.valid, steps_per_epoch=len(split.train), report=report)
        trainer = pl.Trainer(
            accelerator=accelerator,
            devices=1,
            precision="bf16-mixed" if accelerator == "cuda" else "32-true",
            max_epochs=1,  # the stream goes through all epochs, so that a resumed run may start inside one
            gradient_clip_val=train.clip_norm,
            callbacks=[watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        module = TrainingModule(model, train, total_steps=split.total_steps, progress=state.progress)
        with stop_on_interrupt(watch):
            trainer.fit(module, train_dataloaders=stream)


def _finish(
    model: Network, split: _Split, workplace: Workplace, data: Dataset, config: Config, *, force: bool
) -> dict[str, Any]:
    """Makes the checkpoint from the last saved state."""
    state = load_state(workplace.folder)
    assert state is not None  # every run ends with a validation, which saves
    progress = state.progress
    last = progress.rows[-1]
    training = {
        "steps": progress.step,
        "epochs": last["epoch"],
        "best_step": progress.best_step,
        "valid_loss": progress.best_loss,
        "train_loss": last["train_loss"],
        "stopped_early": progress.step < split.total_steps,
        "queries": progress.queries,
        "seconds": round(progress.seconds, 1),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    lineage = {
        "dataset": data.manifest["manifest_sha256"],
        "parent": None,
        "seed": config.train.seed,
        "versions": {"torch": torch.__version__, "lightning": lightning.__version__},
    }
    write_checkpoint(
        workplace.new_checkpoint(),
        config=config,
        tokenizer=data.path / TOKENIZER,
        state=state,
        training=training,
        lineage=lineage,
    )
    workplace.finish(force=force)
    return {"checkpoint": str(workplace.output), "status": "trained", **training}


def _sample(sessions: list[list[str]], queries: int) -> list[list[str]]:
    """Whole sessions, always the same ones, until they hold `queries` queries."""
    order = np.random.default_rng(0).permutation(len(sessions))
    reached = np.cumsum([len(sessions[n]) for n in order])
    return [sessions[n] for n in order[: int(np.searchsorted(reached, queries)) + 1]]


def _accelerator(device: Device) -> str:
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        raise UserError(
            "`--device cuda` was given, and PyTorch finds no CUDA device here",
            code="no-cuda",
            hint="take --device cpu or auto",
        )
    return "cuda"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Lightning's banners, tips and warnings about loaders and loggers to itself."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        logger.setLevel(level)
