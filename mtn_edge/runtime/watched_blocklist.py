"""A block list in a file that is edited while suggestions go on."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from mtn_edge.errors import UserError
from mtn_edge.runtime.blocklist import Blocklist

_log = logging.getLogger(__name__)
_TICK_NS = 50_000_000
"""Two changes closer than this (nanoseconds) may leave a file with the same time stamp."""

_Stamp = tuple[int, int, int, int]


class WatchedBlocklist:
    """The list in a file, read again whenever the file has changed since the last look.

    A file that is gone, or that cannot be read as a block list any more, leaves the last good list in force: somebody's
    slip with an editor neither lets denied words through nor stops the suggestions. One warning says so for each such
    change (logger `mtn_edge.runtime.watched_blocklist`).

    A file that was emptied a moment ago may be about to be written: it counts 50 ms later. A long list is best written
    beside the old one and moved over it.

    Args:
        path: the file (see `Blocklist.load`).
        base: what is denied besides, whatever the file says.

    Raises:
        UserError: the file cannot be read as a block list now.
    """

    def __init__(self, path: Path, base: Blocklist | None = None) -> None:
        self._path, self._base = path.absolute(), base or Blocklist()
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._list = self._base | Blocklist.load(path)

    def current(self) -> Blocklist:
        """The list as the file has it now; safe to call from several threads at once."""
        if self._look() != self._stamp:
            with self._lock:
                stamp = self._look()
                if stamp != self._stamp:
                    self._read()
                    self._stamp = stamp
        return self._list

    def _look(self) -> _Stamp | None:
        """What tells one state of the file from another; None when it is gone.

        A file that changed a moment ago gets a stamp of this very look, so that the next look reads it once more.
        """
        try:
            found = self._path.stat()
        except OSError:
            return None
        now = time.time_ns()
        fresh = now if abs(now - found.st_mtime_ns) < _TICK_NS else 0
        return found.st_mtime_ns, found.st_size, found.st_ino, fresh

    def _read(self) -> None:
        try:
            read = Blocklist.load(self._path)
        except UserError as error:
            _log.warning("%s The block list stays as it was before.", error)
            return
        # Whoever saves in place empties the file first: an empty one counts when it has stood for a while.
        if read or (stamp := self._look()) is None or not stamp[-1]:
            self._list = self._base | read
