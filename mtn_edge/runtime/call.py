"""One request, which a deadline or another thread can end while it runs."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

TOO_LATE = "the deadline passed before the model had answered"
_FEW = 256
"""Deadlines that are kept without looking whether their requests are done."""


class CallEndedError(Exception):
    """The request was ended; the text says why."""


class Call:
    """A request. Whoever works on it asks `check`, or says with `attach` how to be stopped.

    Attributes:
        done: whether the request was answered; whoever made the call says so.
    """

    def __init__(self) -> None:
        self.done = False
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._stop: Callable[[], None] | None = None

    def end(self, reason: str) -> None:
        """Ends the request, from any thread; the first reason counts. One that is done already is not touched."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
                if self._stop is not None:
                    self._stop()

    def end_at(self, moment: float) -> None:
        """Ends the request as too late when `time.monotonic` reaches `moment`."""
        if moment <= time.monotonic():
            self.end(TOO_LATE)
        else:
            _WATCH.add(moment, self)

    def check(self) -> None:
        """Raises `CallEndedError` once the request was ended."""
        if self._reason is not None:
            raise CallEndedError(self._reason)

    def attach(self, stop: Callable[[], None]) -> None:
        """Has `stop` called when the request is ended, at once if it was.

        Args:
            stop: stops the work; called from the thread that ends the request, at most once.
        """
        with self._lock:
            self._stop = stop
            if self._reason is not None:
                stop()

    def detach(self) -> None:
        """Forgets what `attach` was given."""
        with self._lock:
            self._stop = None


class _Watch:
    """The one thread that ends requests at their deadlines; it starts with the first deadline and sleeps in between."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._deadlines: list[tuple[float, int, Call]] = []
        self._numbers = itertools.count()
        self._wakes_at = float("inf")
        self._thread: threading.Thread | None = None
        self._sweep_at = _FEW

    def add(self, moment: float, call: Call) -> None:
        with self._condition:
            if len(self._deadlines) >= self._sweep_at:
                self._sweep()
            heapq.heappush(self._deadlines, (moment, next(self._numbers), call))
            if self._thread is None or not self._thread.is_alive():  # a fork takes no threads along
                self._thread = threading.Thread(target=self._run, name="mtn-edge deadlines", daemon=True)
                self._thread.start()
            # Requests are mostly done before their deadline: the thread is woken only for one earlier than it expects.
            elif moment < self._wakes_at:
                self._condition.notify()

    def _sweep(self) -> None:
        """Forgets requests that were answered long before their deadline."""
        self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
        heapq.heapify(self._deadlines)
        self._sweep_at = max(_FEW, 2 * len(self._deadlines))

    def _run(self) -> None:
        while True:
            with self._condition:
                self._wakes_at = self._deadlines[0][0] if self._deadlines else float("inf")
                left = self._wakes_at - time.monotonic()
                if left > 0:
                    self._condition.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                _, _, call = heapq.heappop(self._deadlines)
            call.end(TOO_LATE)


_WATCH = _Watch()
