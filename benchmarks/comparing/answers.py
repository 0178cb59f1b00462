"""Answers of a system on disk: `NAME.npz` has the rank of every question and the like, `NAME.json` the facts about it.

Both are written whole, the facts last.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from mtn_edge.evaluation.protocol import TASKS, Answers, Task


def save_answers(folder: Path, name: str, answers: dict[Task, Answers], about: dict[str, Any]) -> None:
    """Writes both files."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        f"{task}.{field.name}": np.array(value)
        for task, given in answers.items()
        for field in fields(given)
        if (value := getattr(given, field.name)) is not None
    }
    partial = folder / f".{name}.partial.npz"
    np.savez_compressed(partial, **arrays)  # type: ignore[arg-type]
    partial.replace(folder / f"{name}.npz")
    partial = folder / f".{name}.partial.json"
    partial.write_text(json.dumps(about), encoding="utf-8")
    partial.replace(folder / f"{name}.json")


def load_answers(folder: Path, name: str) -> tuple[dict[Task, Answers], dict[str, Any]]:
    """Reads both files."""
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz") as stored:
        answers = {task: _unpack(task, stored) for task in TASKS}
    return answers, about


def _unpack(task: Task, stored: Any) -> Answers:
    found = {field.name: stored.get(f"{task}.{field.name}") for field in fields(Answers)}
    return Answers(**found | {"best": found["best"].tolist()})
