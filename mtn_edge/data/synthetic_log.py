"""A simulated log in the AOL format: click rows, next pages, empty queries, and the mess of real logs.

Each query of the simulator becomes one row, or more when results are clicked or a next page is asked. A few rows are
`-`, differ in capitals and blanks, hold made-up addresses and numbers, or are cut short; none of it changes a session.

Users are drawn in chunks, each from a seed of its own: memory does not grow with the log, a longer log begins with the
shorter one of the same seed, and the oracle's file can draw any part again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from mtn_edge import console
from mtn_edge.data.synthetic import World, build
from mtn_edge.data.synthetic_draw import Sessions, Simulator
from mtn_edge.data.synthetic_oracle import Coverage, Source, write_oracle
from mtn_edge.data.synthetic_rows import HEADER, RowWriter
from mtn_edge.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_USERS = 20_000
FIRST_USER = 1001


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What `data synth` may be told; exactly one of `sessions` and `rows`."""

    sessions: int | None = None
    """How many sessions."""
    rows: int | None = None
    """As many sessions as it takes to have so many rows."""
    seed: int = 1
    """The same seed gives the same files."""
    difficulty: float = 1.0
    """See `synthetic.World`."""
    oracle: Coverage = "test"
    """Which sessions the oracle's file covers."""


def write_log(output: Path, settings: LogSettings, *, force: bool = False) -> dict[str, Any]:
    """Writes a simulated log and, beside it, the file of its oracle; returns what they hold.

    Args:
        output: a new file.
        settings: see there.
        force: replace existing files.

    Raises:
        UserError: a file exists or cannot be written, or the difficulty is no number above 0.
    """
    beside = output.parent / f"{output.stem}.oracle.jsonl"
    for path in (output, beside):
        if path.is_dir() or (path.exists() and not force):
            raise UserError(
                f"`{path}` exists already and nothing is overwritten",
                code="exists",
                hint="choose another name with -o" + ("" if path.is_dir() else ", or replace it with --force"),
            )
    chain = build(World(difficulty=settings.difficulty))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            log = stack.enter_context(_partial(output))
            made = _Log(Simulator(chain), RowWriter(chain), settings)
            made.write(log)
            result = made.counts()
            if settings.oracle == "none":
                beside.unlink(missing_ok=True)
            else:
                file = stack.enter_context(_partial(beside))
                facts = {"name": output.name, **result, "sha256": made.digest.hexdigest()}
                result["oracle"] = {
                    "file": beside.name,
                    **write_oracle(file, chain, made.again(), made.starts(), settings.oracle, log=facts),
                }
    except OSError as error:
        raise UserError(
            f"`{output}` cannot be written ({error.strerror})", code="not-writable", hint="choose another file with -o"
        ) from error
    return result


def log_words(made: dict[str, Any], output: Path) -> str:
    """What `write_log` returned, in words."""
    words = (
        f"{output}: {made['rows']:,} rows of {made['queries']:,} queries in {made['sessions']:,} sessions"
        f" of {made['users']:,} users"
    )
    if oracle := made.get("oracle"):
        best = [f"{oracle[task]['mrr@10']:.3f} ({task})" for task in ("suggest", "complete") if oracle[task]["n"]]
        words += (
            f"\n{output.with_name(oracle['file'])}: the best answers in {oracle['sessions']:,} sessions; "
            f"their MRR@10, the ceiling: {', '.join(best)}"
        )
    return words


@contextmanager
def _partial(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends well, and is removed otherwise."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


class _Log:
    """One log on its way; what it keeps of each session is the time at which it starts."""

    def __init__(self, simulator: Simulator, rows: RowWriter, settings: LogSettings) -> None:
        self.digest = hashlib.sha256()
        self._simulator = simulator
        self._rows = rows
        self._settings = settings
        self._starts: list[NDArray[np.int64]] = []
        self._counts = {"sessions": 0, "users": 0, "queries": 0, "rows": 0}

    def write(self, file: IO[bytes]) -> None:
        """Draws and writes chunk after chunk until the log is as long as it was asked to be."""
        unit, total = ("rows", self._settings.rows) if self._settings.rows else ("sessions", self._settings.sessions)
        assert total is not None
        self._put(file, HEADER.encode())
        with console.progress("drawing", total, unit) as update:
            while (left := total - self._counts[unit]) > 0:
                drawn, rng = self._draw(len(self._starts))
                rows = self._rows.lay_out(drawn, rng)
                keep = int(np.searchsorted(np.cumsum(rows.of_session), left)) + 1 if unit == "rows" else left
                drawn, rows = drawn.first(keep), rows.first(keep)
                self._put(file, self._rows.text(rows, user=FIRST_USER + CHUNK_USERS * len(self._starts)))
                self._starts.append(drawn.second[drawn.begin])
                self._counts["sessions"] += len(drawn.user)
                self._counts["users"] += int(drawn.user[-1]) + 1
                self._counts["queries"] += len(drawn.state)
                self._counts["rows"] += len(rows)
                update(self._counts[unit], "")

    def counts(self) -> dict[str, Any]:
        """What was written."""
        return {**self._counts, "seed": self._settings.seed, "difficulty": self._settings.difficulty}

    def starts(self) -> NDArray[np.int64]:
        """[sessions] second in which each begins."""
        return np.concatenate(self._starts)

    def again(self) -> Iterator[Source]:
        """The sessions once more, as they stand in the log."""
        for number, starts in enumerate(self._starts):
            yield Source(self._draw(number)[0].first(len(starts)), FIRST_USER + CHUNK_USERS * number)

    def _draw(self, chunk: int) -> tuple[Sessions, np.random.Generator]:
        rng = np.random.default_rng([self._settings.seed, chunk])
        return self._simulator.draw(CHUNK_USERS, rng), rng

    def _put(self, file: IO[bytes], content: bytes | memoryview) -> None:
        file.write(content)
        self.digest.update(content)
