"""Stages whose results are kept under a hash of all that they depend on, so that nothing is made twice.

A stage is a folder or a JSON document in the work folder, named by its kind and the hash of its key: the sha256 of the
manifests it reads, its settings, and the version of mtn-edge. Both appear whole or not at all. So a killed command goes
on at the stage it was in, and two points that begin alike share their beginning.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from mtn_edge import __version__, folders
from mtn_edge.console import say
from mtn_edge.errors import UserError
from mtn_edge.locks import take_lock

LOCK = "lock"


class Stages:
    """The work folder; as a context, nobody else's while it lasts.

    Args:
        folder: where stages are kept; made when it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None

    def __enter__(self) -> Stages:
        """Makes the folder and takes its lock.

        Raises:
            UserError: it cannot be written, or another `compress` is at work in it.
        """
        try:
            self._lock = take_lock(
                self._folder / LOCK,
                busy=f"another `compress` is at work in `{self._folder}`",
                hint="wait for it, or choose another folder",
            )
        except OSError as error:
            raise UserError(
                f"`{self._folder}` cannot be written ({error.strerror})",
                code="not-writable",
                hint="choose another folder",
            ) from error
        for left in self._folder.glob(".*.partial"):  # by a killed run; the lock says that no other is at work
            shutil.rmtree(left, ignore_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets go of the lock."""
        assert self._lock is not None
        os.close(self._lock)

    def place(self, stage: str, key: dict[str, Any]) -> Path:
        """Where the folder of a stage is, or will be."""
        text = json.dumps({"version": __version__, **key}, sort_keys=True)
        return self._folder / f"{stage}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def has(self, stage: str, key: dict[str, Any]) -> bool:
        """Whether the folder of a stage stands; that its files are whole is looked at when it is taken."""
        try:
            folders.read_manifest(self.place(stage, key))
        except UserError:
            return False
        return True

    def folder(self, stage: str, key: dict[str, Any], make: Callable[[Path], object]) -> Path:
        """The folder of a stage, made unless it stands.

        Args:
            stage: its kind.
            key: what it depends on.
            make: makes it at the path that it is given, whole or not at all.
        """
        place = self.place(stage, key)
        if place.exists():
            try:
                folders.check_files(place, folders.read_manifest(place))
            except UserError as error:
                say(f"{stage}: {error.message}; it is made again")
                _remove(place)
            else:
                say(f"{stage}: done before")
                return place
        say(f"{stage}: begins")
        make(place)
        return place

    def document(
        self,
        stage: str,
        key: dict[str, Any],
        make: Callable[[], dict[str, Any]],
        *,
        keep: Callable[[dict[str, Any]], bool] = lambda _: True,
    ) -> dict[str, Any]:
        """The document of a stage, made unless one stands that `keep` takes; see `folder`."""
        place = self.place(stage, key).with_suffix(".json")
        if place.exists():
            try:
                kept: dict[str, Any] = json.loads(place.read_bytes())
                if kept["sha256"] != _digest(kept["found"]):
                    raise ValueError(kept)
            except (OSError, ValueError, TypeError, LookupError):
                say(f"{stage}: `{place}` is damaged; it is made again")
                _remove(place)
            else:
                found: dict[str, Any] = kept["found"]
                if keep(found):
                    return found
        found = make()
        partial = place.with_name(f"{place.name}.partial")
        text = json.dumps({"found": found, "sha256": _digest(found)}, allow_nan=False)
        partial.write_text(text, encoding="utf-8")
        partial.replace(place)
        return found


def _digest(found: Any) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _remove(place: Path) -> None:
    """What is damaged, whatever lies there."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()
