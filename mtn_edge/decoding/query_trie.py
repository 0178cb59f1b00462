"""A list of queries as a state table: the search can write these token sequences and nothing else.

The table is the minimal automaton of the list: sequences that begin alike share their first states, and those that end
alike share their last ones, so that it stays small.

Shapes: S states, V tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtn_edge.decoding.prefix_constraint import FORBIDDEN, MOST_STATES
from mtn_edge.tokenizer import EOS


def query_table(queries: Sequence[Sequence[int]], vocab_size: int) -> NDArray[np.uint8]:
    """The table that accepts each of `queries` followed by `<eos>`, and nothing else.

    Args:
        queries: token numbers of each query, without specials; in any order, and one may come twice.
        vocab_size: tokens of the vocabulary, V.

    Returns:
        For each state and token [S, V] the number of the next state and 1, or `FORBIDDEN`. A search starts in state 0;
        `<eos>` leads from a state to itself. S is the least number of states possible, at least 1.

    Raises:
        ValueError: a token is `<eos>` or is not in the vocabulary, or there are more than `MOST_STATES` states.
    """
    merged, ends = _minimal(_tree(queries, vocab_size), set(map(tuple, queries)))
    if len(merged) > MOST_STATES:
        raise ValueError(f"`queries` must fit into {MOST_STATES} states, got {len(merged)}")
    table = np.full((len(merged), vocab_size), FORBIDDEN, dtype=np.uint8)
    for state, following in enumerate(merged):
        table[state, list(following)] = [after + 1 for after in following.values()]
    table[ends, EOS] = [end + 1 for end in ends]
    return table


def fitting(queries: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The first of `queries` that surely fit into one table: their beginnings are no more than `MOST_STATES`."""
    beginnings: set[tuple[int, ...]] = {()}
    for count, query in enumerate(queries):
        beginnings.update(tuple(query[:end]) for end in range(1, len(query) + 1))
        if len(beginnings) > MOST_STATES:
            return list(queries[:count])
    return list(queries)


_Arcs = dict[int, int]
"""The next state after each token that may come."""


def _tree(queries: Sequence[Sequence[int]], vocab_size: int) -> dict[tuple[int, ...], None]:
    """Every beginning of every query, shorter ones before longer ones that begin with them."""
    beginnings: dict[tuple[int, ...], None] = {(): None}
    for query in queries:
        for token in query:
            if token == EOS or not 0 <= token < vocab_size:
                raise ValueError(f"`queries` must hold tokens from 0 to {vocab_size - 1} without {EOS}, got {token}")
        beginnings.update(dict.fromkeys(tuple(query[:end]) for end in range(1, len(query) + 1)))
    return beginnings


def _minimal(beginnings: dict[tuple[int, ...], None], whole: set[tuple[int, ...]]) -> tuple[list[_Arcs], list[int]]:
    """States of the minimal automaton, the start first, and those in which a query may end.

    From the ends of the tree to its root: two beginnings that may end, and that go on, in the same way are one state.
    """
    arcs: dict[tuple[int, ...], _Arcs] = {beginning: {} for beginning in beginnings}
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    states: list[tuple[_Arcs, bool]] = []
    for beginning in reversed(beginnings):
        following = arcs.pop(beginning)
        key = (beginning in whole, tuple(sorted(following.items())))
        if key not in known:
            known[key] = len(states)
            states.append((following, key[0]))
        if beginning:
            arcs[beginning[:-1]][beginning[-1]] = known[key]
    # The root came last, and no other state can equal it: it spells the longest query.
    last = len(states) - 1
    merged = [{token: last - state for token, state in following.items()} for following, _ in reversed(states)]
    return merged, [state for state, (_, ends) in enumerate(reversed(states)) if ends]
