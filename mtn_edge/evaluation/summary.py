"""Answers to figures: every measure with its 95 % interval, over all questions and over slices of them.

Shapes: t targets, n questions, s sessions, r resamples, c columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mtn_edge.evaluation import metrics
from mtn_edge.evaluation.metrics import CUT, Floats, Integers
from mtn_edge.evaluation.prefixes import PREFIX_GROUPS
from mtn_edge.evaluation.protocol import Answers, Mask, Questions

RANKED = ("mrr@10", "success@1", "success@10", "pmrr@10")
"""Measures of single questions; the others are measures of whole queries."""
MEASURES = (*RANKED, "calibration_error", "bleu", "perplexity", "nats_per_character", "keystrokes_saved", "mrl")
"""Every measure of the summary, in its order; one that does not apply to a task, a system or a slice is None."""

NOTES = {
    "mrr@10": "mean of 1/rank of the true query among ten candidates, 0 when it is not there",
    "success@1": "share of questions whose first candidate is the true query (also called exact match)",
    "success@10": "share of questions with the true query among ten candidates",
    "pmrr@10": "as MRR@10, but a candidate that is a prefix of the true query ending at a word end is right as well",
    "calibration_error": "how far the probabilities of the candidates in a bar of 3 lie from how often they are right, "
    "in ten bins; not for lists",
    "bleu": "corpus BLEU of the first candidate in percent, by sacrebleu with its default smoothing; words are what "
    "stands between blanks; task suggest only",
    "perplexity": "of the true query, per token of the system's own tokenizer, the end of the query being one; not for "
    "lists",
    "nats_per_character": "negative log-probability of the true query per character, its end being one: comparable "
    "across tokenizers; not for lists",
    "keystrokes_saved": "share of keys saved by a bar of 3 that is shown before the first key too; a tap is one key "
    "and stands for the rest of the query and Enter; task complete only",
    "mrl": "mean recoverable length: characters that can be left off at the end of the query, one by one, while ten "
    "candidates hold it; task complete only",
}
"""What each measure means, in words."""


@dataclass(frozen=True)
class Part:
    """A measure of a part of the questions, as a function of sums over examples."""

    slice: str | None
    measure: str
    by_session: Floats
    """[s, c]"""
    value: Callable[[Floats], Floats]
    """From sums [..., c] to the measure [...]; BLEU gives its precisions too, [..., 5]."""


class Columns(NamedTuple):
    """A measure before it is summed."""

    measure: str
    columns: Floats
    """[n, c] of questions, or [t, c] of targets."""
    value: Callable[[Floats], Floats]
    """See `Part`."""


@dataclass(frozen=True)
class Slice:
    """Some of the questions."""

    questions: Mask
    """[n]"""
    targets: Mask | None
    """[t] the same, where whole queries are told apart; None where the characters typed are."""


def summarize(questions: Questions, answers: Sequence[Answers], *, seed: int) -> dict[str, Any]:
    """The figures of one system on one task.

    Args:
        questions: what was asked.
        answers: what the system answered; of several trainings of one system, each one's: the figures are then over all
            of them, and the intervals over sessions.
        seed: seed of the bootstrap; the same one gives all systems the same resamples.

    Returns:
        The measures, `bleu_precisions`, `n` (questions), `ci95` (measure to [low, high]) and `slices` (name to the
        same for a part of the questions; a slice without questions is absent).
    """
    masks = slices(questions)
    of_questions = added(columns_of_questions(each) for each in answers)
    of_targets = added(columns_of_targets(questions, each) for each in answers)
    parts: list[Part] = []
    for name, mask in ((None, _everything(questions)), *masks.items()):
        parts += _sums(questions, of_questions, name, mask.questions, questions.session)
        if mask.targets is not None:
            parts += _sums(questions, of_targets, name, mask.targets, questions.target_session)
    columns = np.concatenate([part.by_session for part in parts], axis=1)
    resampled = metrics.bootstrap(columns, seed=seed)
    borders = np.cumsum([part.by_session.shape[1] for part in parts])[:-1]

    summary = _empty(len(questions.target)) | {
        "slices": {name: _empty(int(mask.questions.sum())) for name, mask in masks.items()}
    }
    for part, draws in zip(parts, np.split(resampled, borders, axis=1), strict=True):
        place = summary if part.slice is None else summary["slices"][part.slice]
        point = part.value(part.by_session.sum(axis=0))
        spread = part.value(draws)
        if part.measure == "bleu":
            place["bleu_precisions"] = [float(x) for x in point[1:]]
            point, spread = point[0], spread[:, 0]
        place[part.measure] = _finite(float(point))
        place["ci95"][part.measure] = [_finite(x) for x in metrics.interval(spread)]
    return summary


def slices(questions: Questions) -> dict[str, Slice]:
    """Parts of the questions; those without a question are left out.

    `position_0` is the first query of a session; `seen` queries are in the popularity list of the training split;
    `repeat_free` are those that differ from the query before them; a `seen_prefix` is one that some query of the
    training split starts with.
    """
    of_targets = {
        "position_0": questions.position == 0,
        "position_1": questions.position == 1,
        "position_2+": questions.position >= 2,
    }
    of_questions: dict[str, Mask] = {}
    if questions.task == "complete":
        of_targets["position_1+"] = questions.position >= 1
        for name, (low, high) in PREFIX_GROUPS.items():
            longest = high if high is not None else np.iinfo(np.int64).max
            of_questions[f"prefix_{name}"] = (questions.prefix_length >= low) & (questions.prefix_length <= longest)
        of_questions |= {"seen_prefix": questions.seen_prefix, "unseen_prefix": ~questions.seen_prefix}
    of_targets |= {
        "seen": questions.seen,
        "unseen": ~questions.seen,
        "repeat_free": ~questions.repeat,
        "navigational": questions.navigational,
    }
    found = {name: Slice(mask[questions.target], mask) for name, mask in of_targets.items()}
    found |= {name: Slice(mask, None) for name, mask in of_questions.items()}
    return {name: part for name, part in found.items() if part.questions.any()}


def columns_of_questions(answers: Answers) -> list[Columns]:
    """The measures of single questions, each with the columns [n, 2] that it sums."""
    values = {
        "mrr@10": metrics.reciprocal(answers.rank),
        "success@1": metrics.success(answers.rank, 1),
        "success@10": metrics.success(answers.rank, CUT),
        "pmrr@10": metrics.reciprocal(answers.partial_rank),
    }
    found = [Columns(measure, _with_ones(value), metrics.ratio) for measure, value in values.items()]
    if answers.probability is not None:
        stated = metrics.calibration_counts(answers.probability, answers.rank)
        found.append(Columns("calibration_error", stated, metrics.calibration_error))
    return found


def columns_of_targets(questions: Questions, answers: Answers) -> list[Columns]:
    """The measures of whole queries that the answers allow, each with the columns [t, c] that it sums."""
    found = []
    if questions.task == "suggest":
        truth = [query for queries in questions.sessions for query in queries[1:]]
        found.append(Columns("bleu", metrics.bleu_counts(answers.best, truth), metrics.bleu))
    if answers.log_probability is not None:
        found.append(Columns("perplexity", answers.log_probability, metrics.perplexity))
        nats = np.stack([-answers.log_probability[:, 0], questions.length + 1.0], axis=1)
        found.append(Columns("nats_per_character", nats, metrics.ratio))
    if answers.keys is not None:
        saved = np.stack([answers.keys[:, 1] - answers.keys[:, 0], answers.keys[:, 1]], axis=1)
        found.append(Columns("keystrokes_saved", saved, metrics.ratio))
    if answers.recovered is not None:
        found.append(Columns("mrl", _with_ones(answers.recovered.astype(np.float64)), metrics.ratio))
    return found


def added(runs: Iterable[list[Columns]]) -> list[Columns]:
    """The columns of several trainings of one system as those of one: every measure is a function of sums."""
    return [same[0]._replace(columns=sum(each.columns for each in same)) for same in zip(*runs, strict=True)]


def _sums(
    questions: Questions, found: list[Columns], name: str | None, mask: Mask, session: Integers
) -> Iterator[Part]:
    for measure, columns, value in found:
        by_session = metrics.sums_by_session(columns[mask], session[mask], len(questions.sessions))
        yield Part(name, measure, by_session, value)


def _with_ones(values: Floats) -> Floats:
    """Columns [n, 2] whose ratio of sums is the mean of `values`."""
    return np.stack([values, np.ones(len(values))], axis=1)


def _everything(questions: Questions) -> Slice:
    return Slice(np.ones(len(questions.target), dtype=bool), np.ones(len(questions.length), dtype=bool))


def _empty(n: int) -> dict[str, Any]:
    return dict.fromkeys(MEASURES) | {"bleu_precisions": None, "n": n, "ci95": {}}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
