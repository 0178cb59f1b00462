"""What a teacher says about every position that a student learns from, asked once and kept on the disk.

For each decoder state of a target query: the teacher's `top` most probable tokens with their log-probabilities at the
temperature, and the logarithm of what all other tokens have together, in half precision. With hidden states also the
decoder's state, and for each target query the session vector that it is predicted from. The bytes a position takes do
not depend on the teacher's size: 4 x top + 2, and 2 for each number of a hidden vector.

Shapes: b rows of a batch, q queries of a row, n positions of a batch, r positions of a split, g target queries, k kept
tokens, v vocabulary, w the teacher's width.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtn_edge.config import DistillConfig, ModelConfig
from mtn_edge.console import progress
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions, offsets_of
from mtn_edge.errors import InterruptedRunError, UserError
from mtn_edge.models.build import Network
from mtn_edge.models.mtn import MTN
from mtn_edge.tokenizer import PAD
from mtn_edge.training.inputs import context_of
from mtn_edge.training.objective import Clock
from quantize.teacher_folder import SAVE_SECONDS, TeacherFolder, say_size

_BATCH_QUERIES = 256
_NARROW = 1 << 16
"""Vocabulary up to which a token number takes two bytes."""


class Soft(NamedTuple):
    """A teacher's distributions at a temperature, each as its best tokens and the rest of it."""

    tokens: Tensor
    """[n, k] int64."""
    log_probs: Tensor
    """[n, k]."""
    rest: Tensor
    """[n] log of the probability of all other tokens together."""


class Said(NamedTuple):
    """What the teacher said about a batch."""

    soft: Soft
    states: Tensor | None
    """[n, w], when they were asked for."""
    sessions: Tensor | None
    """[g, w], when they were asked for."""


def soften(logits: Tensor, top: int, temperature: float) -> Soft:
    """The distributions of [n, v] scores, divided by the temperature."""
    log_probs = (logits.float() / temperature).log_softmax(1)
    best, tokens = log_probs.topk(top)
    return Soft(tokens, best, log_probs.scatter(1, tokens, -torch.inf).logsumexp(1))


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


@dataclass(frozen=True)
class Layout:
    """What is kept about a split.

    Attributes:
        rows: positions of each target query, [queries].
        top: kept tokens.
        vocab_size: the tokens' number.
        states, sessions: numbers of a hidden vector, 0 where it is not kept.
    """

    rows: NDArray[np.int64]
    top: int
    vocab_size: int
    states: int
    sessions: int

    def arrays(self) -> dict[str, tuple[Any, tuple[int, int]]]:
        """Type and shape of each array, by name."""
        positions, half = int(self.rows.sum()), np.float16
        number = np.uint16 if self.vocab_size <= _NARROW else np.uint32
        kept: dict[str, tuple[Any, tuple[int, int]]] = {
            "tokens": (number, (positions, self.top)),
            "log_probs": (half, (positions, self.top)),
            "rest": (half, (positions, 1)),
        }
        if self.states:
            kept["states"] = (half, (positions, self.states))
        if self.sessions:
            kept["sessions"] = (half, (len(self.rows), self.sessions))
        return kept

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(np.dtype(kind).itemsize * a * b for kind, (a, b) in self.arrays().values())


class TeacherOutputs:
    """The arrays of a folder.

    Args:
        folder: open.
        layout: what they hold.
    """

    def __init__(self, folder: TeacherFolder, layout: Layout) -> None:
        self._folder, self._layout = folder, layout
        self._offsets = offsets_of(layout.rows)
        self._arrays = {name: self._map(name, *about) for name, about in layout.arrays().items()}

    def of(self, numbers: NDArray[np.int64], device: torch.device) -> Said:
        """What the teacher said about some target queries, in their order."""
        place = self._positions(numbers)
        read = {name: torch.from_numpy(array[place]) for name, array in self._arrays.items() if name != "sessions"}
        soft = Soft(
            read["tokens"].to(device, torch.int64),
            read["log_probs"].to(device, torch.float32),
            read["rest"][:, 0].to(device, torch.float32),
        )
        states = read["states"].to(device, torch.float32) if "states" in read else None
        vectors = self._arrays.get("sessions")
        sessions = None if vectors is None else torch.from_numpy(vectors[numbers]).to(device, torch.float32)
        return Said(soft, states, sessions)

    def write(self, numbers: NDArray[np.int64], said: Said) -> None:
        """Keeps what the teacher said about a batch with these target queries."""
        place = self._positions(numbers)
        found = {**said.soft._asdict(), "rest": said.soft.rest[:, None], "states": said.states}
        for name, tensor in found.items():
            if name in self._arrays and tensor is not None:
                self._arrays[name][place] = tensor.cpu().numpy().astype(self._arrays[name].dtype)
        if said.sessions is not None:
            self._arrays["sessions"][numbers] = said.sessions.cpu().numpy().astype(np.float16)

    def flush(self) -> None:
        """Waits until all is on the disk."""
        for array in self._arrays.values():
            array.flush()

    def _positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        counts = self._layout.rows[numbers]
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(self._offsets[numbers], counts) + place)

    def _map(self, name: str, kind: Any, shape: tuple[int, int]) -> np.memmap[Any, Any]:
        file = self._folder.array(name)
        size = np.dtype(kind).itemsize * shape[0] * shape[1]
        try:
            if not file.is_file() or file.stat().st_size != size:
                self._folder.done = 0
                with file.open("wb") as handle:  # really taken: a write into a hole of a full disk would be fatal
                    os.posix_fallocate(handle.fileno(), 0, size)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise UserError(
                f"the teacher's outputs need {self._layout.nbytes / 1e6:,.0f} MB in `{self._folder.path}` "
                f"({error.strerror})",
                code="not-writable",
                hint="make room, or lower `distill.top`",
            ) from error
        return np.memmap(file, dtype=kind, mode="r+", shape=shape)


def ask_teacher(
    teacher: Network,
    sessions: TokenizedSessions,
    folder: TeacherFolder,
    *,
    model: ModelConfig,
    distill: DistillConfig,
    device: str,
    clock: Clock,
) -> TeacherOutputs:
    """Asks a teacher about all that a student will learn from, or for what an earlier command has not saved.

    The batches are always the same, so that the outputs do not depend on where a command was killed.

    Args:
        teacher: the network, in evaluation mode on the CPU.
        sessions: what will be learnt from.
        folder: where to keep the outputs, open.
        model: the student's sizes.
        distill: what to keep.
        device: `cpu` or `cuda`.
        clock: how long that may take.

    Raises:
        UserError: there is not enough room, or time.
        InterruptedRunError: Ctrl-C; what was said is saved.
    """
    width = teacher.d_model if isinstance(teacher, MTN) else 0
    layout = Layout(
        rows=sessions.rows(model.max_tokens),
        top=distill.top,
        vocab_size=model.vocab_size,
        states=width if distill.states else 0,
        sessions=width if distill.sessions else 0,
    )
    outputs = TeacherOutputs(folder, layout)
    batches = Batches(sessions, **context_of(model), batch_queries=_BATCH_QUERIES)
    done = folder.done
    if done == len(batches):
        return outputs
    say_size(folder.path, layout.nbytes)
    teacher.to(device)
    saved = time.monotonic()
    with progress("asking the teacher", len(batches), "batches", start=done) as report:
        try:
            for step in batches.steps(0, 0, done):
                batch = Batch(*(x.to(device) for x in step.batches[0]))
                outputs.write(step.numbers[0], _ask(teacher, batch, distill))
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
    teacher.to("cpu")
    return outputs


def _save(outputs: TeacherOutputs, folder: TeacherFolder, done: int) -> None:
    outputs.flush()
    folder.done = done


@torch.inference_mode()
def _ask(teacher: Network, batch: Batch, distill: DistillConfig) -> Said:
    with session_vectors(teacher) as vectors:
        states = teacher.states(*teacher_reads(batch, teacher))  # [n, w]
    soft = soften(teacher.logits(states), distill.top, distill.temperature)
    sessions = of_targets(vectors[0], batch.target_in) if distill.sessions else None
    return Said(soft, states if distill.states else None, sessions)
