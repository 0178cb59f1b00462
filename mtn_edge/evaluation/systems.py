"""What is measured: anything that lists candidates for a session and the characters typed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mtn_edge.evaluation.metrics import CUT

if TYPE_CHECKING:
    from mtn_edge.runtime.suggester import Session, Suggester

CEILING = "ceiling"
"""The name of the oracle among the systems."""


class Candidates(NamedTuple):
    """Up to ten queries, best first, each of which starts with what is typed and is longer."""

    texts: list[str]
    probabilities: list[float] | None = None
    """How probable the system says each is, given what is typed; None where it says nothing."""


class SystemSession(Protocol):
    """One user's session, as a system sees it."""

    def append(self, query: str) -> None:
        """Adds a query that was searched."""

    def candidates(self, prefix: str) -> Candidates:
        """What it lists for the typed text `prefix`."""

    def log_probability(self, query: str) -> tuple[float, int] | None:
        """Log-probability (nats) that `query` comes next, and of how many tokens; None for a list without one."""


class System(Protocol):
    """A model or a baseline."""

    @property
    def nbytes(self) -> int | None:
        """What it takes to store it, in bytes (see `docs/evaluation.md`); None where that means nothing."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What was chosen for it on the data, by name."""

    def start(self) -> SystemSession:
        """An empty session."""


class Model:
    """A trained model as the product shows it: its own suggestions, with its lists."""

    def __init__(
        self, suggester: Suggester, nbytes: int | None = None, settings: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._suggester = suggester
        self.nbytes, self.settings = nbytes, settings

    def start(self) -> SystemSession:
        """An empty session."""
        return _ModelSession(self._suggester.session())


class _ModelSession:
    def __init__(self, session: Session) -> None:
        self._session = session

    def append(self, query: str) -> None:
        self._session.append(query)

    def candidates(self, prefix: str) -> Candidates:
        found = self._session.suggest(prefix, CUT).suggestions
        return Candidates([each.text for each in found], [math.exp(each.score) for each in found])

    def log_probability(self, query: str) -> tuple[float, int] | None:
        return self._session.log_probability(query)


class OracleSession(Protocol):
    """A session of a workload whose probabilities are known (see `mtn_edge.data.oracle`)."""

    def append(self, query: str) -> None:
        """Adds a query that was searched."""

    def candidates(self, prefix: str) -> list[str]:
        """The ten most probable completions."""

    def log_probability(self, query: str) -> float:
        """Log-probability (nats) that the whole `query` comes next."""


class Oracle(Protocol):
    """What knows the workload's probabilities."""

    def start(self) -> OracleSession:
        """An empty session."""


class Ceiling:
    """The oracle as a system: no other can be better in the mean.

    Its probability is that of the whole query; per token it is over the tokens that the dataset's tokenizer gives the
    query, and one for its end.

    Args:
        oracle: the workload's.
        encode: the dataset's tokenizer.
    """

    nbytes = None
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, oracle: Oracle, encode: Callable[[str], list[int]]) -> None:
        self._oracle, self._encode = oracle, encode

    def start(self) -> SystemSession:
        """An empty session."""
        return _CeilingSession(self._oracle.start(), self._encode)


class _CeilingSession:
    def __init__(self, session: OracleSession, encode: Callable[[str], list[int]]) -> None:
        self._session, self._encode = session, encode

    def append(self, query: str) -> None:
        self._session.append(query)

    def candidates(self, prefix: str) -> Candidates:
        return Candidates(self._session.candidates(prefix)[:CUT])

    def log_probability(self, query: str) -> tuple[float, int] | None:
        return self._session.log_probability(query), len(self._encode(query)) + 1
