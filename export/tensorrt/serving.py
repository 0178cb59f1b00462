"""Engines behind a server: many key presses through the product's own suggester, and one batch for the engines.

Each key press runs in a thread of its own, up to its search; when all of them wait there, their searches are one batch.
So lists, floors, block list and reasons are those of `mtn_edge.runtime`, and nothing of it is written a second time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from export.tensorrt.batch import BatchEngine, KeyPress, Network
from export.tensorrt.sizes import Sizes
from mtn_edge import folders
from mtn_edge.decoding.prefix_constraint import Constraint
from mtn_edge.errors import UserError
from mtn_edge.runtime import completions
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import NO_FLOOR, Hypotheses, SessionState
from mtn_edge.runtime.lists import FOLLOWERS
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.tokenizer import Tokenizer

T = TypeVar("T")


class _Asked:
    """A search that waits for its batch."""

    def __init__(self, press: KeyPress, call: Call | None) -> None:
        self.press, self.call = press, call
        self.done = threading.Event()
        self.found: Hypotheses | Exception | None = None

    def answer(self) -> Hypotheses:
        self.done.wait()
        if self.call is not None:
            self.call.check()
        if isinstance(self.found, Exception):
            raise self.found
        assert self.found is not None
        return self.found


class GatheringEngine:
    """An `Engine` that answers searches together: those of all tasks that `run` was given.

    Args:
        engine: answers the batches, in the thread that calls `run`.
        most: searches of a batch at most.
    """

    def __init__(self, engine: BatchEngine, most: int) -> None:
        self._engine, self._most = engine, most
        self.vocab_size, self.max_tokens, self.max_queries = engine.vocab_size, engine.max_tokens, engine.max_queries
        self._changed = threading.Condition()
        self._waiting: list[_Asked] = []
        self._running = 0

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Runs tasks that search, each in its thread, and their searches as batches; one call at a time.

        Raises:
            Exception: the first that a task raised, when all are done.
        """
        results: list[T | None] = [None] * len(tasks)
        faults: list[Exception] = []

        def work(place: int, task: Callable[[], T]) -> None:
            try:
                results[place] = task()
            except Exception as fault:  # told to the caller below
                faults.append(fault)
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

        self._running = len(tasks)
        threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(tasks)]
        for thread in threads:
            thread.start()
        while batch := self._next_batch():
            self._answer(batch)
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return results  # type: ignore[return-value]  # without a fault every place was filled

    def start(self) -> SessionState:
        """See `Engine.start`."""
        return self._engine.start()

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        return self._engine.append(tokens, state)

    def search(
        self,
        state: SessionState,
        constraint: Constraint,
        *,
        beam: int,
        max_steps: int,
        floor: float = NO_FLOOR,
        call: Call | None = None,
    ) -> Hypotheses:
        """See `Engine.search`; the call is looked at before the batch and after it.

        Raises:
            UserError: another beam than the engines' is asked for.
        """
        if call is not None:
            call.check()
        asked = _Asked(self._engine.press(state, constraint, beam=beam, max_steps=max_steps, floor=floor), call)
        with self._changed:
            self._waiting.append(asked)
            self._changed.notify_all()
        return asked.answer()

    def _next_batch(self) -> list[_Asked]:
        """Waits until every task that still runs waits for its search; nothing when all are done."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) == self._running)
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            return batch

    def _answer(self, batch: list[_Asked]) -> None:
        found: Sequence[Hypotheses | Exception]
        try:
            found = self._engine.run([asked.press for asked in batch])
        except Exception as fault:  # each of them is told
            found = [fault] * len(batch)
        for asked, answer in zip(batch, found, strict=True):
            asked.found = answer
            asked.done.set()


class Served(NamedTuple):
    """What answers key presses on engines."""

    suggester: Suggester
    engine: GatheringEngine


def open_engines(folder: Path, encode: Network, search: Network) -> Served:
    """The suggester of a folder of engines, wherever these run.

    Args:
        folder: with a manifest of the kind `engines`, tokenizer and lists.
        encode: runs the encoder.
        search: runs the search.

    Raises:
        UserError: it is no such folder, or one of its files is missing, damaged or changed.
    """
    manifest = folders.read_manifest(folder, "engines")
    folders.check_files(folder, manifest)
    try:
        sizes = Sizes(**manifest["sizes"])
        decoding = Decoding.from_manifest(manifest["decoding"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"the manifest of `{folder}` lacks the sizes of the engines", code="bad-manifest", hint="build them again"
        ) from error
    engine = GatheringEngine(BatchEngine(encode, search, sizes), sizes.max_batch)
    suggester = Suggester(
        engine=engine,
        tokenizer=Tokenizer.load(folder / "tokenizer.json"),
        completions=Completions.load(folder / completions.FILE),
        followers=Completions.load(folder / FOLLOWERS),
        blocklist=Blocklist.load(folder / "blocklist.txt"),
        decoding=decoding,
    )
    return Served(suggester, engine)
