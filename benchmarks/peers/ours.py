"""mtn-edge itself: an int8 bundle through the public API, all of the library's Python included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtn_edge.runtime.suggester import Session, Suggester
from peers import SUGGESTIONS

VARIANTS: dict[str, dict[str, Any]] = {"mtn-edge": {}}
"""Name of each way to open the bundle, with its settings of `Suggester.open`: the product's defaults first."""


class Ours:
    """`Session.suggest` of an open bundle.

    Args:
        name: what to call it.
        bundle: its folder.
        settings: of `Suggester.open`.
    """

    steps: int | None

    def __init__(self, name: str, bundle: Path, **settings: Any) -> None:
        self.name = name
        self.suggester = Suggester.open(bundle, threads=1, **settings)
        self._session: Session = self.suggester.session()
        self.steps = None
        self._count_steps()

    def start(self, queries: list[str]) -> None:
        """Opens a session: each query is encoded once."""
        self._session = self.suggester.session(queries)

    def suggest(self, typed: str) -> list[str]:
        """The list of the product."""
        return [each.text for each in self._session.suggest(typed, SUGGESTIONS).suggestions]

    def _count_steps(self) -> None:
        """Notes the steps of each search: the engine returns one token of every hypothesis for each."""
        engine: Any = self.suggester.engine
        search = engine.search

        def counted(*arguments: Any, **settings: Any) -> Any:
            found = search(*arguments, **settings)
            self.steps = int(found[0].shape[1])
            return found

        engine.search = counted
