import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.evaluation import metrics


def test_rank_is_the_place_of_the_whole_query_among_ten() -> None:
    assert metrics.rank("new york", ["new", "new york", "news"]) == 2
    assert metrics.rank("new york", ["new", "news"]) == 0
    ten = [f"query {number}" for number in range(10)]
    assert metrics.rank("query 9", ten) == 10
    assert metrics.rank("eleventh", [*ten, "eleventh"]) == 0
    assert metrics.rank("anything", []) == 0


def test_partial_rank_takes_prefixes_that_end_at_a_word_end() -> None:
    assert metrics.partial_rank("new york times", ["newark", "new", "new york times"]) == 2
    assert metrics.partial_rank("new york times", ["new yo", "new york times square", "new york times"]) == 3
    assert metrics.partial_rank("new york times", ["new york t", "york"]) == 0
    assert metrics.partial_rank("new york", [""]) == 0


def test_reciprocal_and_success_by_hand() -> None:
    ranks = np.array([1, 2, 0, 10])
    assert metrics.reciprocal(ranks).tolist() == [1.0, 0.5, 0.0, 0.1]
    assert metrics.success(ranks, 1).tolist() == [1, 0, 0, 0]
    assert metrics.success(ranks, 10).tolist() == [1, 1, 0, 1]
    assert metrics.reciprocal(np.array([], dtype=np.int64)).tolist() == []


def test_keys_to_search_counts_the_tap_and_enter() -> None:
    assert metrics.keys_to_search(8, None) == 9  # eight letters and Enter
    assert metrics.keys_to_search(8, 0) == 1  # one tap
    assert metrics.keys_to_search(8, 3) == 4  # three letters and a tap


def test_perplexity_by_hand() -> None:
    # Two queries: three tokens of probability 1/2 each, one of probability 1/16.
    sums = np.array([3 * math.log(1 / 2) + math.log(1 / 16), 4.0])
    assert metrics.perplexity(sums) == pytest.approx(128 ** (1 / 4))
    assert metrics.perplexity(np.stack([sums, sums])).shape == (2,)


def test_calibration_error_by_hand() -> None:
    stated = np.array([[0.72, 0.18, np.nan], [0.78, 0.11, 0.05], [1.0, np.nan, np.nan]])
    sums = metrics.calibration_counts(stated, np.array([1, 3, 1])).sum(0)
    # Bins 0.7: 1 of 2 right, 1.5 stated; 0.1: 0 of 2, 0.29; 0.0: 1 of 1, 0.05; 0.9 (with 1.0): 1 of 1, 1.
    assert metrics.calibration_error(sums) == pytest.approx((0.5 + 0.29 + 0.95 + 0) / 6)
    assert np.isnan(metrics.calibration_error(np.zeros(3 * metrics.CALIBRATION_BINS)))


def test_an_honest_system_is_calibrated() -> None:
    rng = np.random.default_rng(1)
    stated = rng.dirichlet((1, 1, 1, 1), size=100_000)
    place = (stated.cumsum(1) < rng.random((100_000, 1))).sum(1) + 1
    counts = metrics.calibration_counts(stated[:, :3], np.where(place == 4, 0, place))
    assert metrics.calibration_error(counts.sum(0)) < 0.005
    boasting = metrics.calibration_counts(stated[:, :3] ** 0.5, np.where(place == 4, 0, place))
    assert metrics.calibration_error(boasting.sum(0)) > 0.1


def test_bleu_by_hand() -> None:
    # Right: words 2 of 3 and 4 of 4, word pairs 1 of 2 and 3 of 3, and so on.
    counts = metrics.bleu_counts(["a b d", "e f g h"], ["a b c", "e f g h"])
    assert counts[0].tolist() == [2, 1, 0, 0, 3, 2, 1, 0, 3, 3]
    assert counts[1].tolist() == [4, 3, 2, 1, 4, 3, 2, 1, 4, 4]
    score = metrics.bleu(counts.sum(axis=0))
    precisions = [6 / 7, 4 / 5, 2 / 3, 1 / 1]
    assert score[1:] == pytest.approx([100 * p for p in precisions])
    assert score[0] == pytest.approx(100 * math.prod(precisions) ** (1 / 4))


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (
            ["cheap flights to rome", "", "rome hotels", "what is a b c d"],
            ["cheap flights to milan", "weather", "hotels rome", "what is a b d"],
        ),
        (["a b c x y"], ["a b c d e"]),  # no four words right: smoothed
        (["a", ""], ["b", "c"]),
    ],
)
def test_bleu_is_sacrebleus_corpus_bleu(hypotheses: list[str], references: list[str]) -> None:
    from sacrebleu.metrics.bleu import BLEU

    ours = metrics.bleu(metrics.bleu_counts(hypotheses, references).sum(axis=0))
    theirs = BLEU(tokenize="none").corpus_score(hypotheses, [references])
    assert ours.tolist() == pytest.approx([theirs.score, *theirs.precisions])


def test_bootstrap_draws_whole_sessions() -> None:
    # Session 0 holds two right answers, session 1 one wrong one: a mean is 0, 2/3, 1 and nothing else.
    columns = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    by_session = metrics.sums_by_session(columns, np.array([0, 0, 1]), 2)
    assert by_session.tolist() == [[2, 2], [0, 1]]
    means = metrics.ratio(metrics.bootstrap(by_session, seed=1, resamples=400))
    assert sorted({round(mean, 6) for mean in means.tolist()}) == [0.0, round(2 / 3, 6), 1.0]
    assert np.mean(means == 1.0) == pytest.approx(1 / 4, abs=0.08)


def test_bootstrap_is_the_same_in_one_part_and_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    by_session = np.random.default_rng(0).random((50, 3))
    whole = metrics.bootstrap(by_session, seed=3, resamples=100)
    monkeypatch.setattr(metrics, "_WEIGHTS_AT_ONCE", 350)
    assert metrics.bootstrap(by_session, seed=3, resamples=100) == pytest.approx(whole)


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for trial in range(200):
        sample = np.stack([rng.random(60) < 0.3, np.ones(60)], axis=1).astype(float)
        low, high = metrics.interval(metrics.ratio(metrics.bootstrap(sample, seed=trial, resamples=300)))
        held += low <= 0.3 <= high
    assert 0.88 <= held / 200 <= 0.99


def test_interval_leaves_undefined_resamples_out() -> None:
    assert metrics.interval(np.array([0.5, np.nan, 0.5])) == (0.5, 0.5)
    assert all(math.isnan(x) for x in metrics.interval(np.array([np.nan])))


ranks_strategy = st.lists(st.integers(0, 10), min_size=1, max_size=60)


@given(ranks_strategy, st.randoms(use_true_random=False))
def test_mrr_is_bounded_and_blind_to_order(ranks: list[int], random: object) -> None:
    values = np.array(ranks)
    mrr = metrics.reciprocal(values).mean()
    assert metrics.success(values, 1).mean() <= mrr + 1e-12 <= metrics.success(values, 10).mean() + 2e-12
    assert 0 <= mrr <= 1
    shuffled = list(ranks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert metrics.reciprocal(np.array(shuffled)).mean() == pytest.approx(mrr)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 10)), min_size=1, max_size=60))
def test_interval_contains_the_mean_of_all(rows: list[tuple[int, int]]) -> None:
    session = np.array([row[0] for row in rows])
    values = metrics.reciprocal(np.array([row[1] for row in rows]))
    by_session = metrics.sums_by_session(np.stack([values, np.ones(len(rows))], axis=1), session, 8)
    mean = metrics.ratio(by_session.sum(axis=0))
    assert mean == pytest.approx(values.mean())
    draws = metrics.ratio(metrics.bootstrap(by_session, seed=1, resamples=500))
    defined = draws[~np.isnan(draws)]
    assert defined.min() - 1e-9 <= mean <= defined.max() + 1e-9
    low, high = metrics.interval(draws)
    assert low <= high


words = st.lists(st.sampled_from(["a", "bb", "c c", "né", "東京"]), min_size=1, max_size=4).map(" ".join)


@given(words, st.lists(words, max_size=12))
def test_partial_rank_never_stands_behind_rank(target: str, candidates: list[str]) -> None:
    whole, partial = metrics.rank(target, candidates), metrics.partial_rank(target, candidates)
    assert 0 <= partial <= 10
    if whole:
        assert 1 <= partial <= whole
    if partial:
        hit = candidates[partial - 1]
        assert target == hit or target.startswith(hit + " ")
