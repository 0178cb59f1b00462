"""Two systems on the same questions: the paired difference, its 95 % interval and its p-value.

Sessions are drawn with replacement, both systems on the same ones (paired bootstrap; Koehn, "Statistical Significance
Tests for Machine Translation Evaluation", EMNLP 2004). The two-sided p-value is twice the share of resamples in which
the difference is not on its side of zero, one resample being added to either count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mtn_edge.evaluation import metrics
from mtn_edge.evaluation.metrics import Floats, Integers
from mtn_edge.evaluation.protocol import Answers, Questions
from mtn_edge.evaluation.summary import Columns, added, columns_of_questions, columns_of_targets

COMPARED = ("mrr@10", "keystrokes_saved")
"""The measures that are compared, where the task has them."""


def compare(
    questions: Questions, answers: Sequence[Answers], reference: Sequence[Answers], *, seed: int
) -> dict[str, Any]:
    """The differences between a system and a reference, for each of `COMPARED` that the task has.

    Args:
        questions: what both were asked.
        answers: of the system, one for each training.
        reference: of the system that it is held against, likewise.
        seed: seed of the resamples.

    Returns:
        Measure to `difference` (system - reference), `ci95` and `p`.
    """
    compared: dict[str, Any] = {}
    pairs = zip(_columns(questions, answers), _columns(questions, reference), strict=True)
    for (own, session), (other, _) in pairs:
        both = np.concatenate([own.columns, other.columns], axis=1)
        by_session = metrics.sums_by_session(both, session, len(questions.sessions))
        draws = _difference(own, metrics.bootstrap(by_session, seed=seed))
        low, high = metrics.interval(draws)
        compared[own.measure] = {
            "difference": float(_difference(own, by_session.sum(axis=0))),
            "ci95": [low, high],
            "p": two_sided(draws),
        }
    return compared


def two_sided(differences: Floats) -> float:
    """The two-sided p-value of resampled differences [r]; undefined ones do not count."""
    defined = differences[~np.isnan(differences)]
    below, above = int((defined <= 0).sum()), int((defined >= 0).sum())
    return min(1.0, 2 * (min(below, above) + 1) / (len(defined) + 1)) if len(defined) else math.nan


def _columns(questions: Questions, answers: Sequence[Answers]) -> list[tuple[Columns, Integers]]:
    """What is compared, each measure with the session of each of its rows."""
    found = [(columns, questions.session) for columns in added(columns_of_questions(each) for each in answers)]
    if questions.task == "complete":
        of_targets = added(columns_of_targets(questions, each) for each in answers)
        found += [(columns, questions.target_session) for columns in of_targets]
    return [(columns, session) for columns, session in found if columns.measure in COMPARED]


def _difference(columns: Columns, sums: Floats) -> Floats:
    """From sums [..., 2 c] of the system and the reference to the difference of their measure."""
    own, other = np.split(sums, 2, axis=-1)
    return columns.value(own) - columns.value(other)
