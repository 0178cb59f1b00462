"""The n-gram: against counts by hand and a plain reimplementation with dictionaries, pruned and within bytes."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.ngram.counting import count
from mtn_edge.ngram.model import NGram
from mtn_edge.ngram.pruning import MOST_FOLLOWERS, fit
from mtn_edge.tokenizer import BOS, EOS, PAD

V = 12
QUERIES = [[3, 4, 5], [3, 4, 5], [3, 4, 6], [4, 5], [7], [7, 7, 7], [3, 8, 5, 9]]
queries_strategy = st.lists(st.lists(st.integers(3, V - 1), min_size=1, max_size=6), min_size=1, max_size=20)


def flat(queries: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.array([token for query in queries for token in query], dtype=np.int32)
    return tokens, np.cumsum([0, *map(len, queries)])


def context_of(model: NGram, tokens: Sequence[int]) -> np.ndarray:
    context = model.start
    for token in tokens:
        context = model.advance(context, np.array([token]))
    return context


class Plain:
    """Interpolated Kneser-Ney with dictionaries and recursion, after Chen and Goodman's equations."""

    def __init__(self, queries: Sequence[Sequence[int]], order: int) -> None:
        raw: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(order + 1)]
        for query in queries:
            text = [BOS, *query, EOS]
            for length in range(1, order + 1):
                for start in range(len(text) - length + 1):
                    if start + length > 1:  # <bos> alone is never predicted
                        raw[length][tuple(text[start : start + length])] += 1
        self.counts: list[dict[tuple[int, ...], int]] = [{}] * (order + 1)
        for length in range(1, order + 1):
            before = Counter(gram[1:] for gram in raw[length + 1]) if length < order else raw[length]
            self.counts[length] = {
                gram: count if gram[0] == BOS or length == order else before[gram]
                for gram, count in raw[length].items()
            }
        self.order = order

    def discount(self, length: int, count: int) -> float:
        n = Counter(min(count, 5) for count in self.counts[length].values())
        fallback = (0.5, 1.0, 1.5)
        if min(n[1], n[2], n[3], n[4]) == 0:
            return fallback[min(count, 3) - 1]
        y = n[1] / (n[1] + 2 * n[2])
        found = (1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3])
        sound = all(0 < each < times for times, each in enumerate(found, start=1))
        return (found if sound else fallback)[min(count, 3) - 1]

    def probability(self, context: tuple[int, ...], token: int) -> float:
        length = len(context) + 1
        row = {gram[-1]: count for gram, count in self.counts[length].items() if gram[:-1] == context}
        shorter = 1 / (V - 2) if not context else self.probability(context[1:], token)
        if token in (PAD, BOS) and not context:
            shorter = 0.0
        if not row:
            return shorter
        total = sum(row.values())
        taken = sum(self.discount(length, count) for count in row.values())
        own = row[token] - self.discount(length, row[token]) if token in row else 0.0
        return own / total + taken / total * shorter


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("before", [[], [3], [3, 4], [9, 3, 4], [3, 4, 5], [11], [4, 11, 3], [7, 7, 7]])
def test_it_is_interpolated_kneser_ney(order: int, before: list[int]) -> None:
    model = fit(count(*flat(QUERIES), order), V)
    plain = Plain(QUERIES, order)
    context = tuple([BOS, *before][-(order - 1) :])
    expected = [plain.probability(context, token) for token in range(V)]
    found = model.distribution(context_of(model, before)[0].tolist())
    assert found == pytest.approx(expected, rel=0.03, abs=1e-6)  # a share is one byte


budgets = st.one_of(st.none(), st.integers(1, 4500))
widths = st.one_of(st.none(), st.integers(1, 4), st.just(MOST_FOLLOWERS))


@settings(max_examples=60, deadline=None)
@given(queries_strategy, st.lists(st.integers(3, V - 1), max_size=5), budgets, widths, st.integers(2, 4))
def test_every_distribution_sums_to_one_however_much_is_pruned(
    queries: list[list[int]], before: list[int], most: int | None, width: int | None, order: int
) -> None:
    model = fit(count(*flat(queries), order), V, most, most_followers=width)
    context = context_of(model, before)
    chance = model.distribution(context[0].tolist())
    assert chance.sum() == pytest.approx(1, abs=1e-5)
    assert chance[[PAD, BOS]].tolist() == [0, 0]
    assert (np.delete(chance, [PAD, BOS]) > 0).all()
    everything = np.arange(V)
    contexts = np.repeat(context, V, axis=0)
    assert model.probabilities(contexts, everything) == pytest.approx(chance, rel=1e-5)
    share, left, matched = model.evidence(contexts, everything)
    assert share + left * model.unigram == pytest.approx(chance, rel=1e-5)
    assert len(set(left.tolist())) == len(set(matched.tolist())) == 1
    assert left[0] == pytest.approx(1 - share.sum(dtype=np.float64), abs=1e-5)
    known = [row >= 0 and level.sizes[row] > 0 for row, level in zip(context[0].tolist(), model.levels, strict=True)]
    assert matched[0] == sum(known)
    assert (share.dtype, left.dtype, matched.dtype) == (np.float32, np.float32, np.uint8)


@settings(max_examples=40, deadline=None)
@given(queries_strategy, queries_strategy, budgets, widths, st.integers(2, 4))
def test_a_walk_is_one_step_after_another(
    queries: list[list[int]], read: list[list[int]], most: int | None, width: int | None, order: int
) -> None:
    model = fit(count(*flat(queries), order), V, most, most_followers=width)
    contexts, tokens = model.walk(*flat(read))
    assert tokens.tolist() == [token for query in read for token in [*query, EOS]]
    expected = np.concatenate([context_of(model, query[:place]) for query in read for place in range(len(query) + 1)])
    assert contexts.tolist() == expected.tolist()
    # Any stretch of the queries gives the same.
    text, offsets = flat(read)
    assert model.walk(text, offsets[1:])[1].tolist() == tokens[len(read[0]) + 1 :].tolist()


@settings(max_examples=40, deadline=None)
@given(queries_strategy, st.integers(1, 4500), st.integers(1, 6))
def test_rows_are_short_and_bytes_are_kept(queries: list[list[int]], most: int, width: int) -> None:
    counts = count(*flat(queries))
    wide, narrow = fit(counts, V, most_followers=None), fit(counts, V, most_followers=width)
    for level in narrow.levels:
        assert level.sizes.dtype == np.uint8
        assert level.sizes.max(initial=0) <= width
    pruned = fit(counts, V, most, most_followers=width)
    rest = most - pruned.nbytes
    if rest < 0:
        assert not any(len(level.tokens) for level in pruned.levels)  # single tokens alone are too much
        assert pruned.nbytes == 4 * V + V + 3 * 4 * 256
    elif [len(level.tokens) for level in pruned.levels] != [len(level.tokens) for level in narrow.levels]:
        assert rest < 4  # another entry does not fit
    for row in range(V):
        before, after = shares_after(wide, row), shares_after(narrow, row)
        assert after.keys() <= before.keys()
        assert len(after) == min(width, len(before))
        gone = [share for token, share in before.items() if token not in after]
        assert max(gone, default=0) <= min((before[token] for token in after), default=1)


def shares_after(model: NGram, row: int) -> dict[int, float]:
    """The tokens after one token and their shares."""
    level = model.levels[0]
    start = int(level.sizes[:row].sum(dtype=np.int64))
    part = slice(start, start + int(level.sizes[row]))
    return dict(zip(level.tokens[part].tolist(), level.values[level.codes[part]].tolist(), strict=True))


@settings(max_examples=30, deadline=None)
@given(queries_strategy, budgets, widths)
def test_a_kept_gram_has_its_context(queries: list[list[int]], most: int | None, width: int | None) -> None:
    model = fit(count(*flat(queries)), V, most, most_followers=width)
    found = spelt(model)
    for shorter, longer in pairwise(found):
        assert {gram[:-1] for gram in longer} <= shorter
    in_text = {
        tuple([BOS, *query, EOS][start:end])
        for query in queries
        for end in range(len(query) + 3)
        for start in range(end)
    }
    assert set().union(*found) <= in_text


def spelt(model: NGram) -> list[set[tuple[int, ...]]]:
    """The grams of each order from 2 on, read off the arrays."""
    contexts: list[tuple[int, ...]] = [(token,) for token in range(len(model.unigram))]
    found = []
    for level in model.levels:
        row = np.repeat(np.arange(len(level.sizes)), level.sizes)
        contexts = [
            (*contexts[number], token) for number, token in zip(row.tolist(), level.tokens.tolist(), strict=True)
        ]
        found.append(set(contexts))
    return found


def test_what_tells_little_goes_first() -> None:
    # After 3 comes what comes anywhere; after 5 always 6.
    queries = [[3, token] for token in (7, 8, 9, 10)] + [[4, token] for token in (7, 8, 9, 10)] + [[11, 5, 6]] * 4
    counts = count(*flat(queries), 2)
    whole = fit(counts, V)
    some = fit(counts, V, whole.nbytes - 3 * 4)
    assert len(some.levels[0].tokens) == len(whole.levels[0].tokens) - 4
    assert {(5, 6), (6, EOS), (11, 5)} <= spelt(some)[0]


@settings(max_examples=25, deadline=None)
@given(queries_strategy, st.integers(0, 12))
def test_the_worth_of_a_gram_is_what_it_tells(queries: list[list[int]], fewer: int) -> None:
    counts = count(*flat(queries), 2)
    whole = fit(counts, V)
    kept = spelt(fit(counts, V, whole.nbytes - 3 * fewer))[0]
    plain = Plain(queries, 2)
    worth = {}
    for (first, token), times in plain.counts[2].items():
        row = {gram: number for gram, number in plain.counts[2].items() if gram[0] == first}
        total = sum(row.values())
        own = (times - plain.discount(2, times)) / total
        left = sum(plain.discount(2, number) for number in row.values()) / total
        single = plain.probability((), token)
        worth[first, token] = times * math.log((own + left * single) / ((own + left) * single))
    assert len(kept) == max(0, len(worth) - fewer)
    gone = [value for gram, value in worth.items() if gram not in kept]
    assert max(gone, default=0) <= min((worth[gram] for gram in kept), default=math.inf) + 1e-5


def test_more_bytes_tell_more_about_the_text() -> None:
    random = np.random.default_rng(1)
    queries = [[int(token) for token in 3 + random.zipf(1.6, size=5) % (V - 3)] for _ in range(300)]
    counts = count(*flat(queries))
    most = fit(counts, V).nbytes

    def nats(model: NGram) -> float:
        return float(np.log(model.probabilities(*model.walk(*flat(queries)))).sum())

    found = [nats(fit(counts, V, most - less)) for less in (0, 500, 1000, 2000, 3000)]
    assert found == sorted(found, reverse=True)


def test_what_a_long_row_loses_goes_to_shorter_contexts() -> None:
    queries = [[3, token] for token in range(4, 12) for _ in range(token)]
    model = fit(count(*flat(queries), 2), V, most_followers=3)
    share, left, matched = model.evidence(np.full((V, 1), 3), np.arange(V))
    assert np.flatnonzero(share).tolist() == [9, 10, 11]
    assert (matched == 1).all()
    assert left[0] == pytest.approx(1 - share.sum(), abs=1e-6)
    assert left[0] > 0.5  # the shares of 4 to 8 and the discounts


def test_log_probability_of_training_text_beats_the_unigram() -> None:
    model = fit(count(*flat(QUERIES * 3)), V)
    unigram = NGram(model.unigram, ())
    assert unigram.nbytes == 4 * V

    def nats(query: list[int]) -> float:
        contexts = np.concatenate([context_of(model, query[:place]) for place in range(len(query) + 1)])
        return float(np.log(model.probabilities(contexts, np.array([*query, EOS]))).sum())

    for query in QUERIES:
        assert nats(query) > sum(math.log(model.unigram[token]) for token in [*query, EOS])


def test_bad_arguments_are_refused() -> None:
    counts = count(*flat(QUERIES))
    with pytest.raises(ValueError, match="`vocab_size` must be at most 65536, got 65537"):
        fit(counts, 65_537)
    with pytest.raises(ValueError, match="token 9 was counted and `vocab_size` is 9"):
        fit(counts, 9)
    with pytest.raises(ValueError, match="`most_followers` must be at least 1, got 0"):
        fit(counts, V, most_followers=0)


def test_nothing_to_count_is_an_even_spread() -> None:
    model = fit(count(np.zeros(0, np.int32), np.zeros(1, np.int64)), V)
    chance = model.distribution(model.start[0].tolist())
    assert np.delete(chance, [PAD, BOS]) == pytest.approx(np.full(V - 2, 1 / (V - 2)))


def test_a_token_that_opens_no_context_leaves_the_shorter_ones() -> None:
    model = fit(count(*flat(QUERIES)), V)
    context = context_of(model, [3, 4, 11])
    assert context[0].tolist()[1:] == [-1, -1]
    assert model.longest(context[0].tolist()) == (1, 11)
    counted: dict[int, float] = defaultdict(float)
    for token, chance in enumerate(model.distribution(context[0].tolist())):
        counted[token] = float(chance)
    assert counted == pytest.approx(dict(enumerate(model.unigram.tolist())))
