"""An engine that gives its memory back while nobody types, and comes back with the next call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from mtn_edge.errors import UserError
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import Engine, Hypotheses, SessionState
from mtn_edge.runtime.memory import give_back


def closed() -> UserError:
    """What every call on something closed raises."""
    return UserError("the suggester is closed", code="closed", hint="open the bundle again")


class ClosedEngine:
    """Stands where an engine was: whatever is asked of it raises `closed`."""

    def __getattr__(self, name: str) -> NoReturn:
        raise closed()


class IdleEngine:
    """An `Engine` that drops the engine it is made over after some idle seconds, and makes it again when asked.

    One thread lives as long as a made engine does: it makes it, waits until no call has come for `seconds`, drops it
    and ends. An engine is never dropped while a call is at work in it. A search that is ended while it waits for the
    new engine (its deadline passed, a newer key press came) does not wait on; the engine is there for a later call.

    Args:
        make: makes an engine; every engine that it makes must compute the same.
        seconds: how long it may stand idle, above 0.

    Raises:
        UserError: `seconds` is out of range, or what the first `make` raises.
    """

    def __init__(self, make: Callable[[], Engine], seconds: float) -> None:
        if not seconds > 0:
            raise UserError(
                f"`close_after` is {seconds} seconds, and it must be above 0",
                code="bad-argument",
                hint="leave it out to keep the model in memory",
            )
        self._make, self._seconds = make, min(seconds, threading.TIMEOUT_MAX)
        self._changed = threading.Condition()
        self._closed = False
        self._life: _Life | None = None
        with self._borrow() as engine:
            self.vocab_size = engine.vocab_size
            self.max_tokens = engine.max_tokens
            self.max_queries = engine.max_queries

    @property
    def loaded(self) -> bool:
        """Whether an engine is in memory now."""
        with self._changed:
            return self._life is not None and self._life.engine is not None

    def start(self) -> SessionState:
        """See `Engine.start`."""
        with self._borrow() as engine:
            return engine.start()

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        with self._borrow() as engine:
            return engine.append(tokens, state)

    def search(self, *args: Any, call: Call | None = None, **kwargs: Any) -> Hypotheses:
        """See `Engine.search`."""
        with self._borrow(call) as engine:
            return engine.search(*args, call=call, **kwargs)

    def close(self) -> None:
        """Drops the engine for good, after the calls that are at work in it; no thread is left behind."""
        with self._changed:
            self._closed = True
            life = self._life
            self._changed.notify_all()
        if life is not None:
            life.thread.join()

    @contextmanager
    def _borrow(self, call: Call | None = None) -> Iterator[Engine]:
        """The engine, made when there is none; it stays as long as the block runs."""
        with self._changed:
            if self._closed:
                raise closed()
            life = self._life
            if life is None or not life.thread.is_alive():  # a fork takes no threads along
                life = self._begin()
            life.users += 1
        try:
            yield life.engine or self._wait_for_engine(life, call)
        finally:
            self._give_back(life)

    def _give_back(self, life: _Life) -> None:
        with self._changed:
            life.users -= 1
            life.last_used = time.monotonic()
            if self._closed:
                self._changed.notify_all()

    def _begin(self) -> _Life:
        life = _Life(threading.Thread(target=self._live, daemon=True, name="mtn-edge engine"))
        life.thread.start()  # where no thread can be had, the next call tries again
        self._life = life
        return life

    def _wait_for_engine(self, life: _Life, call: Call | None) -> Engine:
        call = call or Call()
        call.attach(self._wake)  # not under our lock: whoever ends the call takes both locks the other way round
        try:
            with self._changed:
                while life.engine is None:
                    if life.fault is not None:
                        raise life.fault
                    if self._closed:
                        raise closed()
                    call.check()
                    self._changed.wait()
                return life.engine
        finally:
            call.detach()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _live(self) -> None:
        """One engine from its making to its end, on a thread of its own."""
        made: Engine | None = None
        fault: Exception | None = None
        try:
            made = self._make()
        except Exception as error:  # whatever it is, it belongs to the callers who wait
            fault = error
        with self._changed:
            life = self._life
            assert life is not None
            life.engine, life.fault, life.last_used = made, fault, time.monotonic()
            del made  # `life` alone holds it now, and lets it go
            self._changed.notify_all()
            while life.fault is None and (wait := self._left(life)) != 0:
                self._changed.wait(wait)
            # Nobody is at work in it, and nobody comes in between: the lock is held.
            life.engine = None
            give_back()
            self._life = None

    def _left(self, life: _Life) -> float | None:
        """Seconds to wait before looking again: 0 when the engine may go, None when the end of a call will tell."""
        if self._closed:
            return None if life.users else 0
        if life.users:
            return self._seconds
        return max(self._seconds - (time.monotonic() - life.last_used), 0)


class _Life:
    """An engine while it is being made and while it stands."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.engine: Engine | None = None
        self.fault: Exception | None = None
        self.users = 0
        """Calls that are at work in it or wait for it."""
        self.last_used = 0.0
