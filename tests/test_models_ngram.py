"""The n-gram: against counts by hand and a plain reimplementation with dictionaries, pruned and within bytes."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.models.ngram import NGram, count_grams, cut_offs, estimate, fit, size
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
    model = estimate(count_grams(*flat(QUERIES), order), V)
    plain = Plain(QUERIES, order)
    context = tuple([BOS, *before][-(order - 1) :])
    expected = [plain.probability(context, token) for token in range(V)]
    found = model.distribution(context_of(model, before)[0].tolist())
    assert found == pytest.approx(expected, rel=0.03, abs=1e-6)  # a share is one byte


def test_counts_by_hand() -> None:
    single, pairs, triples = count_grams(*flat([[3, 4], [3, 4], [5, 4]]), 3)

    def of(grams: object, key: int) -> tuple[int, int]:
        (place,) = np.flatnonzero(grams.keys == key)  # type: ignore[attr-defined]
        return int(grams.raw[place]), int(grams.adjusted[place])  # type: ignore[attr-defined]

    assert of(single, 4) == (3, 2)  # after 3 and after 5
    assert of(single, EOS) == (3, 1)  # after 4 alone
    assert of(pairs, BOS << 16 | 3) == (2, 2)  # nothing stands before <bos>: its occurrences
    assert of(pairs, 3 << 16 | 4) == (2, 1)  # after <bos> alone
    assert of(pairs, 4 << 16 | EOS) == (3, 2)
    assert of(triples, BOS << 32 | 3 << 16 | 4) == (2, 2)  # the highest order: occurrences
    assert BOS not in single.keys


@settings(max_examples=40, deadline=None)
@given(queries_strategy, st.lists(st.integers(3, V - 1), max_size=5), st.integers(0, 5))
def test_every_distribution_sums_to_one_however_much_is_pruned(
    queries: list[list[int]], before: list[int], step: int
) -> None:
    least = next(each for number, each in enumerate(cut_offs()) if number == step)
    model = estimate(count_grams(*flat(queries)), V, least)
    context = context_of(model, before)
    chance = model.distribution(context[0].tolist())
    assert chance.sum() == pytest.approx(1, abs=1e-5)
    assert chance[[PAD, BOS]].tolist() == [0, 0]
    assert (np.delete(chance, [PAD, BOS]) > 0).all()
    everything = np.arange(V)
    assert model.probabilities(np.repeat(context, V, axis=0), everything) == pytest.approx(chance, rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(queries_strategy, st.integers(0, 5), st.integers(0, 3))
def test_size_is_said_beforehand_and_what_is_kept_has_its_contexts(
    queries: list[list[int]], step: int, spare: int
) -> None:
    least = next(each for number, each in enumerate(cut_offs()) if number == step)
    grams = count_grams(*flat(queries))
    spare = min(spare, int((grams[1 + least.index(max(least))].raw == max(least) - 1).sum()))
    model = estimate(grams, V, least, spare)
    assert model.nbytes == size(grams, V, least, spare)
    for place, (order, needed, level) in enumerate(zip(grams[1:], least, model.levels, strict=True)):
        assert len(level.tokens) == (order.raw >= needed).sum() + spare * (place == least.index(max(least)))
    # Every kept gram is found by walking along its tokens.
    kept = grams[3].keys[grams[3].raw >= least[2]]
    for key in kept.tolist():
        parts = [key >> 48 & 0xFFFF, key >> 32 & 0xFFFF, key >> 16 & 0xFFFF]
        context = np.full((1, 3), -1)
        context[0, 0] = parts[0]
        for token in parts[1:]:
            context = model.advance(context, np.array([token]))
        assert context[0, 2] >= 0
        assert model.levels[2].sizes[context[0, 2]] > 0


def test_fit_takes_the_weakest_cut_off_that_fits() -> None:
    random = np.random.default_rng(1)
    queries = [[int(token) for token in 3 + random.zipf(1.6, size=5) % (V - 3)] for _ in range(300)]
    grams = count_grams(*flat(queries))
    whole, least = fit(grams, V)
    assert least == (1, 1, 1)
    sizes = [size(grams, V, each) for each, _ in zip(cut_offs(), range(12), strict=False)]
    assert sizes == sorted(sizes, reverse=True)
    model, least = fit(grams, V, sizes[6])
    assert model.nbytes == sizes[6]
    # Between two steps, what fits of the one more frequent order is kept, the highest shares first.
    for most in (whole.nbytes - 1, sizes[1] + 10, sizes[3] - 1, sizes[4] + 7):
        model, least = fit(grams, V, most)
        assert most - 5 < model.nbytes <= most
        assert size(grams, V, least) <= model.nbytes
    model, least = fit(grams, V, whole.nbytes - 1)
    assert least == (1, 1, 2)
    assert len(model.levels[2].tokens) == len(whole.levels[2].tokens) - 1
    smallest, _ = fit(grams, V, 1)  # nothing but single tokens is left
    assert all(not len(level.tokens) for level in smallest.levels)
    assert smallest.distribution(smallest.start[0].tolist()) == pytest.approx(smallest.unigram)


@settings(max_examples=25, deadline=None)
@given(queries_strategy, st.integers(150, 2500), st.lists(st.integers(3, V - 1), max_size=4))
def test_whatever_the_bytes_distributions_sum_to_one(queries: list[list[int]], most: int, before: list[int]) -> None:
    model, _ = fit(count_grams(*flat(queries)), V, most)
    chance = model.distribution(context_of(model, before)[0].tolist())
    assert chance.sum() == pytest.approx(1, abs=1e-5)


def test_frequent_grams_outlive_rare_ones_and_probabilities_stay_near() -> None:
    queries = [[3, 4, 5]] * 50 + [[3, 4, 6], [8, 9], [10, 11]]
    grams = count_grams(*flat(queries))
    whole, pruned = estimate(grams, V), estimate(grams, V, (2, 2, 2))
    context = context_of(pruned, [3, 4])
    assert pruned.probabilities(context, np.array([5]))[0] == pytest.approx(
        whole.probabilities(context_of(whole, [3, 4]), np.array([5]))[0], rel=0.05
    )
    assert pruned.nbytes < whole.nbytes


def test_log_probability_of_training_text_beats_the_unigram() -> None:
    model = estimate(count_grams(*flat(QUERIES * 3)), V)
    unigram = NGram(model.unigram, ())
    assert unigram.nbytes == 4 * V

    def nats(query: list[int]) -> float:
        contexts = np.concatenate([context_of(model, query[:place]) for place in range(len(query) + 1)])
        return float(np.log(model.probabilities(contexts, np.array([*query, EOS]))).sum())

    for query in QUERIES:
        assert nats(query) > sum(math.log(model.unigram[token]) for token in [*query, EOS])


def test_bad_arguments_are_refused() -> None:
    grams = count_grams(*flat(QUERIES))
    with pytest.raises(ValueError, match="`vocab_size` must be at most 65536, got 65537"):
        estimate(grams, 65_537)
    with pytest.raises(ValueError, match=r"`least` must not fall from one order to the next, got \(2, 1, 1\)"):
        estimate(grams, V, (2, 1, 1))


def test_nothing_to_count_is_an_even_spread() -> None:
    model = estimate(count_grams(np.zeros(0, np.int32), np.zeros(1, np.int64)), V)
    chance = model.distribution(model.start[0].tolist())
    assert np.delete(chance, [PAD, BOS]) == pytest.approx(np.full(V - 2, 1 / (V - 2)))


def test_a_token_that_opens_no_context_leaves_the_shorter_ones() -> None:
    model = estimate(count_grams(*flat(QUERIES)), V)
    context = context_of(model, [3, 4, 11])
    assert context[0].tolist()[1:] == [-1, -1]
    assert model.longest(context[0].tolist()) == (1, 11)
    counted: dict[int, float] = defaultdict(float)
    for token, chance in enumerate(model.distribution(context[0].tolist())):
        counted[token] = float(chance)
    assert counted == pytest.approx(dict(enumerate(model.unigram.tolist())))
