"""Words and phrases that are never suggested: whole words only, so that innocent words which contain one survive.

Where a script writes no blanks between words (Chinese, Japanese, Thai and others), an entry is found anywhere. Only
letters, marks and digits count: an entry of signs alone (`!!!`, an emoji) denies nothing, `c++` denies the word `c`.

A list is a text file with a word or phrase on each line, or holds salted hashes of them: then it can be shipped in an
app without being read there by the way. (Hashes of words hide nothing from somebody who tries a dictionary.)
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mtn_edge.errors import UserError
from mtn_edge.text import normalize

_UNSPACED = (
    *((0x0E00, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Tibetan, Myanmar; Khmer
    *((0x3005, 0x3007), (0x3021, 0x30FF), (0x31F0, 0x31FF)),  # ideographic marks and numerals, hiragana, katakana
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),  # Han
    *((0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0x116D0, 0x116FF)),  # more Myanmar
    *((0x1AFF0, 0x1B16F), (0x20000, 0x323AF)),  # more kana; more Han
)
"""Code points, first and last, of the scripts that write no blanks between words: the same on every device, whatever
its edition of Unicode."""
_DECORATION = (
    *((0x0334, 0x0338), (0x034F, 0x034F)),  # strokes through letters, grapheme joiner
    *((0x115F, 0x1160), (0x180B, 0x180F)),  # fillers, Mongolian variants
    *((0x20D0, 0x20FF), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)),  # frames and keycaps, variants
)
"""Marks that change how a letter or an emoji looks and never which one it is: a word is the same without them."""
_ASCII_WORDS = re.compile("[a-z0-9]+")
_HASHED = "mtn-edge blocklist of salted hashes: "
"""How the first line of a hashed list begins; the salt follows, then a line for each entry: its words, its hash."""
_HASHED_LINE = re.compile("([1-9][0-9]{0,8}) ([0-9a-f]{16})")
_HASH_BYTES = 8
"""An innocent phrase meets the hash of one of n entries with probability n / 2**64."""


def fold(text: str) -> str:
    """The form in which two texts count as one: normal form without case."""
    normal = normalize(text)
    folded = normal.casefold()
    # Folding may leave letters and accents that compose: then the normal form of the result counts.
    return normal if folded == normal else normalize(folded)


@dataclass(frozen=True)
class _Part:
    """Entries of one origin."""

    mark: Callable[[str], str]
    """What stands for a phrase (its words, folded, a blank between two): itself, or its hash."""
    marks: frozenset[str]
    lengths: tuple[int, ...]
    """The numbers of words that entries have."""

    def holds(self, words: list[str]) -> bool:
        return any(
            self.mark(" ".join(words[start : start + length])) in self.marks
            for length in self.lengths
            for start in range(len(words) - length + 1)
        )


class Blocklist:
    """Denied words and phrases.

    Args:
        entries: one word or phrase each; matched after folding, word by word.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        phrases = [words for entry in entries if (words := _words(entry))]
        marks = frozenset(map(" ".join, phrases))
        self._parts: tuple[_Part, ...] = (
            (_Part(str, marks, tuple(sorted({len(words) for words in phrases}))),) if marks else ()
        )

    @classmethod
    def load(cls, path: Path) -> Blocklist:
        """Reads a block list: a word or phrase on each line (empty lines count for nothing), or what `hashed` gave.

        Raises:
            UserError: the file cannot be read, is not UTF-8, or a line of a hashed list is no hash.
        """
        lines = _lines(path)
        return cls._of(_hashed_part(path, lines)) if _is_hashed(lines) else cls(lines)

    @classmethod
    def _of(cls, *parts: _Part) -> Blocklist:
        made = cls()
        made._parts = parts
        return made

    def __or__(self, other: Blocklist) -> Blocklist:
        """What either of two lists denies."""
        return Blocklist._of(*self._parts, *other._parts)

    def __bool__(self) -> bool:
        """Whether it denies anything."""
        return bool(self._parts)

    def current(self) -> Blocklist:
        """This list, which never changes (see `watched_blocklist.WatchedBlocklist.current`)."""
        return self

    def denies(self, text: str) -> bool:
        """Whether `text` holds a denied word or phrase."""
        if not self._parts:
            return False
        words = _words(text)
        return any(part.holds(words) for part in self._parts)


def hashed(entries: Iterable[str]) -> str:
    """The text of a block list that denies what `Blocklist(entries)` denies and holds hashes only.

    The salt comes from the entries: the same list gives the same text, and no two lists share their hashes.
    """
    phrases = sorted({(len(words), " ".join(words)) for entry in entries if (words := _words(entry))})
    salt = hashlib.sha256("\n".join(phrase for _, phrase in phrases).encode()).hexdigest()[:32]
    mark = _hashing(salt)
    lines = sorted(f"{length} {mark(phrase)}" for length, phrase in phrases)
    return "\n".join([_HASHED + salt, *lines, ""])


def packed(path: Path, *, as_hashes: bool) -> str:
    """The text of the list in `path` as a bundle carries it: its lines, or their hashes; a hashed list stays as it is.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
    lines = _lines(path)
    return hashed(lines) if as_hashes and not _is_hashed(lines) else "\n".join([*lines, ""])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(
            f"the block list `{path}` cannot be read ({error.strerror})",
            code="bad-blocklist",
            hint="name a text file with a word or phrase on each line",
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"`{path}` is not UTF-8 text", code="bad-blocklist", hint="save it as UTF-8") from error


def _is_hashed(lines: list[str]) -> bool:
    return bool(lines) and lines[0].startswith(_HASHED)


def _hashing(salt: str) -> Callable[[str], str]:
    salted = hashlib.sha256(bytes.fromhex(salt))

    def mark(phrase: str) -> str:
        digest = salted.copy()
        digest.update(phrase.encode())
        return digest.hexdigest()[: 2 * _HASH_BYTES]

    return mark


def _hashed_part(path: Path, lines: list[str]) -> _Part:
    salt = lines[0].removeprefix(_HASHED)
    found = [_HASHED_LINE.fullmatch(line) for line in lines[1:]]
    wrong = 1 if re.fullmatch("[0-9a-f]{32}", salt) is None else found.index(None) + 2 if None in found else 0
    if wrong:
        raise UserError(
            f"line {wrong} of `{path}`, a block list of hashes, is no {'salt' if wrong == 1 else 'hash'}",
            code="bad-blocklist",
            hint="make the list again",
        )
    entries = [match.groups() for match in found if match is not None]
    return _Part(_hashing(salt), frozenset(mark for _, mark in entries), tuple(sorted({int(n) for n, _ in entries})))


def _words(text: str) -> list[str]:
    """The runs of letters, marks and digits of `text`, folded; where no blanks are written, each letter is a word."""
    if text.isascii():
        return _ASCII_WORDS.findall(text.lower())
    return "".join(map(_spaced, fold(text))).split()


@lru_cache(maxsize=4096)
def _spaced(letter: str) -> str:
    category = unicodedata.category(letter)
    if category == "Cf" or _in(_DECORATION, letter):  # a joiner inside a word does not cut it in two
        return ""
    if category[0] not in "LMN":
        return " "
    return f" {letter} " if _in(_UNSPACED, letter) else letter


def _in(ranges: tuple[tuple[int, int], ...], letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in ranges)
