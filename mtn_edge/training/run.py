"""A training run from a dataset to a checkpoint: fresh, resumed, or found finished."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lightning
import lightning.pytorch as pl
import torch
from safetensors.torch import save
from torch import nn

from mtn_edge.config import Config, check
from mtn_edge.console import progress as show_progress
from mtn_edge.console import say
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest
from mtn_edge.models.build import Network, build
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.board import open_board
from mtn_edge.training.checkpoint import write_checkpoint
from mtn_edge.training.faults import memory_faults
from mtn_edge.training.gate import learn_sources
from mtn_edge.training.inputs import Inputs, read_inputs
from mtn_edge.training.module import TrainingModule
from mtn_edge.training.objective import Clock, NextToken, Objective, require_objective
from mtn_edge.training.processes import Processes, find_processes
from mtn_edge.training.state import OBJECTIVE, Progress, TrainingState, load_state
from mtn_edge.training.stream import Stream
from mtn_edge.training.watch import Watch, stop_on_interrupt
from mtn_edge.training.workplace import TOKENIZER, Workplace

Device = Literal["auto", "cpu", "cuda"]


class Beginning(NamedTuple):
    """A network to go on training from, in place of random weights."""

    weights: dict[str, torch.Tensor]
    """Its tensors, as `config.model` describes them."""
    tokenizer: Tokenizer
    """Its tokenizer, in place of the dataset's."""
    parent: str
    """`manifest_sha256` of the checkpoint that it came from."""
    min_users: int | None
    """How many users issued each query that it has learnt; None when it does not say."""

    @property
    def digest(self) -> str:
        """What tells it from another one, for a run that is resumed."""
        return hashlib.sha256(save(dict(sorted(self.weights.items())))).hexdigest()


class _Parent(NamedTuple):
    """The checkpoint that a new one comes from."""

    digest: str | None
    """Its `manifest_sha256`; None: there is none."""
    min_users: int | None

    def users_with(self, own: int) -> int | None:
        """K of the new one, which has learnt from a dataset with K `own` as well; None when the parent's is unknown."""
        if self.digest is None:
            return own
        return None if self.min_users is None else min(own, self.min_users)


def train_model(
    dataset: Path,
    output: Path,
    *,
    config: Config,
    objective: Objective | None = None,
    beginning: Beginning | None = None,
    device: Device = "auto",
    devices: int = 1,
    tensorboard: Path | None = None,
    resume: bool = False,
    force: bool = False,
    start: Callable[[Network], None] | None = None,
) -> dict[str, Any]:
    """Trains a network and writes its checkpoint.

    While it runs, its state lives in a folder beside `output`. The weights of a run on the CPU that was killed and
    resumed, at whatever moment and however often, are bit for bit those of the unbroken run with as many threads.

    Args:
        dataset: a dataset folder.
        output: the checkpoint folder to be.
        config: the settings; `model.vocab_size` is set from the tokenizer.
        objective: what to teach it; None: the next token.
        beginning: a network to go on from, with one process; None begins with random weights.
        device: `auto` takes `cuda` when there is one.
        devices: processes on this machine. More than one are started by running the command of this process again
            (`sys.argv`), so that only `mtn-edge train` should ask for them.
        tensorboard: folder for TensorBoard's event files; None writes none.
        resume: go on with an interrupted run; nothing is done when the checkpoint stands already.
        force: replace an existing checkpoint, throw an interrupted run away.
        start: called on the new network before anything else: gives it other weights than random ones, or another
            arithmetic.

    Returns:
        `checkpoint` (its path), `status` (`trained` or `finished already`), and the manifest's `training`.

    Raises:
        UserError: something about the input, the settings, the output or the device is wrong, there is not enough
            memory, or training diverged.
        InterruptedRunError: Ctrl-C; the state is saved.
        SystemExit: in all processes of a run but the first one, when it is over.
    """
    clock = Clock(time.monotonic(), config.train.time_budget)
    objective = objective or NextToken()
    require_objective(config, objective)
    if config.train.keep_zeros and beginning is None and start is None:
        raise UserError(
            "`train.keep_zeros` is true, and a network that begins with random weights has no zeros to keep",
            code="bad-setting",
            hint="leave it out: `mtn-edge prune --sparsity` sets it",
        )
    accelerator = _accelerator(device)
    processes = find_processes(devices)
    if processes.rank > 0:
        if resume and Workplace(output).stands:
            raise SystemExit(0)
        return _follow(dataset, output, config, objective, processes, accelerator, clock)
    with Workplace(output) as workplace:
        data, config = _open(dataset, config, beginning)
        run = {
            "config": asdict(config),
            "dataset": data.manifest["manifest_sha256"],
            "processes": processes.world,
            "teacher": objective.teacher,
            "beginning": beginning.digest if beginning is not None else None,
        }
        if resume and workplace.is_finished(run, force=force):
            training = read_manifest(output, "checkpoint")["training"]
            return {"checkpoint": str(output), "status": "finished already", **training}
        state = workplace.find(run, dataset, resume=resume, force=force)
        if resume:
            found = "nothing to resume: training starts anew"
            say(found if state is None else f"resuming at step {state.progress.step:,}")
        rewrite = partial(objective.rewrite, clock=clock)
        inputs = read_inputs(data, config, world=processes.world, rewrite=rewrite)
        model = _new_model(config)
        if start is not None:
            start(model)
        if state is None or not state.progress.ended or processes.external:
            loss = objective.make_loss(inputs, accelerator, clock)
            if state is None:
                if beginning is not None:
                    model.load_state_dict(beginning.weights)
                workplace.make(data.tokenizer)
                state = TrainingState(run=run, progress=Progress(), tensors={})
            else:
                state.run = run
                model.load_state_dict(state.part("model"))
                loss.load_state_dict(state.part(OBJECTIVE))
            with open_board(tensorboard, step=state.progress.step) as show:
                _fit(
                    model, loss, state, inputs, workplace, config, processes, accelerator, began=clock.began, show=show
                )
        if beginning is not None:
            parent = _Parent(beginning.parent, beginning.min_users)
        else:
            parent = _Parent(objective.teacher, objective.min_users)
        return _finish(model, objective, inputs, workplace, data, config, parent=parent, force=force)


def _follow(
    dataset: Path,
    output: Path,
    config: Config,
    objective: Objective,
    processes: Processes,
    accelerator: str,
    clock: Clock,
) -> dict[str, Any]:
    """The part of a process that is not the first one: it takes steps, and leaves no trace."""
    data, config = _open(dataset, config, None)
    state = TrainingState(run={}, progress=Progress(), tensors={})
    rewrite = partial(objective.rewrite, clock=clock)
    inputs = read_inputs(data, config, world=processes.world, rewrite=rewrite)
    model = _new_model(config)
    loss = objective.make_loss(inputs, accelerator, clock)
    place = Workplace(output)
    _fit(model, loss, state, inputs, place, config, processes, accelerator, began=clock.began, show=lambda _: None)
    raise AssertionError  # the fit ends the process


def _open(dataset: Path, config: Config, beginning: Beginning | None) -> tuple[Dataset, Config]:
    data = Dataset.open(dataset)
    if beginning is not None:
        data = replace(data, tokenizer=beginning.tokenizer)
    return data, check(replace(config, model=replace(config.model, vocab_size=len(data.tokenizer))))


def _new_model(config: Config) -> Network:
    torch.manual_seed(config.train.seed)
    return build(config.model)


def _fit(
    model: Network,
    loss: nn.Module,
    state: TrainingState,
    inputs: Inputs,
    workplace: Workplace,
    config: Config,
    processes: Processes,
    accelerator: str,
    *,
    began: float,
    show: Callable[[dict[str, Any]], None],
) -> None:
    progress, train = state.progress, config.train
    stream = Stream(
        inputs.train,
        progress,
        seed=train.seed,
        epochs=train.epochs,
        accumulate=train.accumulate,
        rank=processes.rank,
        world=processes.world,
    )
    with _quiet(), _bar(inputs.queries * train.epochs, progress, processes) as report:
        watch = Watch(
            state,
            workplace,
            valid=inputs.valid,
            ranking=inputs.ranking,
            steps_per_epoch=len(inputs.train),
            processes=processes,
            began=began,
            report=report,
            show=show,
        )
        bf16 = train.precision == "bf16" or (train.precision == "auto" and accelerator == "cuda")
        trainer = pl.Trainer(
            # Nobody in a batch may have an earlier session.
            **processes.trainer_options(accelerator, some_unused=config.model.levels == 3),
            precision="bf16-mixed" if bf16 else "32-true",
            max_epochs=1,  # the stream goes through all epochs, so that a resumed run may start inside one
            accumulate_grad_batches=train.accumulate,
            callbacks=[watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        module = TrainingModule(
            model, loss, train, total_steps=inputs.total_steps, progress=progress, world=processes.world
        )
        with processes.joined(trainer), memory_faults(progress, train), stop_on_interrupt(watch):
            trainer.fit(module, train_dataloaders=stream)


@contextmanager
def _bar(queries: int, progress: Progress, processes: Processes) -> Iterator[Callable[[int, str], None]]:
    """Progress on the terminal, of the first process."""
    if processes.rank > 0:
        yield lambda *_: None
        return
    with show_progress("training", queries, "queries", start=progress.queries) as report:
        yield report


def _finish(
    model: Network,
    objective: Objective,
    inputs: Inputs,
    workplace: Workplace,
    data: Dataset,
    config: Config,
    *,
    parent: _Parent,
    force: bool,
) -> dict[str, Any]:
    """Makes the checkpoint from the last saved state."""
    state = load_state(workplace.folder)
    assert state is not None  # every fit ends with a validation, which saves
    progress = state.progress
    last = progress.rows[-1]
    training = {
        "steps": progress.step,
        "epochs": last["epoch"],
        "best_step": progress.best_step,
        "valid_loss": progress.best_loss,
        "train_loss": last["train_loss"],
        "stopped_early": progress.step < inputs.total_steps,
        "queries": progress.queries,
        "seconds": round(progress.seconds, 1),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    if config.train.stop_on == "mrr":
        training["valid_mrr"] = progress.best_score[0]
    model.load_state_dict(state.part("best"))
    training |= objective.describe(model.cpu().eval(), inputs)
    sources = None
    if config.model.fusion != "none":
        say("fitting the gate of the fusion on the validation split")
        sources, training["fusion"] = learn_sources(model, data, config)
    lineage = {
        "dataset": data.manifest["manifest_sha256"],
        "min_users": parent.users_with(data.manifest["settings"]["min_users"]),
        "parent": parent.digest,
        "seed": config.train.seed,
        "versions": {"torch": torch.__version__, "lightning": lightning.__version__},
    }
    write_checkpoint(
        workplace.new_checkpoint(),
        config=config,
        tokenizer=workplace.folder / TOKENIZER,
        state=state,
        sources=sources,
        training=training,
        lineage=lineage,
    )
    workplace.finish(force=force)
    return {"checkpoint": str(workplace.output), "status": "trained", **training}


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
    loggers = [logging.getLogger(f"lightning.{name}") for name in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            # torch.compile looks at the gradients of tensors that have none.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
