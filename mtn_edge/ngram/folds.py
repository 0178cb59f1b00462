"""What an n-gram says about its own training text: by folds, each asked of an n-gram that did not count it.

Shapes: m targets (each token of each query and its `<eos>`, in order).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mtn_edge.ngram.counting import MOST_KEYS, ORDER, Counts, add, bounded, count, nothing
from mtn_edge.ngram.model import Evidence, NGram
from mtn_edge.ngram.pruning import MOST_FOLLOWERS, fit

Integers = NDArray[np.int64]

FOLDS = 4
_QUERIES = 1 << 18
"""Queries of a chunk."""


def held_out(
    tokens: NDArray[np.integer],
    query_offsets: Integers,
    session_offsets: Integers,
    vocab_size: int,
    max_bytes: int | None = None,
    *,
    order: int = ORDER,
    most_followers: int | None = MOST_FOLLOWERS,
) -> Evidence:
    """The evidence [m] about each target from an n-gram of the other folds' sessions.

    Args:
        tokens: token numbers of all queries, one after the other, without specials.
        query_offsets: query n is `tokens[query_offsets[n] : query_offsets[n + 1]]`; target number
            `query_offsets[n] + n` is its first.
        session_offsets: session s holds queries `session_offsets[s]` to `session_offsets[s + 1] - 1`.
        vocab_size: V.
        max_bytes: of each n-gram (see `pruning.fit`).
        order: of the longest grams.
        most_followers: see `pruning.fit`.
    """
    models = leave_out(
        tokens, query_offsets, session_offsets, vocab_size, max_bytes, order=order, most_followers=most_followers
    )
    return evidence_of(models, tokens, query_offsets, session_offsets)


def leave_out(
    tokens: NDArray[np.integer],
    query_offsets: Integers,
    session_offsets: Integers,
    vocab_size: int,
    max_bytes: int | None = None,
    *,
    order: int = ORDER,
    most_followers: int | None = MOST_FOLLOWERS,
) -> list[NGram]:
    """For each fold, the n-gram of all sessions but those of the fold (for arguments see `held_out`).

    Session s belongs to fold s modulo their number, which is `FOLDS`, or that of the sessions where they are fewer;
    of one session there is no n-gram.
    """
    folds = min(FOLDS, len(session_offsets) - 1)
    if folds < 2:
        return []
    fold = _fold_of_queries(session_offsets, folds)
    parts = [nothing(order)] * folds
    for first, last in _chunks(query_offsets):
        for number in range(folds):
            chosen = _choose(tokens, query_offsets[first : last + 1], fold[first:last] == number)
            counted = count(*chosen, order)
            parts[number] = bounded(add(parts[number], counted), MOST_KEYS // folds)
    return [
        fit(_sum(parts[:number] + parts[number + 1 :]), vocab_size, max_bytes, most_followers=most_followers)
        for number in range(folds)
    ]


def evidence_of(
    models: list[NGram], tokens: NDArray[np.integer], query_offsets: Integers, session_offsets: Integers
) -> Evidence:
    """The evidence [m] about each target from the n-gram that leaves its fold out.

    The queries may be spelt in other tokens than those that were counted, their sessions must be the same.

    Args:
        models: what `leave_out` gave; without any, all is left to single tokens.
        tokens: see `held_out`.
        query_offsets: see `held_out`.
        session_offsets: see `held_out`.
    """
    targets = len(tokens) + len(query_offsets) - 1
    share, left = np.zeros(targets, np.float32), np.ones(targets, np.float32)
    matched = np.zeros(targets, np.uint8)
    fold = _fold_of_queries(session_offsets, len(models))
    starts = query_offsets + np.arange(len(query_offsets))
    for first, last in _chunks(query_offsets) if models else ():
        part = slice(starts[first], starts[last])
        of_target = np.repeat(fold[first:last], np.diff(starts[first : last + 1]))
        for number, model in enumerate(models):
            chosen = _choose(tokens, query_offsets[first : last + 1], fold[first:last] == number)
            mine = of_target == number
            share[part][mine], left[part][mine], matched[part][mine] = model.evidence(*model.walk(*chosen))
    return Evidence(share, left, matched)


def _chunks(query_offsets: Integers) -> Iterator[tuple[int, int]]:
    """The first query of each chunk and that of the next."""
    queries = len(query_offsets) - 1
    for first in range(0, queries, _QUERIES):
        yield first, min(first + _QUERIES, queries)


def _fold_of_queries(session_offsets: Integers, folds: int) -> NDArray[np.uint8]:
    fold = np.arange(len(session_offsets) - 1) % max(folds, 1)
    return np.repeat(fold.astype(np.uint8), np.diff(session_offsets))


def _choose(
    tokens: NDArray[np.integer], query_offsets: Integers, chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.integer], Integers]:
    """The tokens of some of the queries, and where each query begins and ends among them."""
    lengths = np.diff(query_offsets)
    inside = np.repeat(chosen, lengths)
    return tokens[query_offsets[0] : query_offsets[-1]][inside], np.concatenate([[0], np.cumsum(lengths[chosen])])


def _sum(parts: list[Counts]) -> Counts:
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part)
    return total
