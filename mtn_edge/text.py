"""One normal form for query text, shared by the log reader and the runtime.

The model sees normal text only. What the user typed is never rewritten: a suggestion is the typed text, character
for character, plus what the model adds to its normal form.
"""

from __future__ import annotations

import re
import unicodedata

_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
# Direction marks and the byte-order mark carry no letter; joiners (U+200C, U+200D) do, in Persian and in emoji.
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\u00ad]")


def normalize_prefix(text: str) -> str:
    """Normal form of text that is still being typed: a final blank counts and stays, as one space.

    NFKC (full-width letters and ligatures are folded, no letter is lost), lower case letter by letter (so that a
    letter never depends on what is typed after it), control characters and runs of blanks as one space, direction
    marks dropped, leading blanks dropped.

    Raises:
        ValueError: `text` holds a lone surrogate, which no UTF-8 text can hold.
    """
    if text.isascii():
        return _BLANKS.sub(" ", text.lower()).lstrip(" ")
    text.encode("utf-8")  # refuses lone surrogates (UnicodeEncodeError is a ValueError)
    # Invisible characters go first: one between a letter and its accent would keep them from composing.
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    lowered = "".join(letter.lower() for letter in folded)
    # Lower-casing may leave a sequence that composes (for example capital dotted I): normalize once more.
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", lowered)).lstrip(" ")


def normalize(text: str) -> str:
    """Normal form of a finished query: `normalize_prefix` without the final blank."""
    return normalize_prefix(text).rstrip(" ")
