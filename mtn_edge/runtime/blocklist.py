"""Words and phrases that are never suggested: whole words only, so that innocent words which contain one survive.

Where a script writes no blanks between words (Chinese, Japanese, Thai and others), an entry is found anywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from mtn_edge.errors import UserError
from mtn_edge.text import normalize

_UNSPACED = ("CJK ", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""How the names of letters begin whose scripts write no blanks between words."""


def fold(text: str) -> str:
    """The form in which two texts count as one: normal form without case."""
    return normalize(text).casefold()


class Blocklist:
    """Denied words and phrases.

    Args:
        entries: one word or phrase each; matched after folding, word by word.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._phrases = {words for entry in entries if (words := _words(entry))}
        self._lengths = sorted({len(phrase) for phrase in self._phrases})

    @classmethod
    def load(cls, path: Path) -> Blocklist:
        """Reads a `blocklist.txt`: a word or phrase on each line; empty lines count for nothing.

        Raises:
            UserError: the file is not UTF-8.
        """
        try:
            return cls(path.read_text(encoding="utf-8").splitlines())
        except UnicodeDecodeError as error:
            raise UserError(f"`{path}` is not UTF-8 text", code="bad-blocklist", hint="save it as UTF-8") from error

    def denies(self, text: str) -> bool:
        """Whether `text` holds a denied word or phrase."""
        if not self._phrases:
            return False
        words = _words(text)
        return any(
            words[start : start + length] in self._phrases
            for length in self._lengths
            for start in range(len(words) - length + 1)
        )


def _words(text: str) -> tuple[str, ...]:
    """The runs of letters, marks and digits of `text`, folded; where no blanks are written, each letter is a word."""
    return tuple("".join(map(_spaced, fold(text))).split())


def _spaced(letter: str) -> str:
    if unicodedata.category(letter)[0] not in "LMN":
        return " "
    return f" {letter} " if unicodedata.name(letter, "").startswith(_UNSPACED) else letter
