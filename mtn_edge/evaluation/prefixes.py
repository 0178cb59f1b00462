"""Which typed prefixes of a query are asked about: a rule without chance, so that a file can hold the answers."""

from __future__ import annotations

import hashlib

PREFIX_GROUPS: dict[str, tuple[int, int | None]] = {"1-3": (1, 3), "4-7": (4, 7), "8+": (8, None)}
"""Groups of prefix lengths in characters, shortest and longest; None: up to one character less than the query."""


def prefix_lengths(query: str) -> tuple[int, ...]:
    """One length in each group of `PREFIX_GROUPS` that the query allows, ascending; never the whole query.

    The length is the shortest allowed one plus the first eight bytes (big-endian) of sha256 of `group query` in UTF-8,
    modulo the number of allowed ones.
    """
    lengths = []
    for group, (low, high) in PREFIX_GROUPS.items():
        longest = len(query) - 1 if high is None else min(high, len(query) - 1)
        if longest >= low:
            digest = hashlib.sha256(f"{group} {query}".encode()).digest()
            lengths.append(low + int.from_bytes(digest[:8], "big") % (longest - low + 1))
    return tuple(lengths)
