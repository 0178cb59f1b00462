"""Baselines that every model is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtn_edge.errors import UserError
from mtn_edge.evaluation.metrics import CUT
from mtn_edge.evaluation.systems import System, SystemSession
from mtn_edge.runtime.completions import Completions

Popularity = Sequence[tuple[str, int]]
"""Queries of the training split with their counts, most frequent first."""


class MostPopularCompletion:
    """MPC: the most frequent queries of the training split that start with what is typed, whatever the session.

    With nothing typed these are the most frequent queries of all. The whole popularity list of the dataset is used,
    not the part of it that a bundle carries.
    """

    def __init__(self, popularity: Popularity) -> None:
        self._list = Completions(popularity)

    def start(self) -> SystemSession:
        """An empty session; this baseline keeps nothing in it."""
        return _Sessionless(self.complete)

    def complete(self, prefix: str) -> list[str]:
        """The ten most frequent queries that start with `prefix` and are longer, blanks at the end aside."""
        echo = prefix.rstrip(" ")
        return [query for query, _ in self._list.top(prefix, CUT + 1) if query != echo][:CUT]


class _Sessionless:
    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self._complete = complete

    def append(self, query: str) -> None:
        """Nothing is remembered."""

    def candidates(self, prefix: str) -> list[str]:
        return self._complete(prefix)

    def log_probability(self, query: str) -> None:
        """A list has no probabilities."""


BASELINES: dict[str, Callable[[Popularity], System]] = {"mpc": MostPopularCompletion}
"""Every baseline by the name that `--baselines` takes."""


def parse_names(text: str) -> list[str]:
    """The baselines that `--baselines` names, in its order; `none` names none.

    Raises:
        UserError: a name is unknown.
    """
    names = list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if names == ["none"]:
        return []
    for name in names:
        if name not in BASELINES:
            raise UserError(
                f"`--baselines` names `{name}`, which is not a baseline",
                code="unknown-baseline",
                hint=f"take any of {', '.join(BASELINES)}, or none",
            )
    return names
