"""What is compared: systems that answer a key press, each in a file of its own, built from the same checkpoint."""

from __future__ import annotations

from typing import Protocol

SUGGESTIONS = BEAM = 8
"""Suggestions asked for, and hypotheses of a search."""
NEW_TOKENS = 8
"""Tokens at most that a peer writes after the finished words of the typed text."""


class System(Protocol):
    """One competitor. Everything that its user must do at a key press happens inside `suggest`."""

    name: str
    """What tables and plots call it."""
    steps: int | None
    """Decoder steps of the last `suggest`; None where the system does not tell."""

    def start(self, queries: list[str]) -> None:
        """Prepares whatever can be kept between key presses of a session with these earlier queries."""
        ...

    def suggest(self, typed: str) -> list[str]:
        """Whole texts that begin with `typed`, best first."""
        ...


def finished_words(typed: str) -> str:
    """The typed text without the word that is still being typed; the blank before that word goes with it."""
    return typed.rpartition(" ")[0]


def distinct_continuations(texts: list[str], typed: str) -> list[str]:
    """What may be shown: texts that begin with `typed` and go on, each once."""
    return [text for text in dict.fromkeys(texts) if text.startswith(typed) and text.strip() != typed.strip()]
