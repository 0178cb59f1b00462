"""Between the steps: validation, the best weights, stopping, saving, progress, Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from mtn_edge.data.batches import Batch
from mtn_edge.tokenizer import PAD
from mtn_edge.training.average import Average
from mtn_edge.training.faults import diverged, interrupted_run
from mtn_edge.training.module import TrainingModule, learning_rate, mean_loss
from mtn_edge.training.processes import Processes, sum_over_processes
from mtn_edge.training.ranking import RankingSample
from mtn_edge.training.state import OBJECTIVE, TrainingState, save_state
from mtn_edge.training.stream import Micro
from mtn_edge.training.workplace import Workplace

SAVE_SECONDS = 60.0
"""Training time after which the state is saved, when no validation has done so."""
SPARE_SECONDS = 1.0
"""What the time budget leaves for the end of a run, beside the last validation."""


class Watch(pl.Callback):
    """Validates, saves and stops a run; of several processes the first one does so, and the others follow.

    Args:
        state: where the run starts: a saved one, or a new one without tensors; the first process's counts.
        workplace: where to save.
        valid: the batches of the validation.
        ranking: measures MRR@10; None where the loss decides.
        steps_per_epoch: steps of an epoch.
        processes: who takes part.
        began: the clock (`time.monotonic`) when the command began.
        report: shows progress: queries done and a short note.
        show: takes each new line of `metrics.jsonl`.
    """

    def __init__(
        self,
        state: TrainingState,
        workplace: Workplace,
        *,
        valid: Sequence[Batch],
        ranking: RankingSample | None,
        steps_per_epoch: int,
        processes: Processes,
        began: float,
        report: Callable[[int, str], None],
        show: Callable[[dict[str, Any]], None],
    ) -> None:
        self.progress = state.progress
        self.interrupted = False
        self._state = state
        self._workplace = workplace
        self._valid, self._ranking = valid, ranking
        self._steps_per_epoch = steps_per_epoch
        self._processes = processes
        self._report, self._show = report, show
        self._best = state.part("best")
        self._average: Average | None = None
        self._loss: Tensor | float = state.progress.train_loss
        self._step_loss: Tensor | float = 0.0
        self._began = began - state.progress.seconds
        self._clock = self._saved = self._measured = time.monotonic()
        self._measured_queries = state.progress.queries
        self._validation_seconds: float | None = None

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:  # noqa: ARG002
        """Gives every process the state of the first one; Lightning does so for the weights."""
        if self._processes.world > 1:
            found = trainer.strategy.broadcast((vars(self.progress), self._state.part("optimizer")))
            vars(self.progress).update(found[0])
            self._state.tensors |= {f"optimizer.{name}": tensor for name, tensor in found[1].items()}

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Puts the saved optimizer and random generators in place; the weights are there already."""
        optimizer = trainer.optimizers[0]
        named = _module(module).learning()
        for key, value in self._state.part("optimizer").items():
            field, _, name = key.partition(".")
            optimizer.state[named[name]][field] = value.to(named[name].device)
        self._restore_random(module)
        decay = _module(module).train_config.average
        if decay:
            self._average = Average(_module(module).model, decay, self._state.part("average"))
        self._state.tensors = {}
        if self._processes.rank == 0:
            self._workplace.write_metrics(self.progress.rows)
        self._clock = self._saved = self._measured = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Micro, batch_idx: int
    ) -> None:
        """Counts the step, when it is one, and does what is due after it."""
        settings = _module(module).train_config
        self._step_loss = self._step_loss + outputs["loss"].double()  # divided by `accumulate` already
        if (batch_idx + 1) % settings.accumulate:
            return
        progress, step = self.progress, self.progress.step + 1
        progress.step = step
        progress.queries += batch.queries
        progress.train_tokens += batch.tokens
        stop, late = self._share_step(module, settings.time_budget)
        self._loss, self._step_loss = self._loss + self._step_loss * batch.tokens, 0.0
        if self._average is not None:
            self._average.update(step)
        if late or step % settings.validate_every == 0 or step == _module(module).total_steps:
            self._validate_and_save(trainer, _module(module), late=late)
        elif stop or (self._processes.rank == 0 and time.monotonic() - self._saved >= SAVE_SECONDS):
            self._save(trainer, _module(module))
        if stop:
            raise interrupted_run(f"at step {step:,}, and its state is saved")
        self._report(progress.queries, self._note())

    def _share_step(self, module: pl.LightningModule, budget: float) -> tuple[bool, bool]:
        """Takes the mean loss of all processes; whether one was interrupted, and whether the first one's time is up."""
        late = self._processes.rank == 0 and budget > 0 and self._is_late(budget)
        if self._processes.world == 1:
            return self.interrupted, late
        mine = [float(self._step_loss), float(self.interrupted), float(late)]
        loss, stop, over = sum_over_processes(mine, module.device)
        self._step_loss = loss / self._processes.world
        return stop > 0, over > 0

    def _is_late(self, budget: float) -> bool:
        """Whether there is just enough time left to validate, save and end."""
        now = time.monotonic()
        needed = self._validation_seconds
        if needed is None:  # to score a query takes less time than to learn from it
            rate = (now - self._clock) / max(1, self.progress.queries - self._measured_queries)
            needed = rate * sum(int((batch.target_in[:, :, 0] != PAD).sum()) for batch in self._valid)
        return now - self._began + needed + SPARE_SECONDS >= budget

    def _validate_and_save(self, trainer: pl.Trainer, module: TrainingModule, *, late: bool) -> None:
        """What the first process finds decides for all."""
        progress, settings = self.progress, module.train_config
        if self._processes.rank == 0:
            began = time.monotonic()
            self._validate(module)
            self._validation_seconds = time.monotonic() - began
            progress.ended = late or progress.step == module.total_steps or progress.misses >= settings.patience
            self._save(trainer, module)
        if self._processes.world > 1:
            progress.ended = trainer.strategy.broadcast(progress.ended)
        trainer.should_stop = progress.ended

    def _validate(self, module: TrainingModule) -> None:
        progress, train_loss = self.progress, self._mean_train_loss()
        now = time.monotonic()
        rate = (progress.queries - self._measured_queries) / (now - self._measured)
        with self._average.in_place() if self._average is not None else nullcontext():
            valid_loss = mean_loss(module.model, self._valid)
            _require_finite(valid_loss, progress.step)
            mrr = {"valid_mrr": self._ranking.mrr(module.model)} if self._ranking is not None else {}
            result = [*mrr.values(), -valid_loss]
            if result > progress.best_score:
                progress.best_score, progress.best_loss = result, valid_loss
                progress.best_step, progress.misses = progress.step, 0
                weights = module.model.state_dict()
                self._best = {name: value.detach().cpu().clone() for name, value in weights.items()}
            else:
                progress.misses += 1
        self._tick()
        row = {
            "step": progress.step,
            "epoch": round(progress.step / self._steps_per_epoch, 3),
            "train_loss": train_loss,
            "valid_loss": valid_loss,
            **mrr,
            "lr": learning_rate(progress.step - 1, module.train_config, module.total_steps),
            "queries_per_second": round(rate, 1),
            "seconds": round(progress.seconds, 1),
        }
        progress.rows.append(row)
        self._workplace.write_metrics(progress.rows)
        self._show(row)
        self._loss, progress.train_tokens = 0.0, 0
        self._measured, self._measured_queries = time.monotonic(), progress.queries

    def _save(self, trainer: pl.Trainer, module: TrainingModule) -> None:
        """Saves the state between this step and the next; a state that is not finite is never saved."""
        if self._processes.rank > 0:
            return
        if self.progress.train_tokens:
            self._mean_train_loss()
        self.progress.train_loss = float(self._loss)
        self._tick()
        tensors = {f"model.{name}": value for name, value in module.model.state_dict().items()}
        tensors |= {f"{OBJECTIVE}.{name}": value for name, value in module.objective.state_dict().items()}
        if self._average is not None:
            tensors |= {f"average.{name}": value for name, value in self._average.tensors.items()}
        if not all(bool(value.isfinite().all()) for value in tensors.values()):
            raise diverged(self.progress.step)
        tensors |= {f"best.{name}": value for name, value in self._best.items()}
        for name, parameter in module.learning().items():
            for field, value in trainer.optimizers[0].state[parameter].items():
                tensors[f"optimizer.{field}.{name}"] = value
        tensors["random.cpu"] = torch.get_rng_state()
        if module.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(module.device)
        save_state(self._workplace.folder, TrainingState(run=self._state.run, progress=self.progress, tensors=tensors))
        self._saved = time.monotonic()

    def _restore_random(self, module: pl.LightningModule) -> None:
        """The generators as they were saved; those of the other processes start from their number and the step."""
        random = self._state.part("random")
        if self._processes.rank > 0:
            seed = (_module(module).train_config.seed, self._processes.rank, self.progress.step)
            torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        if "cpu" in random:
            torch.set_rng_state(random["cpu"])
        if "cuda" in random and module.device.type == "cuda":
            torch.cuda.set_rng_state(random["cuda"], module.device)

    def _mean_train_loss(self) -> float:
        mean = float(self._loss) / self.progress.train_tokens
        _require_finite(mean, self.progress.step)
        return mean

    def _tick(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now

    def _note(self) -> str:
        epoch = f"epoch {1 + (self.progress.step - 1) // self._steps_per_epoch}"
        if not self.progress.rows:
            return epoch
        return f"{epoch}, valid {self.progress.rows[-1]['valid_loss']:.3f} (best {self.progress.best_loss:.3f})"


@contextmanager
def stop_on_interrupt(watch: Watch) -> Iterator[None]:
    """Ctrl-C ends the run after the step it came in; a second one ends it at once, with the last saved state.

    So does SIGTERM, by which a job is told to make room.
    """

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if watch.interrupted:
            raise interrupted_run("before its state was saved again")
        watch.interrupted = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    except SIGTERMException as error:  # Lightning has waited for the end of the step
        raise interrupted_run("before its state was saved again") from error
    finally:
        signal.signal(signal.SIGINT, before)


def _require_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise diverged(step)


def _module(module: pl.LightningModule) -> TrainingModule:
    assert isinstance(module, TrainingModule)
    return module
