"""What may go wrong in a run, each in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mtn_edge.config import TrainConfig
from mtn_edge.errors import InterruptedRunError, UserError
from mtn_edge.training.state import Progress


def interrupted_run(where: str) -> InterruptedRunError:
    """The sentence for Ctrl-C."""
    return InterruptedRunError(
        f"training was interrupted {where}", code="interrupted", hint="go on with the same command and --resume"
    )


def diverged(step: int) -> UserError:
    """The sentence for a loss, gradients or weights that are no numbers any more."""
    return UserError(
        f"training diverged: the loss or a weight is not a finite number at step {step:,}; the last good state is kept",
        code="diverged",
        hint="lower `train.learning_rate` and go on with --resume, or start anew with --force",
    )


@contextmanager
def memory_faults(progress: Progress, train: TrainConfig) -> Iterator[None]:
    """Turns a lack of memory into its sentence; the state on the disk stays as it was last saved.

    Raises:
        UserError: there was not enough memory, on the GPU or elsewhere.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if type(error) is RuntimeError and "DefaultCPUAllocator" not in str(error):
            raise
        # The same queries make a step, so the run stays what it is.
        hint = "halve `train.batch_queries`, double `train.accumulate` and go on with --resume"
        if train.batch_tokens:
            hint = "lower `train.batch_tokens` and start anew with --force"
        raise UserError(
            f"there was not enough memory for step {progress.step + 1:,}; the last saved state is kept",
            code="out-of-memory",
            hint=hint,
        ) from error
