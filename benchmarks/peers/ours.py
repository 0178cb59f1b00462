"""mtn-edge itself: an int8 bundle through the public API, all of the library's Python included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mtn_edge.runtime.search import Search
from mtn_edge.runtime.suggester import Session, Suggester
from peers import NEW_TOKENS, SUGGESTIONS

VARIANTS: dict[str, dict[str, Any]] = {
    "mtn-edge": {"max_steps": NEW_TOKENS},
    "mtn-edge, no floor": {"max_steps": NEW_TOKENS, "min_probability": 0.0},
}
"""Name of each way to open the bundle, and what differs from its own settings: the steps of the race, the floor."""


class Ours:
    """`Session.suggest` of an open bundle.

    Args:
        name: what to call it.
        bundle: its folder.
        settings: of its `Decoding` that are not the bundle's own.
    """

    steps: int | None

    def __init__(self, name: str, bundle: Path, **settings: Any) -> None:
        self.name = name
        self.suggester = Suggester.open(bundle, threads=1)
        search = self.suggester.search
        self.suggester.search = Search(search.engine, search.tokenizer, replace(search.decoding, **settings))
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
            self.steps = int(found.tokens.shape[1])
            return found

        engine.search = counted
