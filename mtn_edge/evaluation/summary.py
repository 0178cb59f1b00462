"""Answers to figures: every measure with its 95 % interval, over all questions and over slices of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtn_edge.evaluation import metrics
from mtn_edge.evaluation.metrics import CUT, Floats, Integers
from mtn_edge.evaluation.protocol import PREFIX_LENGTHS, Answers, Questions

MEASURES = ("mrr@10", "success@1", "success@10", "pmrr@10", "bleu", "perplexity", "keystrokes_saved")
"""Every measure of the summary, in its order; one that does not apply to a task or a system is None."""
SLICE_MEASURES = ("mrr@10", "success@1", "success@10", "pmrr@10")
"""Measures that every slice has."""

NOTES = {
    "mrr@10": "mean of 1/rank of the true query among ten candidates, 0 when it is not there",
    "success@1": "share of questions whose first candidate is the true query",
    "success@10": "share of questions with the true query among ten candidates",
    "pmrr@10": "as MRR@10, but a candidate that is a prefix of the true query ending at a word end is right as well",
    "bleu": "corpus BLEU of the first candidate in percent, by sacrebleu with its default smoothing; words are what "
    "stands between blanks; task suggest only",
    "perplexity": "of the true next query, per token of the model's own tokenizer, the end of the query being one; "
    "task suggest and models only",
    "keystrokes_saved": "share of keys saved by a bar of 3 that is shown before the first key too; a tap is one key "
    "and stands for the rest of the query and Enter; task complete only",
}
"""What each measure means, in words."""


@dataclass(frozen=True)
class _Sums:
    """A measure of a part of the questions, as a function of sums over examples."""

    slice: str | None
    measure: str
    by_session: Floats
    value: Callable[[Floats], Floats]


def summarize(questions: Questions, answers: Answers, *, seed: int) -> dict[str, Any]:
    """The figures of one system on one task.

    Args:
        questions: what was asked.
        answers: what the system answered.
        seed: seed of the bootstrap; the same one gives all systems the same resamples.

    Returns:
        The measures, `bleu_precisions`, `n` (questions), `ci95` (measure to [low, high]) and `slices` (name to the
        same for a part of the questions; a slice without questions is absent).
    """
    masks = slices(questions)
    parts = _overall(questions, answers)
    for name, mask in masks.items():
        parts += _ranked(name, mask, questions, answers)
    columns = np.concatenate([part.by_session for part in parts], axis=1)
    resampled = metrics.bootstrap(columns, seed=seed)
    borders = np.cumsum([part.by_session.shape[1] for part in parts])[:-1]

    summary: dict[str, Any] = dict.fromkeys(MEASURES) | {
        "bleu_precisions": None,
        "n": len(questions.session),
        "ci95": {},
        "slices": {name: {"n": int(mask.sum()), "ci95": {}} for name, mask in masks.items()},
    }
    for part, draws in zip(parts, np.split(resampled, borders, axis=1), strict=True):
        place = summary if part.slice is None else summary["slices"][part.slice]
        point = part.value(part.by_session.sum(axis=0))
        spread = part.value(draws)
        if part.measure == "bleu":
            summary["bleu_precisions"] = [float(x) for x in point[1:]]
            point, spread = point[0], spread[:, 0]
        place[part.measure] = _finite(float(point))
        place["ci95"][part.measure] = [_finite(x) for x in metrics.interval(spread)]
    return summary


def slices(questions: Questions) -> dict[str, NDArray[np.bool_]]:
    """Parts of the questions, each as a mask [n]; those without a question are left out.

    `position_0` is the first query of a session; `seen` queries are in the popularity list of the training split;
    `repeat_free` are those that differ from the query before them.
    """
    masks = {
        "position_0": questions.position == 0,
        "position_1": questions.position == 1,
        "position_2+": questions.position >= 2,
    }
    if questions.task == "complete":
        masks["position_1+"] = questions.position >= 1
        for name, (low, high) in PREFIX_LENGTHS.items():
            longest = high if high is not None else np.iinfo(np.int64).max
            masks[f"prefix_{name}"] = (questions.prefix_length >= low) & (questions.prefix_length <= longest)
    masks |= {"seen": questions.seen, "unseen": ~questions.seen, "repeat_free": ~questions.repeat}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _overall(questions: Questions, answers: Answers) -> list[_Sums]:
    everything = np.ones(len(questions.session), dtype=bool)
    parts = _ranked(None, everything, questions, answers)
    sessions = len(questions.sessions)

    def add(measure: str, columns: Floats, session: Integers, value: Callable[[Floats], Floats]) -> None:
        parts.append(_Sums(None, measure, metrics.sums_by_session(columns, session, sessions), value))

    if questions.task == "suggest":
        truth = [query for queries in questions.sessions for query in queries[1:]]
        add("bleu", metrics.bleu_counts(answers.best, truth), questions.session, metrics.bleu)
    if answers.log_probability is not None:
        add("perplexity", answers.log_probability, questions.target_session, metrics.perplexity)
    if answers.keys is not None:
        saved = np.stack([answers.keys[:, 1] - answers.keys[:, 0], answers.keys[:, 1]], axis=1)
        add("keystrokes_saved", saved, questions.target_session, metrics.ratio)
    return parts


def _ranked(name: str | None, mask: NDArray[np.bool_], questions: Questions, answers: Answers) -> list[_Sums]:
    values = {
        "mrr@10": metrics.reciprocal(answers.rank),
        "success@1": metrics.success(answers.rank, 1),
        "success@10": metrics.success(answers.rank, CUT),
        "pmrr@10": metrics.reciprocal(answers.partial_rank),
    }
    ones = mask.astype(np.float64)
    sessions = len(questions.sessions)
    return [
        _Sums(
            name,
            measure,
            metrics.sums_by_session(np.stack([values[measure] * ones, ones], axis=1), questions.session, sessions),
            metrics.ratio,
        )
        for measure in SLICE_MEASURES
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
