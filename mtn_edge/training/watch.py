"""Between the steps: validation, the best weights, early stopping, saving, progress, stopping on Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.errors import InterruptedRunError, UserError
from mtn_edge.tokenizer import PAD
from mtn_edge.training.module import TrainingModule, learning_rate, mean_loss
from mtn_edge.training.state import TrainingState, save_state
from mtn_edge.training.workplace import Workplace

SAVE_SECONDS = 60.0
"""Training time after which the state is saved, when no validation has done so."""


class Watch(pl.Callback):
    """Validates, saves and stops a run.

    Args:
        state: where the run starts: a saved one, or a new one without tensors.
        workplace: where to save.
        valid: the batches of the validation.
        steps_per_epoch: batches of an epoch.
        report: shows progress: queries done and a short note.
    """

    def __init__(
        self,
        state: TrainingState,
        workplace: Workplace,
        *,
        valid: Sequence[Batch],
        steps_per_epoch: int,
        report: Callable[[int, str], None],
    ) -> None:
        self.progress = state.progress
        self.interrupted = False
        self._state = state
        self._workplace = workplace
        self._valid = valid
        self._steps_per_epoch = steps_per_epoch
        self._report = report
        self._best = state.part("best")
        self._loss: Tensor | float = state.progress.train_loss
        self._clock = self._saved = self._measured = time.monotonic()
        self._measured_queries = state.progress.queries

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Puts the saved optimizer and random generators in place; the weights are there already."""
        optimizer = trainer.optimizers[0]
        named = dict(_module(module).model.named_parameters())
        for key, value in self._state.part("optimizer").items():
            field, _, name = key.partition(".")
            optimizer.state[named[name]][field] = value.to(named[name].device)
        random = self._state.part("random")
        if "cpu" in random:
            torch.set_rng_state(random["cpu"])
        if "cuda" in random and module.device.type == "cuda":
            torch.cuda.set_rng_state(random["cuda"], module.device)
        self._state.tensors = {}
        self._workplace.write_metrics(self.progress.rows)
        self._clock = self._saved = self._measured = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Counts the step and does what is due after it."""
        progress, step = self.progress, self.progress.step + 1
        tokens = int((batch.target_out != IGNORE).sum())
        progress.step = step
        progress.queries += int((batch.target_in[:, :, 0] != PAD).sum())
        progress.train_tokens += tokens
        self._loss = self._loss + outputs["loss"].double() * tokens
        settings = _module(module).train_config
        if step % settings.validate_every == 0 or step == _module(module).total_steps:
            self._validate(_module(module))
            self._save(trainer, _module(module))
            trainer.should_stop = progress.misses >= settings.patience
        elif self.interrupted or time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save(trainer, _module(module))
        if self.interrupted:
            raise interrupted_run(f"at step {step:,}, and its state is saved")
        self._report(progress.queries, self._note())

    def _validate(self, module: TrainingModule) -> None:
        progress, train_loss = self.progress, self._mean_train_loss()
        now = time.monotonic()
        rate = (progress.queries - self._measured_queries) / (now - self._measured)
        valid_loss = mean_loss(module.model, self._valid)
        _require_finite(valid_loss, progress.step)
        if progress.best_loss is None or valid_loss < progress.best_loss:
            progress.best_loss, progress.best_step, progress.misses = valid_loss, progress.step, 0
            self._best = {name: value.detach().cpu().clone() for name, value in module.model.state_dict().items()}
        else:
            progress.misses += 1
        self._tick()
        progress.rows.append(
            {
                "step": progress.step,
                "epoch": round(progress.step / self._steps_per_epoch, 3),
                "train_loss": train_loss,
                "valid_loss": valid_loss,
                "lr": learning_rate(progress.step - 1, module.train_config, module.total_steps),
                "queries_per_second": round(rate, 1),
                "seconds": round(progress.seconds, 1),
            }
        )
        self._workplace.write_metrics(progress.rows)
        self._loss, progress.train_tokens = 0.0, 0
        self._measured, self._measured_queries = time.monotonic(), progress.queries

    def _save(self, trainer: pl.Trainer, module: TrainingModule) -> None:
        """Saves the state between this step and the next; a state that is not finite is never saved."""
        if self.progress.train_tokens:
            self._mean_train_loss()
        self.progress.train_loss = float(self._loss)
        self._tick()
        tensors = {f"model.{name}": value for name, value in module.model.state_dict().items()}
        if not all(bool(value.isfinite().all()) for value in tensors.values()):
            raise diverged(self.progress.step)
        tensors |= {f"best.{name}": value for name, value in self._best.items()}
        for name, parameter in module.model.named_parameters():
            for field, value in trainer.optimizers[0].state[parameter].items():
                tensors[f"optimizer.{field}.{name}"] = value
        tensors["random.cpu"] = torch.get_rng_state()
        if module.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(module.device)
        save_state(self._workplace.folder, TrainingState(run=self._state.run, progress=self.progress, tensors=tensors))
        self._saved = time.monotonic()

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
    """Ctrl-C ends the run after the step it came in; a second one ends it at once, with the last saved state."""

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
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted_run(where: str) -> InterruptedRunError:
    """The sentence for Ctrl-C."""
    return InterruptedRunError(
        f"training was interrupted {where}", code="interrupted", hint="go on with the same command and --resume"
    )


def diverged(step: int) -> UserError:
    """The sentence for a loss or weights that are no numbers any more."""
    return UserError(
        f"training diverged: the loss or a weight is not a finite number at step {step:,}; the last good state is kept",
        code="diverged",
        hint="lower `train.learning_rate` and start anew with --force",
    )


def _require_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise diverged(step)


def _module(module: pl.LightningModule) -> TrainingModule:
    assert isinstance(module, TrainingModule)
    return module
