"""Which earlier queries of a long session the model still sees."""

from __future__ import annotations


def context_start(earlier: int, max_queries: int) -> int:
    """How many of the oldest of `earlier` queries the context of the next one leaves out.

    A function of the number alone, so that a session that grew query by query and one that was opened with all its
    queries see the same. Half a context goes at a time, so that a growing session keeps its cache in between.

    Args:
        earlier: queries of the session so far.
        max_queries: queries that the context holds, at least 2.
    """
    half = max_queries // 2
    return max(0, -(-(earlier - max_queries) // half)) * half
