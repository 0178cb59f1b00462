"""Which prefixes of a query are asked about: a pure function of the query, so that anybody can know them beforehand."""

from __future__ import annotations

from hashlib import sha256

PREFIX_LENGTHS: dict[str, tuple[int, int | None]] = {"1-3": (1, 3), "4-7": (4, 7), "8+": (8, None)}
"""Groups of prefix lengths in characters, lowest and highest; one prefix is asked in each that a query allows."""


def prefix_lengths(query: str) -> tuple[int, ...]:
    """The lengths of the prefixes of `query` that are asked about, in characters, ascending; never the whole query.

    In each group that the query allows: lowest + h mod (number of lengths allowed), where h is the first 8 bytes of
    SHA-256 of the group's name, a blank and the query in UTF-8, highest byte first.
    """
    lengths = []
    for group, (low, high) in PREFIX_LENGTHS.items():
        longest = len(query) - 1 if high is None else min(high, len(query) - 1)
        if longest >= low:
            drawn = int.from_bytes(sha256(f"{group} {query}".encode()).digest()[:8], "big")
            lengths.append(low + drawn % (longest - low + 1))
    return tuple(lengths)
