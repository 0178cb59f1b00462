"""Encoded sessions of a server that keeps no sessions: each request brings its earlier queries along.

Whoever typed the last letter most likely types the next one too. So what the earlier queries were encoded to is kept
for a while, and a session that has grown by a query costs that query alone. Answers do not depend on what is kept: a
session that grew and one that was opened whole agree to the last bit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from mtn_edge.errors import UserError
from mtn_edge.runtime.context import context_start
from mtn_edge.runtime.suggester import Session, Suggester
from mtn_edge.text import normalize

Key = tuple[str, ...]
"""The queries that the model sees, in normal form."""


class SessionCache:
    """Opens sessions, and remembers those that were asked for last; safe to use from several threads at once.

    Args:
        suggester: the model.
        budget_bytes: what the states of all remembered sessions may weigh together.
    """

    def __init__(self, suggester: Suggester, budget_bytes: int) -> None:
        self._suggester, self._budget = suggester, budget_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, Session] = OrderedDict()  # the one that was asked for last is the last
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all states that are remembered."""
        return self._bytes

    def open(self, queries: Sequence[str]) -> Session:
        """The session after `queries`, as `Suggester.session` opens it; the caller's own.

        Of a long session only the queries that the model sees are encoded, and `Session.queries` holds only those.

        Raises:
            UserError: a query holds a lone surrogate.
        """
        try:
            normal = [text for query in queries if (text := normalize(query))]
        except ValueError as error:
            raise UserError(
                "an earlier query holds a lone surrogate, which is no text", code="bad-text", hint="leave it out"
            ) from error
        key = tuple(normal[context_start(len(normal), self._suggester.engine.max_queries) :])
        with self._lock:
            known = next((key[:length] for length in range(len(key), 0, -1) if key[:length] in self._known), ())
            session = self._known[known].fork() if known else self._suggester.session()
            if known:
                self._known.move_to_end(known)
        for query in key[len(known) :]:
            session.append(query)
        if known != key:
            self._remember(key, session.fork())
        return session

    def _remember(self, key: Key, session: Session) -> None:
        with self._lock:
            if key in self._known:  # another thread was faster
                return
            self._known[key] = session
            self._bytes += _nbytes(session)
            while self._bytes > self._budget:
                _, oldest = self._known.popitem(last=False)
                self._bytes -= _nbytes(oldest)


def _nbytes(session: Session) -> int:
    return sum(part.nbytes for part in session.state.values())
