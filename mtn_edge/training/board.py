"""The lines of `metrics.jsonl` as curves in TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtn_edge.errors import missing_extra


@contextmanager
def open_board(folder: Path | None, *, step: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields a function to call with each new line.

    Args:
        folder: where the event files go; None shows nothing.
        step: the step that the run starts after: curves of an earlier part that reach further are cut there.

    Raises:
        UserError: the package `tensorboard` is not installed.
    """
    if folder is None:
        yield lambda _: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_extra("tensorboard", "train", "`--tensorboard`") from error
    writer = SummaryWriter(str(folder), purge_step=step + 1)

    def show(row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name != "step":
                writer.add_scalar(name, value, row["step"])
        writer.flush()

    try:
        yield show
    finally:
        writer.close()
