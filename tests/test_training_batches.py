"""Batches: every query is predicted once, from the right context, in an order that can be reproduced."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.data.batches import IGNORE, Batch, Batches, Spelling, TokenizedSessions
from mtn_edge.runtime.context import context_start
from mtn_edge.tokenizer import BOS, EOS, PAD


def encode(texts: list[str]) -> list[list[int]]:
    """A token for each character, so that a text can be read off its tokens."""
    return [[ord(letter) for letter in text] for text in texts]


def make(
    sessions: list[list[str]],
    max_tokens: int = 4,
    max_queries: int = 4,
    batch_queries: int = 8,
    users: list[int] | None = None,
    **options: Any,
) -> Batches:
    tokenized = TokenizedSessions(sessions, encode, users)
    return Batches(tokenized, max_tokens=max_tokens, max_queries=max_queries, batch_queries=batch_queries, **options)


def pairs(batch: Batch) -> list[tuple[tuple[str, ...], str, bool]]:
    """What each target of a batch is predicted from: (earlier queries as read, the target as written, has an end)."""
    found = []
    for source, target_in, target_out, _ in zip(*batch, strict=True):
        read = ["".join(chr(x) for x in row if x not in (PAD, BOS)) for row in source.tolist()]
        assert source[0].tolist() == [BOS] + [PAD] * (source.shape[1] - 1)
        for number, (given_row, wanted_row) in enumerate(zip(target_in.tolist(), target_out.tolist(), strict=True)):
            given_tokens = [x for x in given_row if x != PAD]
            wanted = [x for x in wanted_row if x != IGNORE]
            if not given_tokens:
                assert not wanted
                continue
            ended = wanted[-1:] == [EOS]
            assert given_tokens == [BOS, *(wanted[:-1] if ended else wanted)]
            text = "".join(map(chr, given_tokens[1:]))
            found.append((tuple(read[1 : number + 1]), text, ended))
    return found


def expected(sessions: list[list[str]], max_tokens: int, max_queries: int) -> list[tuple[tuple[str, ...], str, bool]]:
    """The same by the definition: the context of the runtime, last tokens read, first tokens written."""
    wanted = []
    for session in sessions:
        queries = [query for query in session if query]
        for number, query in enumerate(queries):
            context = queries[context_start(number, max_queries) : number]
            read = tuple(earlier[-max_tokens:] for earlier in context)
            wanted.append((read, query[:max_tokens], len(query) <= max_tokens))
    return wanted


queries = st.text("abcdefg", max_size=7)


@settings(max_examples=150, deadline=None)
@given(
    sessions=st.lists(st.lists(queries, max_size=14), min_size=1, max_size=12).filter(lambda x: any(map(any, x))),
    max_tokens=st.integers(1, 6),
    max_queries=st.integers(2, 7),
    batch_queries=st.integers(1, 20),
    epoch=st.integers(0, 3),
)
def test_every_query_is_predicted_once_from_its_context(
    sessions: list[list[str]], max_tokens: int, max_queries: int, batch_queries: int, epoch: int
) -> None:
    batches = make(sessions, max_tokens, max_queries, batch_queries)
    found = [pair for batch in batches.stream(1, epoch) for pair in pairs(batch)]
    assert Counter(found) == Counter(expected(sessions, max_tokens, max_queries))
    assert len(list(batches.stream(1, epoch))) == len(batches)


def test_the_tensors_of_a_small_session() -> None:
    source, target_in, target_out, _ = next(make([["abcde", "x"]]).stream(1, 0))
    a, b, c, d, e, x = (ord(letter) for letter in "abcdex")
    assert source.tolist() == [[[BOS, PAD, PAD, PAD], [b, c, d, e]]]
    assert target_in.tolist() == [[[BOS, a, b, c, d], [BOS, x, PAD, PAD, PAD]]]
    assert target_out.tolist() == [[[a, b, c, d, IGNORE], [x, EOS, IGNORE, IGNORE, IGNORE]]]


def many(count: int = 400) -> list[list[str]]:
    generator = np.random.default_rng(5)
    return [
        ["".join(generator.choice(list("abcdef"), generator.integers(1, 9))) for _ in range(generator.integers(1, 9))]
        for _ in range(count)
    ]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    one, two = make(many(), batch_queries=32), make(many(), batch_queries=32)
    first = [batch.target_in for batch in one.stream(3, 2)]
    assert all(torch.equal(x, y.target_in) for x, y in zip(first, two.stream(3, 2), strict=True))
    rest = [batch.target_in for batch in one.stream(3, 2, position=7)]
    assert len(rest) == len(first) - 7
    assert all(torch.equal(x, y) for x, y in zip(first[7:], rest, strict=True))
    for seed, epoch in ((3, 3), (4, 2)):
        others = [batch.target_in for batch in one.stream(seed, epoch)]
        assert len(others) == len(first)
        assert any(x.shape != y.shape or not torch.equal(x, y) for x, y in zip(first, others, strict=True))


def test_neighbours_change_from_epoch_to_epoch() -> None:
    batches = make(many(), batch_queries=32)
    mates = [{frozenset(members.tolist()) for members in batches.order(1, epoch)} for epoch in range(2)]
    assert len(mates[0] & mates[1]) < len(batches) / 2


def test_batches_hold_about_as_many_queries_as_asked_and_like_lengths() -> None:
    batches = make(many(2000), max_tokens=8, max_queries=8, batch_queries=64)
    sizes, padding, tokens = [], 0, 0
    for batch in batches.stream(1, 0):
        sizes.append(int((batch.target_in[:, :, 0] == BOS).sum()))
        padding += batch.target_in.numel()
        tokens += int((batch.target_in != PAD).sum())
    assert sum(sizes) == sum(map(len, many(2000)))
    assert 56 <= np.median(sizes) <= 72
    assert max(sizes) < 64 + 9
    assert padding < 1.6 * tokens  # 2.2 when sessions are taken as they come


def test_tokens_are_kept_flat() -> None:
    sessions = TokenizedSessions([["ab", "", "c"], [], [""], ["d"]], encode)
    assert sessions.tokens.tolist() == [ord(x) for x in "abcd"]
    assert sessions.tokens.dtype == np.int32
    assert sessions.query_offsets.tolist() == [0, 2, 3, 4]
    assert sessions.session_offsets.tolist() == [0, 2, 3]
    assert (len(sessions), sessions.queries) == (2, 3)


def test_a_split_without_sessions_has_no_batches() -> None:
    assert len(make([[], [""]])) == 0
    assert list(make([[], [""]]).stream(1, 0)) == []


@pytest.mark.parametrize(("length", "windows"), [(5, 1), (6, 2), (7, 2), (8, 3), (14, 6)])
def test_long_sessions_are_cut_half_a_context_apart(length: int, windows: int) -> None:
    batches = make([["q"] * length], max_queries=4)
    assert len(batches.windows.first) == windows
    assert batches.windows.first.tolist() == [2 * n for n in range(windows)]


@settings(max_examples=100, deadline=None)
@given(
    sessions=st.lists(st.lists(queries, max_size=9), min_size=1, max_size=20).filter(lambda x: any(map(any, x))),
    budget=st.integers(1, 400),
    parts=st.integers(1, 3),
)
def test_a_token_budget_holds_with_padding(sessions: list[list[str]], budget: int, parts: int) -> None:
    batches = make(sessions, 6, 4, batch_tokens=budget, parts=parts)
    found = []
    for step in batches.steps(1, 0):
        assert len(step.batches) == parts
        for batch in step.batches:
            assert len(batch.source) == 1 or batch.source.numel() + batch.target_in.numel() <= budget
            found += pairs(batch) if (batch.target_out != IGNORE).any() else []
    assert Counter(found) == Counter(expected(sessions, 6, 4))
    assert [len(list(batches.steps(1, epoch))) for epoch in range(3)] == [len(batches)] * 3


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=12), budget=st.integers(1, 300))
def test_a_token_budget_holds_for_whole_users(sizes: list[int], budget: int) -> None:
    users = [user for user, size in enumerate(sizes) for _ in range(size)]
    sessions = [["abcdefg"[: 1 + number % 7]] * (1 + number % 3) for number in range(len(users))]
    for batch in make(sessions, 6, 4, users=users, max_sessions=2, batch_tokens=budget).stream(1, 0):
        assert int(batch.user.max()) == 0 or batch.source.numel() + batch.target_in.numel() <= budget


def test_a_token_budget_wastes_little_and_changes_neighbours() -> None:
    batches = make(many(2000), 8, 8, batch_tokens=2000)
    found = list(batches.stream(1, 0))
    real = sum(int((x != PAD).sum()) for batch in found for x in batch[:2])
    padded = sum(x.numel() for batch in found for x in batch[:2])
    assert padded < 1.85 * real  # as little as batches of 100 queries do, in a tenth fewer batches
    assert np.median([batch.source.numel() + batch.target_in.numel() for batch in found]) > 1500
    mates = [{frozenset(members.tolist()) for members in batches.order(1, epoch)} for epoch in range(2)]
    assert len(mates[0] & mates[1]) < len(batches) / 2


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_of_a_step_are_the_step_of_one_larger_batch(parts: int) -> None:
    whole, halves = make(many(), batch_queries=parts * 20), make(many(), batch_queries=20, parts=parts)
    assert len(whole) == len(halves)
    for one, step in zip(whole.steps(3, 1), halves.steps(3, 1), strict=True):
        assert (one.tokens, one.queries) == (step.tokens, step.queries)
        assert one.tokens == sum(int((batch.target_out != IGNORE).sum()) for batch in step.batches)
        together = [pair for batch in step.batches for pair in pairs(batch)]
        assert Counter(together) == Counter(pairs(one.batches[0]))


def test_processes_share_the_parts_of_a_step() -> None:
    batches = make(many(), batch_queries=20, parts=4)
    for step, *ranks in zip(
        batches.steps(1, 0), *(batches.steps(1, 0, rank=rank, world=2) for rank in (0, 1)), strict=True
    ):
        assert [rank.tokens for rank in ranks] == [step.tokens] * 2
        shared = [batch for pair in zip(ranks[0].batches, ranks[1].batches, strict=True) for batch in pair]
        assert all(torch.equal(a.target_in, b.target_in) for a, b in zip(step.batches, shared, strict=True))


def test_a_part_that_gets_nothing_has_no_targets() -> None:
    (step,) = make([["ab", "c"]], parts=2).steps(1, 0)
    assert [int((batch.target_out != IGNORE).sum()) for batch in step.batches] == [step.tokens, 0]
    assert step.queries == 2


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    max_sessions=st.integers(1, 4),
    budget=st.sampled_from([0, 60]),
)
def test_the_sessions_of_a_user_stay_together(sizes: list[int], max_sessions: int, budget: int) -> None:
    """Each session is predicted once, from as many earlier sessions as a device keeps, in the order of time."""
    users = [user for user, size in enumerate(sizes) for _ in range(size)]
    sessions = [[f"{chr(97 + user)}{number}"] for number, user in enumerate(users)]
    predicted = []
    for batch in make(sessions, users=users, max_sessions=max_sessions, batch_tokens=budget).stream(1, 0):
        rows: dict[int, list[str]] = {}
        assert batch.user.tolist() == sorted(batch.user.tolist())
        for source, target_in, target_out, user in zip(*batch, strict=True):
            row = pairs(Batch(source[None], target_in[None], target_out[None], user[None]))
            if row:
                query = row[0][1]
                earlier = [session for session, *_ in sessions[: sessions.index([query])] if session[0] == query[0]]
                start = context_start(len(earlier), max_sessions) if max_sessions > 1 else max(0, len(earlier) - 1)
                predicted.append(query)
                assert len(rows.get(int(user), [])) == len(earlier) - start
            rows.setdefault(int(user), []).append("row")
    assert Counter(predicted) == Counter(query for (query,) in sessions)


def test_context_sessions_are_read_whole_and_not_predicted() -> None:
    sessions = [[f"{n}a", f"{n}b", f"{n}c"] for n in range(4)]
    batches = make(sessions, users=[7] * 4, max_sessions=2, batch_queries=99)
    (batch,) = batches.stream(1, 0)
    assert batch.user.tolist() == [0, 0, 0, 1, 1, 1]
    asked = (batch.target_in[:, :, 0] == BOS).any(dim=1).tolist()
    assert asked == [True, True, True, False, False, True]
    assert all(int((row != PAD).sum()) == 1 + 6 for row in batch.source)  # the last query too


def test_with_two_levels_every_row_is_a_user() -> None:
    for batch in make(many(50), batch_queries=30).stream(1, 0):
        assert batch.user.tolist() == list(range(len(batch.source)))


def test_queries_cut_anew_are_read_and_predicted() -> None:
    """The spelling of an epoch is what both sides of its batches hold."""
    plain = TokenizedSessions([["ab", "cd"], ["ef"]], encode)

    def respell(seed: int, epoch: int) -> Spelling:
        return Spelling(plain.tokens + np.int32(256 * (10 * seed + epoch)), plain.query_offsets)

    batches = make([["ab", "cd"], ["ef"]], respell=respell)
    for seed, epoch in itertools.product((1, 2), (0, 3)):
        shift = 256 * (10 * seed + epoch)
        for batch in batches.stream(seed, epoch):
            tokens = torch.cat([x[x > EOS] for x in batch[:2]])
            assert set((tokens - shift).tolist()) <= {ord(x) for x in "abcdef"}
