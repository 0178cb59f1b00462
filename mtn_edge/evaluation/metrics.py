"""Measures of a list of suggestions against the query that was really searched next, and their intervals.

Everything here is a pure function of arrays. A corpus measure is a function of sums over examples, so its bootstrap
interval needs only the sums of each session: sessions are drawn with replacement, never single examples, because the
queries of one session are not independent.

Shapes: n examples, s sessions, r resamples, c columns that are summed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CUT = 10
"""Candidates of a list that count."""
BAR = 3
"""Suggestions that a keyboard shows at once."""
RESAMPLES = 1000
"""Bootstrap resamples of an interval."""
BLEU_COLUMNS = 10
"""Columns of `bleu_counts`: four counts of right n-grams, four of all n-grams, two lengths."""

CALIBRATION_BINS = 10
"""Bins of equal width of the probabilities that a system states."""

_WEIGHTS_AT_ONCE = 1 << 21

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def rank(target: str, candidates: Sequence[str]) -> int:
    """The place of `target` among the first ten candidates, from 1; 0 when it is not there."""
    for place, candidate in enumerate(candidates[:CUT], start=1):
        if candidate == target:
            return place
    return 0


def partial_rank(target: str, candidates: Sequence[str]) -> int:
    """The place of the first of ten candidates that is `target` or a prefix of it that ends at a word end, else 0.

    Partial matching of Park and Chiba, "A Neural Language Model for Query Auto-Completion", SIGIR 2017: a user gains
    from `new york` as well when `new york times` is meant.
    """
    for place, candidate in enumerate(candidates[:CUT], start=1):
        if candidate and (target + " ").startswith(candidate + " "):
            return place
    return 0


def reciprocal(ranks: Integers) -> Floats:
    """1/rank of each example [n], 0 where the target was not listed; its mean is the mean reciprocal rank."""
    return np.divide(1.0, ranks, out=np.zeros(len(ranks)), where=ranks > 0)


def success(ranks: Integers, k: int) -> Floats:
    """1 for each example [n] whose target stands among the first `k` candidates, else 0."""
    return ((ranks > 0) & (ranks <= k)).astype(np.float64)


def keys_to_search(length: int, first_shown: int | None) -> int:
    """Keys pressed until a query is searched.

    Args:
        length: characters of the query.
        first_shown: characters typed when the bar first showed the whole query (0: before the first key); None when
            it never did. A tap on it is one key and stands for the rest of the query and the Enter key.
    """
    return length + 1 if first_shown is None else first_shown + 1


def perplexity(sums: Floats) -> Floats:
    """Perplexity per token from the sums [..., 2] of log-probabilities (nats) and of tokens."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.asarray(np.exp(-sums[..., 0] / sums[..., 1]))


def ratio(sums: Floats) -> Floats:
    """Numerator over denominator from sums [..., 2]; with ones as denominator it is the mean."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])


def calibration_counts(probability: Floats, ranks: Integers) -> Floats:
    """What `calibration_error` sums, for each list.

    Args:
        probability: of the candidates in the bar, [n, 3], NaN where there is none.
        ranks: the place of the query among all candidates, from 1; 0 where it is not there, [n].

    Returns:
        [n, 3 x bins]: for each bin how many candidates fall in it, the sum of their probabilities, and how many of them
        are the query.
    """
    rows, bins = len(probability), CALIBRATION_BINS
    shown = ~np.isnan(probability)
    stated = np.where(shown, probability, 0.0)
    right = ranks[:, None] == np.arange(1, probability.shape[1] + 1)
    place = np.minimum((stated * bins).astype(np.int64), bins - 1) + bins * np.arange(rows)[:, None]
    sums = [
        np.bincount(place[shown], weights=value[shown], minlength=rows * bins).reshape(rows, bins)
        for value in (np.ones_like(stated), stated, right.astype(np.float64))
    ]
    return np.concatenate(sums, axis=1)


def calibration_error(sums: Floats) -> Floats:
    """Expected calibration error from sums [..., 3 x bins]: the mean, over candidates, of how far their bin's mean
    probability lies from the share of it that was right (Guo et al. 2017, equation 3)."""
    count, stated, right = np.split(sums, 3, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.abs(stated - right).sum(axis=-1) / count.sum(axis=-1))


def bleu_counts(hypotheses: Sequence[str], references: Sequence[str]) -> Floats:
    """What corpus BLEU sums: right n-grams (n = 1 to 4), all n-grams, length of hypothesis and reference, [n, 10].

    Tokens are what stands between blanks (sacrebleu's tokenization `none`): queries are already in normal form. An
    empty hypothesis counts as an answer of no words.
    """
    from sacrebleu.metrics.bleu import BLEU

    scorer = BLEU(tokenize="none", effective_order=True)
    rows = np.zeros((len(hypotheses), BLEU_COLUMNS))
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        score = scorer.sentence_score(hypothesis, [reference])
        rows[row] = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return rows


def bleu(sums: Floats) -> Floats:
    """Corpus BLEU and its four precisions, all in percent, from sums [..., 10] to [..., 5].

    sacrebleu's formula and its default smoothing (`exp`: an order without any right n-gram counts half of the one
    before).
    """
    from sacrebleu.metrics.bleu import BLEU

    rows = sums.reshape(-1, BLEU_COLUMNS).astype(np.int64).tolist()
    scores = [BLEU.compute_bleu(row[:4], row[4:8], row[8], row[9], smooth_method="exp") for row in rows]
    return np.array([[score.score, *score.precisions] for score in scores]).reshape(*sums.shape[:-1], 5)


def sums_by_session(columns: Floats, session: Integers, sessions: int) -> Floats:
    """Adds the rows of each session: [n, c] and the session number of each row [n] to [s, c]."""
    return np.stack([np.bincount(session, weights=column, minlength=sessions) for column in columns.T], axis=1)


def bootstrap(by_session: Floats, *, seed: int, resamples: int = RESAMPLES) -> Floats:
    """Sums over sessions drawn with replacement: [s, c] to [r, c].

    The draws depend on `seed` and the number of sessions only, so all systems are measured on the same resamples.
    """
    sessions = len(by_session)
    rng = np.random.default_rng(seed)
    chance = np.full(sessions, 1 / sessions)
    step = max(1, _WEIGHTS_AT_ONCE // sessions)
    parts = [
        rng.multinomial(sessions, chance, size=min(step, resamples - done)) @ by_session
        for done in range(0, resamples, step)
    ]
    return np.concatenate(parts)


def interval(values: Floats) -> tuple[float, float]:
    """The 95 % interval of bootstrap values [r]; resamples in which the measure is undefined (NaN) do not count."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.percentile(defined, [2.5, 97.5])
    return float(low), float(high)
