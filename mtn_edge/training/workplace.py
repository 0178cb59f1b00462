"""The folder beside the output in which a run lives until its checkpoint is whole.

`.NAME.training/` holds the training state and `metrics.jsonl` while the run goes on, and `finished/` while the
checkpoint is put together. The state is removed when `finished/` is whole, and the folder when that has become NAME:
whatever moment a kill comes at, what is left says what is still to be done.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from mtn_edge import folders
from mtn_edge.errors import UserError
from mtn_edge.training.state import PARTIAL, STATE, TrainingState, load_state

METRICS = "metrics.jsonl"
_FINISHED = "finished"
_OURS = {STATE, PARTIAL, METRICS, _FINISHED}


class Workplace:
    """Where the run for one output lives.

    Args:
        output: the checkpoint to be.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.parent / f".{output.name}.training"

    def find(self, run: dict[str, Any], *, resume: bool, force: bool) -> TrainingState | None:
        """Looks for an interrupted run, before anything is written or removed.

        Args:
            run: what is asked for now.
            resume: go on with an interrupted run.
            force: an interrupted run may be thrown away (without `resume`), an existing output replaced.

        Returns:
            The state to go on from; None for a new run.

        Raises:
            UserError: the output is taken, an interrupted run lies there and neither flag says what to do with it, or
                it was asked for something else.
        """
        folders.refuse_overwrite(self.output, force=force)
        state = load_state(self.folder) if resume else None
        if state is not None:
            _require_same(state.run, run)
            return state
        if not resume and not force and (self._has_state or self._is_whole):
            raise UserError(
                f"an interrupted run for `{self.output}` lies in `{self.folder}`",
                code="interrupted-run",
                hint="go on with --resume, or throw it away with --force",
            )
        return None

    def make(self) -> None:
        """Makes the folder for a new run, in place of what an earlier one left."""
        self._clear()
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"`{self.folder}` cannot be written ({error.strerror})",
                code="not-writable",
                hint="choose another folder with -o",
            ) from error

    def is_finished(self, *, force: bool) -> bool:
        """Whether the checkpoint stands; gives it its name first when a kill came just before that.

        Raises:
            UserError: the output is something else, or may not be replaced.
        """
        if self._has_state:
            return False
        if self._is_whole:
            self._publish(force=force)
        if not (self.output / folders.MANIFEST).is_file():
            return False
        folders.read_manifest(self.output, "checkpoint")
        self._clear()
        return True

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Rewrites `metrics.jsonl`, for people who watch a run."""
        write_rows(self.folder / METRICS, rows)

    def new_checkpoint(self) -> Path:
        """An empty folder to put the checkpoint together in."""
        finished = self.folder / _FINISHED
        shutil.rmtree(finished, ignore_errors=True)
        finished.mkdir()
        return finished

    def finish(self, *, force: bool) -> None:
        """Publishes the checkpoint and removes the workplace."""
        folders.refuse_overwrite(self.output, force=force)
        (self.folder / STATE).unlink()
        self._publish(force=force)
        self._clear()

    @property
    def _has_state(self) -> bool:
        return (self.folder / STATE).exists()

    @property
    def _is_whole(self) -> bool:
        return not self._has_state and (self.folder / _FINISHED / folders.MANIFEST).is_file()

    def _publish(self, *, force: bool) -> None:
        folders.publish(self.folder / _FINISHED, self.output, force=force)

    def _clear(self) -> None:
        if not self.folder.exists():
            return
        strangers = sorted(entry.name for entry in self.folder.iterdir() if entry.name not in _OURS)
        if strangers:
            raise UserError(
                f"`{self.folder}` holds `{strangers[0]}`, which mtn-edge did not write, so it is not removed",
                code="not-ours",
                hint="choose another name with -o, or remove it yourself",
            )
        shutil.rmtree(self.folder)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON object a line."""
    path.write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), encoding="utf-8")


def _require_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    if before["dataset"] != now["dataset"]:
        raise UserError(
            "the interrupted run was training on another dataset",
            code="other-run",
            hint="name that dataset, or start anew with --force",
        )
    for section, settings in now["config"].items():
        for key, value in settings.items():
            was = before["config"][section].get(key)
            if was != value:
                raise UserError(
                    f"`{section}.{key}` was {was!r} in the interrupted run and is {value!r} now",
                    code="other-run",
                    hint="give the same settings, or start anew with --force",
                )
