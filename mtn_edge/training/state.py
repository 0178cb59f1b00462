"""The training state: all that a killed run needs to go on as if nothing had happened, in one file.

Tensors (weights, optimizer, random generators, best weights) and a JSON document (where the run stands, what it was
asked to do) make one safetensors file, which is written beside its place, flushed to the disk and renamed: a kill at
any moment leaves the state before or the state after.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mtn_edge.errors import UserError

STATE = "state.safetensors"
STATE_FOLDER = "training_state"
"""Where a finished checkpoint keeps the state that its run ended with."""
PARTIAL = f"{STATE}.partial"
OBJECTIVE = "objective"
"""Part of the state: what the objective itself has learnt; its optimizer's tensors have names `objective.*` too."""


@dataclass(kw_only=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    """Optimizer steps done."""
    queries: int = 0
    """Queries learnt from so far."""
    seconds: float = 0.0
    """Time spent, all parts of a resumed run together."""
    train_loss: float = 0.0
    """Sum of the training loss over the tokens since the last validation."""
    train_tokens: int = 0
    """How many tokens those are."""
    best_score: list[float] = field(default_factory=list)
    """The best result of a validation (`watch.score`); empty before the first."""
    best_loss: float | None = None
    """The validation loss that goes with it, nats per token."""
    best_step: int = 0
    """The step it was reached at."""
    misses: int = 0
    """Validations since then."""
    ended: bool = False
    """Whether training is over: all steps done, patience or time at an end."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The lines of `metrics.jsonl`."""


@dataclass(kw_only=True)
class TrainingState:
    """A run between two steps."""

    run: dict[str, Any]
    """What was asked for: settings, dataset, processes; a run is resumed only by the same (`workplace`)."""
    progress: Progress
    tensors: dict[str, Tensor]
    """`model.*`, `objective.*` where it learns, `average.*` where one is kept, `best.*`, `optimizer.*`, `random.*`."""

    def without_objective(self) -> dict[str, Tensor]:
        """All tensors but those of what the objective has learnt."""
        return {key: x for key, x in self.tensors.items() if OBJECTIVE not in key.split(".")}

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors under `name.`, without that prefix."""
        return {key.removeprefix(f"{name}."): x for key, x in self.tensors.items() if key.startswith(f"{name}.")}


def save_state(folder: Path, state: TrainingState) -> None:
    """Replaces the state in `folder`, whole or not at all.

    Raises:
        UserError: the disk is full or the folder cannot be written; the state before stands.
    """
    document = {"run": state.run, "progress": asdict(state.progress)}
    partial = folder / PARTIAL
    try:
        partial.write_bytes(save(state.tensors, metadata={"state": json.dumps(document, allow_nan=False)}))
        _flush(partial)
        partial.replace(folder / STATE)
        _flush(folder)
    except OSError as error:
        raise UserError(
            f"the training state cannot be written to `{folder}` ({error})",
            code="not-writable",
            hint="make room, then go on with --resume",
        ) from error


def load_state(folder: Path) -> TrainingState | None:
    """The state in `folder`; None when there is none.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / STATE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as stored:
            document = json.loads(stored.metadata()["state"])
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 (no mapping)
        return TrainingState(run=document["run"], progress=Progress(**document["progress"]), tensors=tensors)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"`{file}` is not a readable training state ({error})",
            code="damaged",
            hint="start anew with --force",
        ) from error


def _flush(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
