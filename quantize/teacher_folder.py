"""The folder in which a teacher's outputs lie while students learn from them.

What it holds is a pure function of its key: the teacher, the dataset, and the settings that the outputs depend on. A
folder of another key is emptied; one of the same key is gone on with, so that a killed command asks the teacher only
for what was not saved. A locked file keeps a second command out.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from mtn_edge.errors import UserError
from mtn_edge.folders import sha256_file
from mtn_edge.locks import take_lock

ABOUT, LOCK, ANSWERS = "about.json", "lock", "answers.jsonl"
ARRAYS = ("states", "sessions")
SAVE_SECONDS = 20.0
"""Time between two saves of what the teacher has said."""
_FILES = (*(f"{name}.bin" for name in ARRAYS), ANSWERS, ABOUT, f"{ABOUT}.partial")


def key_name(key: dict[str, Any]) -> str:
    """The name of a folder among those of other keys."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


class TeacherFolder:
    """The folder, locked from `open` to `close`.

    Args:
        path: where it is, or will be.
        key: what its contents depend on.
    """

    def __init__(self, path: Path, key: dict[str, Any]) -> None:
        self.path, self._key = path, key
        self._lock: int | None = None

    def open(self) -> None:
        """Makes it, or takes what lies there when it has the same key; nothing happens when it is open.

        Raises:
            UserError: it cannot be written, holds something else, or another command has it.
        """
        if self._lock is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = take_lock(
                self.path / LOCK,
                busy=f"another `distill` is at work on the teacher's outputs in `{self.path}`",
                hint="wait for it, or choose another folder",
            )
            if self._about().get("key") != self._key:
                self._clear()
                self._write({"key": self._key, "done": 0})
        except OSError as error:
            raise UserError(
                f"`{self.path}` cannot be written ({error.strerror})",
                code="not-writable",
                hint="choose another folder, or make room",
            ) from error

    def close(self, *, remove: bool) -> None:
        """Lets go of it.

        Args:
            remove: with all that mtn-edge wrote there, whether it is open or was left by an earlier command.
        """
        if remove and self.path.is_dir():
            self.open()
            for name in (*_FILES, LOCK):
                (self.path / name).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def done(self) -> int:
        """Batches that the teacher has been asked about, and whose outputs are saved."""
        return int(self._about()["done"])

    @done.setter
    def done(self, batches: int) -> None:
        self._write({"key": self._key, "done": batches})

    def seal(self) -> None:
        """Remembers the arrays as they are now that the teacher has said all."""
        self._write(self._about() | {"arrays": self._digests()})

    @property
    def is_as_sealed(self) -> bool:
        """Whether the arrays are still those: a changed byte would be learnt like any other."""
        return self._about().get("arrays") == self._digests()

    def _digests(self) -> dict[str, str]:
        return {name: sha256_file(file) for name in ARRAYS if (file := self.array(name)).is_file()}

    def array(self, name: str) -> Path:
        """The file of one of `ARRAYS`."""
        return self.path / f"{name}.bin"

    def _about(self) -> dict[str, Any]:
        try:
            about = json.loads((self.path / ABOUT).read_bytes())
        except (OSError, ValueError):
            return {}
        return about if isinstance(about, dict) else {}

    def _write(self, about: dict[str, Any]) -> None:
        partial = self.path / f"{ABOUT}.partial"
        partial.write_text(json.dumps(about), encoding="utf-8")
        partial.replace(self.path / ABOUT)

    def _clear(self) -> None:
        """Removes all but the lock.

        Raises:
            UserError: there is something that mtn-edge did not write.
        """
        strangers = sorted(entry.name for entry in self.path.iterdir() if entry.name not in (*_FILES, LOCK))
        if strangers:
            raise UserError(
                f"`{self.path}` holds `{strangers[0]}`, which mtn-edge did not write, so it is not removed",
                code="not-ours",
                hint="choose another folder, or remove it yourself",
            )
        for name in _FILES:
            (self.path / name).unlink(missing_ok=True)
