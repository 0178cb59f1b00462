"""What is measured: anything that lists candidates for a session and the characters typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mtn_edge.evaluation.metrics import CUT

if TYPE_CHECKING:
    from mtn_edge.runtime.suggester import Session, Suggester


class SystemSession(Protocol):
    """One user's session, as a system sees it."""

    def append(self, query: str) -> None:
        """Adds a query that was searched."""

    def candidates(self, prefix: str) -> list[str]:
        """Up to ten queries, best first, each of which starts with `prefix` and is longer."""

    def log_probability(self, query: str) -> tuple[float, int] | None:
        """Log-probability (nats) that `query` comes next, and of how many tokens; None for a list without one."""


class System(Protocol):
    """A model or a baseline."""

    def start(self) -> SystemSession:
        """An empty session."""


class Model:
    """A trained model as the product shows it: its own suggestions, then its list of popular completions."""

    def __init__(self, suggester: Suggester) -> None:
        self._suggester = suggester

    def start(self) -> SystemSession:
        """An empty session."""
        return _ModelSession(self._suggester.session())


class _ModelSession:
    def __init__(self, session: Session) -> None:
        self._session = session

    def append(self, query: str) -> None:
        self._session.append(query)

    def candidates(self, prefix: str) -> list[str]:
        return [suggestion.text for suggestion in self._session.suggest(prefix, CUT).suggestions]

    def log_probability(self, query: str) -> tuple[float, int] | None:
        return self._session.log_probability(query)
