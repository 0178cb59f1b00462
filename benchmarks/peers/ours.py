"""mtn-edge itself: an int8 bundle through the public API, all of the library's Python included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mtn_edge.runtime.engine import DEAD, Engine, Hypotheses
from mtn_edge.runtime.lists import NO_MIXING
from mtn_edge.runtime.search import Search
from mtn_edge.runtime.suggester import Session, Suggester
from peers import NEW_TOKENS, SUGGESTIONS

NO_FLOOR = "mtn-edge, no floor"
VARIANTS: dict[str, dict[str, Any]] = {"mtn-edge": {}, NO_FLOOR: {"min_probability": 0.0}}
"""Name of each way to ask, and its arguments of `Session.suggest`: the product's defaults first.

With the bundle's confidence floor hypotheses that nobody would be shown are given up early; peers have no such thing.
"""
WITHOUT_LISTS = "mtn-edge, no floor, no lists"
FUSED = "mtn-edge, no floor, no lists, n-gram and copying"
"""What mixing costs is seen against the one before."""


class Ours:
    """`Session.suggest` of an open bundle, which writes `NEW_TOKENS` tokens at most, as its peers do.

    Args:
        name: what to call it.
        bundle: its folder.
        lists: whether popular queries and followers are mixed in as the bundle says, or not at all.
        engine: in place of the bundle's own.
        arguments: of `Session.suggest`.
    """

    steps: int | None

    def __init__(
        self, name: str, bundle: Path, *, lists: bool = True, engine: Engine | None = None, **arguments: Any
    ) -> None:
        self.name = name
        self.suggester = Suggester.open(bundle, threads=1)
        if engine is not None:
            self.suggester.engine = engine
        search = self.suggester.search
        decoding = replace(search.decoding, max_steps=NEW_TOKENS)
        if not lists:
            decoding = replace(decoding, mix_complete=NO_MIXING, mix_suggest=NO_MIXING)
        self.suggester.search = Search(self.suggester.engine, search.tokenizer, decoding)
        self._arguments = arguments
        self._session: Session = self.suggester.session()
        self.steps = 0
        self.least = DEAD
        """Log-probability at which the last search gave a hypothesis up."""
        self._watch_search()

    def start(self, queries: list[str]) -> None:
        """Opens a session: each query is encoded once."""
        self._session = self.suggester.session(queries)

    def suggest(self, typed: str) -> list[str]:
        """The list of the product."""
        self.steps = 0
        result = self._session.suggest(typed, SUGGESTIONS, **self._arguments)
        return [each.text for each in result.suggestions]

    def _watch_search(self) -> None:
        """Notes the steps of each search (it returns one token of every hypothesis for each), and its floor."""
        engine: Any = self.suggester.engine
        search = engine.search

        def watched(*arguments: Any, floor: float, **settings: Any) -> Hypotheses:
            found: Hypotheses = search(*arguments, floor=floor, **settings)
            self.steps, self.least = found.tokens.shape[1], found.mass + floor
            return found

        engine.search = watched
