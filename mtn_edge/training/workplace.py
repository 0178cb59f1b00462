"""The folder beside the output in which a run lives until its checkpoint is whole.

`.NAME.training/` holds the training state, `metrics.jsonl` and the tokenizer while the run goes on, and `finished/`
while the checkpoint is put together. The state is removed when `finished/` is whole, and the folder when that has
become NAME: whatever moment a kill comes at, what is left says what is still to be done. A locked file keeps a second
run out.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from mtn_edge import folders
from mtn_edge.errors import UserError
from mtn_edge.locks import take_lock
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.changes import require_same
from mtn_edge.training.state import PARTIAL, STATE, STATE_FOLDER, TrainingState, load_state

METRICS = "metrics.jsonl"
TOKENIZER = "tokenizer.json"
LOCK = "lock"
_FINISHED = "finished"
_OURS = {STATE, PARTIAL, METRICS, TOKENIZER, LOCK, _FINISHED}


class Workplace:
    """Where the run for one output lives; as a context, nobody else's while it lasts.

    Args:
        output: the checkpoint to be.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.parent / f".{output.name}.training"
        self._lock: int | None = None

    def __enter__(self) -> Workplace:
        """Takes the lock where an earlier run left a folder.

        Raises:
            UserError: another run holds it.
        """
        if self.folder.is_dir():
            self._take_lock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets go of the lock; the end of the process does the same."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def find(self, run: dict[str, Any], dataset: Path, *, resume: bool, force: bool) -> TrainingState | None:
        """Looks for an interrupted run, before anything is written or removed.

        Args:
            run: what is asked for now.
            dataset: what is learnt from, which the output never replaces.
            resume: go on with an interrupted run.
            force: an interrupted run may be thrown away (without `resume`), an existing output replaced.

        Returns:
            The state to go on from; None for a new run.

        Raises:
            UserError: the output is taken, an interrupted run lies there and neither flag says what to do with it, or
                it was asked for something else.
        """
        folders.refuse_overwrite(self.output, force=force, inputs=(dataset,))
        state = load_state(self.folder) if resume else None
        if state is not None:
            require_same(state.run, run)
            return state
        if not resume and not force and (self._has_state or self._is_whole):
            raise UserError(
                f"an interrupted run for `{self.output}` lies in `{self.folder}`",
                code="interrupted-run",
                hint="go on with --resume, or throw it away with --force",
            )
        return None

    def make(self, tokenizer: Tokenizer) -> None:
        """Makes the folder for a new run, in place of what an earlier one left.

        Args:
            tokenizer: the dataset's; the run keeps it, whatever becomes of the dataset meanwhile.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._lock is None:
                self._take_lock()
            self._clear()
            tokenizer.save(self.folder / TOKENIZER)
        except OSError as error:
            raise UserError(
                f"`{self.folder}` cannot be written ({error.strerror})",
                code="not-writable",
                hint="choose another folder with -o",
            ) from error

    def is_finished(self, run: dict[str, Any], *, force: bool) -> bool:
        """Whether the checkpoint stands; gives it its name first when a kill came just before that.

        Raises:
            UserError: the output is something else, was trained in another way than `run` asks for, or may not be
                replaced.
        """
        if self._has_state:
            return False
        if self._is_whole:
            self._publish(force=force)
        if not (self.output / folders.MANIFEST).is_file():
            return False
        folders.read_manifest(self.output, "checkpoint")
        state = load_state(self.output / STATE_FOLDER)
        if state is not None:
            require_same(state.run, run)
        self._remove()
        return True

    @property
    def stands(self) -> bool:
        """Whether nothing is left to train; looks, and changes nothing."""
        return not self._has_state and (self._is_whole or (self.output / folders.MANIFEST).is_file())

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
        self._remove()

    @property
    def _has_state(self) -> bool:
        return (self.folder / STATE).exists()

    @property
    def _is_whole(self) -> bool:
        return not self._has_state and (self.folder / _FINISHED / folders.MANIFEST).is_file()

    def _publish(self, *, force: bool) -> None:
        folders.publish(self.folder / _FINISHED, self.output, force=force)

    def _take_lock(self) -> None:
        self._lock = take_lock(
            self.folder / LOCK,
            busy=f"another `train` is at work on `{self.output}`",
            hint="wait for it, or choose another name with -o",
        )

    def _clear(self) -> None:
        """Removes all but the lock."""
        entries = sorted(self.folder.iterdir())
        strangers = [entry.name for entry in entries if entry.name not in _OURS]
        if strangers:
            raise UserError(
                f"`{self.folder}` holds `{strangers[0]}`, which mtn-edge did not write, so it is not removed",
                code="not-ours",
                hint="choose another name with -o, or remove it yourself",
            )
        for entry in entries:
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != LOCK:
                entry.unlink()

    def _remove(self) -> None:
        if self.folder.exists():
            self._clear()
            shutil.rmtree(self.folder)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON object a line."""
    path.write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), encoding="utf-8")
