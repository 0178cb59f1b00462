"""Which queries hold an address or a number of a person: dropped before anything is counted or learnt.

The rules look at the normal form of a query (so that full-width digits and capitals do not slip through) and drop
the whole query. The first that applies is the cause that is counted:

- `email`: something, `@`, a domain with a point (`jo@example.com`), also with blanks around the `@`; any name at a
  well-known mail provider, also spelled out (`jo at gmail dot com`). `@nasa` and `gmail.com` stay.
- `card`: 13 to 19 digits, in one run or in groups, that pass the check sum of payment cards.
- `number`: seven or more digits in one run (accounts, parcels, telephone numbers without blanks), also inside a
  word; social security numbers (3-2-4); 13 or more digits in groups of three or more on average.
- `phone`: North American numbers (3-3-4, with or without 1; 3-4 with a dash or point); eight or more digits in groups
  of which the first starts with `+` or `0`.

What stays: years and lists of years (`2004 2005 2006 2007`), dates (`03/14/2006`, `2006-03-14`), times, five-digit
postal codes, also with four more (`90210-1234`), model numbers (`boeing 747-400`, `rtx 4090`, `iso 9001 2000`),
network addresses, amounts with commas (`1,000,000`). Names and street addresses have no shape that a rule could
know: the gate of K distinct users is what keeps them out.
"""

from __future__ import annotations

import re
from typing import Literal

Cause = Literal["email", "card", "number", "phone"]
CAUSES: tuple[Cause, ...] = ("email", "card", "number", "phone")

_PROVIDER = r"(?:gmail|googlemail|yahoo|ymail|hotmail|outlook|aol|msn|live|icloud|comcast|verizon|gmx)"
_EMAIL = re.compile(
    rf"\S ?@ ?[^\s@]+\.[^\s@.]"
    rf"|\S ?@ ?{_PROVIDER}\b"
    rf"|\S ?(?:\bat\b|\(at\)|\[at\]) ?{_PROVIDER} ?(?:dot\b|\(dot\)|\[dot\]|\.) ?\w"
)
# A text without this cannot hold any of the numbers below; most queries end here.
_SEVEN_DIGITS = re.compile(r"(?:\d\D{0,3}){7}")
_HARMLESS = re.compile(
    r"(?<![\d:])\d{1,2}:\d{2}(?::\d{2})?(?![\d:])"  # times
    r"|(?<![\d./-])(?:[0-3]?\d([./-])[0-3]?\d\1(?:1\d|20)\d\d|(?:1\d|20)\d\d([./-])[0-3]?\d\2[0-3]?\d)(?![./-]?\d)"
    r"|(?<!\d )(?<![\d+])[0-3]?\d [0-3]?\d (?:1\d|20)\d\d(?! ?\d)"
)
_RUN = re.compile(r"\d{7}")
_CHAIN = re.compile(r"\+? ?\(?\d+(?:[ ./()\-\u2010-\u2015\u2212]{1,3}\d+)*")
_YEAR = re.compile(r"(?:1\d|20)\d\d")
_SOCIAL_SECURITY = re.compile(r"(?<![\d-])\d{3}([- ])\d{2}\1\d{4}(?![\d-])")
_LOCAL_PHONE = re.compile(r"(?<![\d.-])\d{3}[.\-\u2010-\u2015\u2212]\d{4}(?![.-]?\d)")


def personal(query: str) -> Cause | None:
    """Why `query` (normal form) must be dropped as personal, or None."""
    if ("@" in query or "at" in query) and _EMAIL.search(query):
        return "email"
    if not _SEVEN_DIGITS.search(query):
        return None
    text = _HARMLESS.sub(",", query)
    chains = [(found.group(), re.findall(r"\d+", found.group())) for found in _CHAIN.finditer(text)]
    chains = [(chain, groups) for chain, groups in chains if not all(map(_YEAR.fullmatch, groups))]
    long = ["".join(groups) for _, groups in chains if _is_long(groups)]
    if any(map(_is_card, long)):
        return "card"
    if long or _RUN.search(text) or _SOCIAL_SECURITY.search(text):
        return "number"
    if _LOCAL_PHONE.search(text) or any(_is_phone(chain, groups) for chain, groups in chains):
        return "phone"
    return None


def _is_card(digits: str) -> bool:
    """Length and check sum (Luhn) of a payment card number."""
    if not 13 <= len(digits) <= 19:
        return False
    total = 0
    for place, digit in enumerate(map(int, reversed(digits))):
        doubled = 2 * digit if place % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def _is_long(groups: list[str]) -> bool:
    digits = sum(map(len, groups))
    return digits >= 13 and digits >= 3 * len(groups)  # counting up to twenty is no account


def _is_phone(chain: str, groups: list[str]) -> bool:
    sizes = [len(group) for group in groups]
    if any(sizes[at : at + 3] == [3, 3, 4] for at in range(len(sizes))):
        return True
    starts_like_one = "+" in chain or groups[0].startswith("0")
    postal = sizes == [5, 4] or all(len(group) == 5 or _YEAR.fullmatch(group) for group in groups)
    return starts_like_one and len(groups) > 1 and sum(sizes) >= 8 and not postal
