"""The list of one key press as it grows: which texts are taken, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mtn_edge.runtime.blocklist import Blocklist, fold

Source = Literal["model", "completions", "typo"]
"""Who found a suggestion, or gave most of its probability: the model, a list of the bundle (popular queries under the
typed text, or what followed the last query), or the popular queries under a text near to the typed one."""


@dataclass(frozen=True)
class Suggestion:
    """One line of the list."""

    text: str
    """What was typed, character for character, and more; from the source `typo`, a popular query as it is."""
    score: float
    """Log-probability given the session and the typed text; below what the model gives, of the share of all popular
    queries.

    Given the typed text: among all that could follow its finished words and the letters of the one being typed.
    """
    source: Source


class Choice:
    """The list as it grows: no echo, no twins, nothing that is denied, `k` at most."""

    def __init__(self, typed: str, prefix: str, k: int, blocklist: Blocklist) -> None:
        self.prefix, self.k = prefix, k
        self.suggestions: list[Suggestion] = []
        self.denied = False
        """Whether the block list kept anything out."""
        self._typed, self._blocklist = typed, blocklist
        self._taken = {fold(prefix)}

    @property
    def full(self) -> bool:
        """Whether there are as many suggestions as were asked for."""
        return len(self.suggestions) == self.k

    def add(self, query: str, score: float, source: Source) -> None:
        """Takes `query`, in normal form; what was typed stays in it as it was typed."""
        if self.full:
            return
        twin = query if query.isascii() else fold(query)  # nothing is left to fold in ASCII of the normal form
        if twin in self._taken:
            return
        self._taken.add(twin)
        if self._blocklist.denies(twin):
            self.denied = True
        else:
            text = query if source == "typo" else self._typed + query[len(self.prefix) :]
            self.suggestions.append(Suggestion(text, score, source))
