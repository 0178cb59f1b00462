"""The table of a query list: exactly these sequences, with as few states as can be."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mtn_edge.decoding.prefix_constraint import FORBIDDEN, MOST_STATES
from mtn_edge.decoding.query_trie import fitting, query_table
from mtn_edge.tokenizer import EOS

VOCABULARY = 6
TOKENS = [0, 1, 3, 4, 5]
QUERIES = st.lists(st.lists(st.sampled_from(TOKENS), max_size=4), max_size=8)


def accepted(table: NDArray[np.uint8], longest: int) -> set[tuple[int, ...]]:
    """Every sequence that the table lets through to `<eos>`, by trying all."""
    found = set()
    for length in range(longest + 1):
        for tokens in product(TOKENS, repeat=length):
            state = 0
            for token in tokens:
                entry = int(table[state, token])
                if entry == FORBIDDEN:
                    break
                state = entry - 1
            else:
                if table[state, EOS] != FORBIDDEN:
                    assert table[state, EOS] == state + 1
                    found.add(tokens)
    return found


@given(QUERIES)
def test_the_queries_and_nothing_else_are_accepted(queries: list[list[int]]) -> None:
    table = query_table(queries, VOCABULARY)
    assert (table.dtype, table.shape[1]) == (np.uint8, VOCABULARY)
    assert accepted(table, 5) == set(map(tuple, queries))


@given(QUERIES)
def test_no_two_states_accept_the_same_and_all_are_of_use(queries: list[list[int]]) -> None:
    """Then no smaller automaton accepts the queries (Myhill and Nerode)."""
    wholes = {tuple(query) for query in queries}
    beginnings = {whole[:end] for whole in wholes for end in range(len(whole) + 1)} or {()}
    rests = {frozenset(whole[len(b) :] for whole in wholes if whole[: len(b)] == b) for b in beginnings}
    assert len(query_table(queries, VOCABULARY)) == len(rests)


def test_order_and_repetition_change_nothing_but_names() -> None:
    generator = random.Random(1)
    queries = [generator.choices(TOKENS, k=generator.randrange(1, 5)) for _ in range(30)]
    once = query_table(queries, VOCABULARY)
    again = query_table(queries[::-1] + queries, VOCABULARY)
    assert accepted(once, 4) == accepted(again, 4)
    assert once.shape == again.shape


def test_a_known_list_has_a_known_table() -> None:
    table = query_table([[3, 5], [4, 5], [3]], VOCABULARY)
    assert table.shape == (4, VOCABULARY)
    after_3, after_4 = int(table[0, 3]) - 1, int(table[0, 4]) - 1
    end = int(table[after_3, 5]) - 1
    assert {0, after_3, after_4, end} == {0, 1, 2, 3}
    assert table[after_4, 5] == end + 1
    assert (table[end, EOS], table[after_3, EOS]) == (end + 1, after_3 + 1)
    assert (table == FORBIDDEN).sum() == table.size - 6


def test_an_empty_list_forbids_everything() -> None:
    assert (query_table([], VOCABULARY) == FORBIDDEN).all()
    assert query_table([], VOCABULARY).shape == (1, VOCABULARY)
    assert accepted(query_table([[]], VOCABULARY), 2) == {()}


@pytest.mark.parametrize("token", [EOS, -1, VOCABULARY])
def test_tokens_out_of_range_are_refused(token: int) -> None:
    with pytest.raises(ValueError, match=rf"`queries` must hold tokens from 0 to 5 without 2, got {token}"):
        query_table([[3], [4, token]], VOCABULARY)


def test_what_fits_is_a_beginning_of_the_list_and_what_does_not_is_refused() -> None:
    queries = [[number % 6 + 3, number // 6 % 6 + 3, number // 36 + 3] for number in range(216)]
    assert fitting(queries[:40]) == queries[:40]
    kept = fitting([[3, n // 6 + 3, n % 6 + 3, m + 3] for n in range(36) for m in range(6)] * 2)
    assert 0 < len(kept) < 432
    assert len(query_table(kept, 16)) <= MOST_STATES
    apart = [[3] * number + [4] for number in range(300)]
    with pytest.raises(ValueError, match="must fit into 255 states"):
        query_table(apart, 16)
    assert len(query_table(fitting(apart), 16)) <= MOST_STATES
