"""A locked file that keeps a second run out of a folder; the end of a process, however it comes, lets go of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from mtn_edge.errors import UserError


def take_lock(file: Path, *, busy: str, hint: str) -> int:
    """Locks `file`, which is made with its folder when it is missing.

    Args:
        file: the lock.
        busy: the sentence for when somebody else has it.
        hint: what to do then.

    Returns:
        The open file; closing it lets go.

    Raises:
        UserError: another process, or another part of this one, has it.
    """
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise UserError(busy, code="in-use", hint=hint) from error
        # Whoever had it may have removed the folder between the two calls: then the lock is worth nothing.
        if file.exists() and os.path.samestat(os.fstat(handle), file.stat()):
            return handle
        os.close(handle)
