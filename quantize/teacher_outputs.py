"""What a teacher says about every position that a student learns from, asked once and kept on the disk.

Kept is the vector that the teacher's output layer reads, in half precision: with that layer it gives the teacher's
whole distribution back, at any temperature, for 2 bytes a unit of width (the most probable tokens alone would not do:
docs/compression.md). On request also the session vector that each target query is predicted from.

Shapes: b rows of a batch, q queries of a row, n positions of a batch, g target queries, w the teacher's width.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtn_edge.config import ModelConfig
from mtn_edge.console import progress, say
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions, offsets_of
from mtn_edge.errors import InterruptedRunError, UserError
from mtn_edge.models.build import Network
from mtn_edge.models.mtn import MTN
from mtn_edge.tokenizer import BOS, PAD
from mtn_edge.training.inputs import context_of
from mtn_edge.training.objective import Clock
from quantize.teacher_folder import SAVE_SECONDS, TeacherFolder

_BATCH_QUERIES = 256


class Said(NamedTuple):
    """What the teacher said about a batch."""

    states: Tensor
    """[n, w], one for each of `target_in[target_in != PAD]`, in that order."""
    sessions: Tensor | None
    """[g, w], when they were asked for."""


@contextmanager
def session_vectors(model: Network) -> Iterator[list[Tensor]]:
    """Collects what the session encoder of an MTN makes of its queries, [b, q, w], in each call of `states`."""
    found: list[Tensor] = []
    if not isinstance(model, MTN):
        yield found
        return
    handle = model.session_norm.register_forward_hook(lambda _, __, vectors: found.append(vectors))
    try:
        yield found
    finally:
        handle.remove()


def of_targets(vectors: Tensor, target_in: Tensor) -> Tensor:
    """[b, q, w] session vectors to [g, w], one for each query that is predicted: of the queries before it."""
    asked = target_in[:, :, 0] != PAD
    return vectors[:, : asked.shape[1]][asked]


def teacher_reads(batch: Batch, teacher: Network) -> tuple[Tensor, Tensor, Tensor]:
    """The arguments of the teacher's `states`.

    A student with three levels has a row more on the source side, which other teachers have no use for.
    """
    three = isinstance(teacher, MTN) and teacher.history is not None
    source = batch.source if three else batch.source[:, : batch.target_in.shape[1]]
    return source, batch.target_in, batch.user


class TeacherOutputs:
    """The arrays of a folder.

    Args:
        folder: open.
        rows: positions of each target query, [queries].
        width: w.
        sessions: whether session vectors are kept.

    Raises:
        UserError: there is not enough room.
    """

    def __init__(self, folder: TeacherFolder, rows: NDArray[np.int64], width: int, *, sessions: bool) -> None:
        self._folder, self._rows, self._offsets = folder, rows, offsets_of(rows)
        self.nbytes = 2 * width * (int(rows.sum()) + sessions * len(rows))
        self._states = self._map("states", int(rows.sum()), width)
        self._sessions = self._map("sessions", len(rows), width) if sessions else None

    def of(self, numbers: NDArray[np.int64], device: torch.device) -> Said:
        """What the teacher said about some target queries, in their order."""
        states = torch.from_numpy(self._states[self._positions(numbers)]).to(device, torch.float32)
        if self._sessions is None:
            return Said(states, None)
        return Said(states, torch.from_numpy(self._sessions[numbers]).to(device, torch.float32))

    def write(self, numbers: NDArray[np.int64], said: Said) -> None:
        """Keeps what the teacher said about a batch with these target queries."""
        self._states[self._positions(numbers)] = said.states.half().cpu().numpy()
        if self._sessions is not None and said.sessions is not None:
            self._sessions[numbers] = said.sessions.half().cpu().numpy()

    def flush(self) -> None:
        """Waits until all is on the disk."""
        self._states.flush()
        if self._sessions is not None:
            self._sessions.flush()

    def _positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        counts = self._rows[numbers]
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(self._offsets[numbers], counts) + place)

    def _map(self, name: str, count: int, width: int) -> np.memmap[Any, Any]:
        file, size = self._folder.array(name), 2 * count * width
        try:
            if not file.is_file() or file.stat().st_size != size:
                self._folder.done = 0
                with file.open("wb") as handle:  # really taken: a write into a hole of a full disk would be fatal
                    os.posix_fallocate(handle.fileno(), 0, size)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise UserError(
                f"the teacher's outputs need {self.nbytes / 1e6:,.0f} MB in `{self._folder.path}` ({error.strerror})",
                code="not-writable",
                hint="make room, or choose another folder with --teacher-cache",
            ) from error
        return np.memmap(file, dtype=np.float16, mode="r+", shape=(count, width))


def ask_teacher(
    teacher: Network,
    learnt: TokenizedSessions,
    folder: TeacherFolder,
    *,
    model: ModelConfig,
    sessions: bool,
    device: str,
    clock: Clock,
) -> TeacherOutputs:
    """Asks a teacher about all that a student will learn from, or for what an earlier command has not saved.

    The batches are always the same, so that the outputs do not depend on where a command was killed.

    Args:
        teacher: the network, in evaluation mode on `device`.
        learnt: what will be learnt from.
        folder: where to keep the outputs, open.
        model: the student's sizes.
        sessions: whether to keep session vectors too; the teacher is an MTN then.
        device: `cpu` or `cuda`.
        clock: how long that may take.

    Raises:
        UserError: there is not enough room, or time.
        InterruptedRunError: Ctrl-C; what was said is saved.
    """
    outputs = TeacherOutputs(folder, learnt.rows(model.max_tokens), _width(teacher, device), sessions=sessions)
    batches = Batches(learnt, **context_of(model), batch_queries=_BATCH_QUERIES)
    done = folder.done
    if done == len(batches):
        if folder.is_as_sealed:
            return outputs
        say(f"the teacher's outputs in `{folder.path}` are damaged; it is asked again")
        folder.done = done = 0
    say(f"the teacher's outputs take {outputs.nbytes / 1e6:,.1f} MB in {folder.path}")
    saved = time.monotonic()
    with progress("asking the teacher", len(batches), "batches", start=done) as report:
        try:
            for step in batches.steps(0, 0, done):
                batch = Batch(*(x.to(device) for x in step.batches[0]))
                outputs.write(step.numbers[0], _ask(teacher, batch, sessions=sessions))
                done += 1
                report(done, "")
                if time.monotonic() - saved >= SAVE_SECONDS:
                    clock.check("the teacher was asked")
                    _save(outputs, folder, done)
                    saved = time.monotonic()
        except KeyboardInterrupt as error:
            raise InterruptedRunError(
                "distillation was interrupted while the teacher was asked, and what it said is kept",
                code="interrupted",
                hint="go on with the same command and --resume",
            ) from error
        finally:
            _save(outputs, folder, done)
    folder.seal()
    return outputs


def _save(outputs: TeacherOutputs, folder: TeacherFolder, done: int) -> None:
    outputs.flush()
    folder.done = done


@torch.no_grad()
def _ask(teacher: Network, batch: Batch, *, sessions: bool) -> Said:
    with session_vectors(teacher) as vectors:
        states = teacher.states(*teacher_reads(batch, teacher))
    return Said(states, of_targets(vectors[0], batch.target_in) if sessions else None)


@torch.no_grad()
def _width(teacher: Network, device: str) -> int:
    """How wide the vectors are that its output layer reads, whatever the architecture."""
    start = torch.full((1, 1, 1), BOS, device=device)
    return int(teacher.states(start, start, torch.zeros(1, dtype=torch.long, device=device)).shape[1])
