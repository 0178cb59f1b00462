"""From cells to figures: every system on every corpus, all seeds together, each held against the MTN; and the goals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparing.cells import Cell, load_cell, questions_of
from comparing.corpora import BASELINES, FUSIONS, LISTS, NETWORKS, WORN, Corpus
from mtn_edge.data.dataset import Dataset
from mtn_edge.evaluation.comparison import compare
from mtn_edge.evaluation.protocol import Answers, Questions, Task
from mtn_edge.evaluation.summary import columns_of_questions, summarize
from mtn_edge.evaluation.systems import CEILING

REFERENCE = "mtn"
PRODUCT = f"{REFERENCE}+{LISTS}"
"""The MTN as it is shipped."""
BOOTSTRAP_SEED = 1
OF_CEILING = 0.95
"""Share of the highest possible MRR@10 that the MTN should reach."""
MISCALIBRATED = 0.05
"""Calibration error that the product's probabilities may have."""
BELOW_ALONE, BELOW_NGRAM = 0.5, 0.25
"""Nats a token that the MTN with everything mixed in should save on MS MARCO, against itself and `ngram+copy`."""
LAST_POSITION = 6
"""Sessions with more earlier queries count as this."""


def figures_of(corpus: Corpus, cells: Sequence[Cell], work: Path) -> dict[str, Any]:
    """The figures of the cells of one corpus that are done.

    Returns:
        `tasks` (task to system to the summary of `evaluation.summary.summarize` with `bytes`, `against`, `protocol`,
        `by_position` and `seeds`: MRR@10 of each training) and `systems` (system to the facts about its cells).
    """
    questions = questions_of(corpus, Dataset.open(corpus.dataset(work)))
    runs: dict[str, list[tuple[dict[Task, Answers], dict[str, Any]]]] = {}
    for cell in cells:
        if cell.is_done(work, corpus):
            runs.setdefault(cell.system, []).append(load_cell(cell, work))
    tasks: dict[Task, dict[str, Any]] = {}
    for task, asked in questions.items():
        answers = {name: [given[task] for given, _ in found] for name, found in runs.items()}
        tasks[task] = {
            name: _summary(asked, given)
            | {"against": _against(asked, name, REFERENCE, answers)}
            | ({"against_product": _against(asked, name, PRODUCT, answers)} if name in BASELINES else {})
            | {"bytes": runs[name][0][1]["bytes"], "protocol": _protocol(corpus, asked)}
            for name, given in answers.items()
        }
    return {"tasks": tasks, "systems": {name: [about for _, about in found] for name, found in runs.items()}}


def goals_of(corpus: Corpus, figures: dict[str, Any]) -> list[dict[str, Any]]:
    """What the MTN should reach on a corpus: ahead of every network, and near the ceiling where it is known."""
    goals = []
    for task, systems in figures["tasks"].items():
        if REFERENCE not in systems:
            continue
        best = systems[REFERENCE]["mrr@10"]
        if CEILING in systems:
            share = best / systems[CEILING]["mrr@10"]
            goals.append(_goal(f"{corpus.name}, {task}: share of the ceiling's MRR@10", share, OF_CEILING))
        for name, summary in systems.items():
            if name in (REFERENCE, CEILING, *WORN, *corpus.variants):
                continue
            # Ahead by more than the interval: its lower end is above zero.
            lead, (low, high) = _lead(summary["against"]["mrr@10"])
            goals.append(_goal(f"{corpus.name}, {task}: MTN - {name}, MRR@10", lead, 0.0, [low, high], value=low))
            if task == "suggest" and name in NETWORKS:
                lead = systems[REFERENCE]["bleu"] - summary["bleu"]
                goals.append(_goal(f"{corpus.name}, {task}: MTN - {name}, BLEU", lead, 0.0))
        goals += _goals_of_product(corpus, task, systems)
        goals += _goals_of_fusion(corpus, task, systems)
    return goals


def _goals_of_product(corpus: Corpus, task: str, systems: dict[str, Any]) -> list[dict[str, Any]]:
    """Ahead of every list and n-gram, on every slice, and honest about its probabilities."""
    if PRODUCT not in systems:
        return []
    product, goals = systems[PRODUCT], []
    for name in (name for name in BASELINES if name in systems):
        for measure, found in systems[name]["against_product"].items():
            if measure == "system":
                continue
            lead, (low, high) = _lead(found)
            title = f"{corpus.name}, {task}: MTN with lists - {name}, {measure}"
            goals.append(_goal(title, lead, 0.0, [low, high], value=low))
    for part, summary in product["slices"].items():
        rivals = {name: systems[name]["slices"][part]["mrr@10"] for name in BASELINES if name in systems}
        best = max(rivals, key=rivals.__getitem__)
        title = f"{corpus.name}, {task}, {part}: MTN with lists - {best}, MRR@10"
        goals.append(_goal(title, summary["mrr@10"] - rivals[best], 0.0))
    title = f"{corpus.name}, {task}: calibration error"
    return [*goals, _goal(title, product["calibration_error"], MISCALIBRATED, at_most=True)]


def _goals_of_fusion(corpus: Corpus, task: str, systems: dict[str, Any]) -> list[dict[str, Any]]:
    """How much likelier the next query is with everything mixed in, in nats a token; on the simulator the ceiling's
    perplexity."""
    fused = f"{REFERENCE}+{FUSIONS[-1]}"
    if fused not in systems:
        return []
    own = systems[fused]["perplexity"]
    if CEILING in systems:
        over = own / systems[CEILING]["perplexity"] - 1
        return [_goal(f"{corpus.name}, {task}: perplexity over the ceiling's", over, 0.03, at_most=True)]
    small = corpus.name == "msmarco"
    bounds = {REFERENCE: BELOW_ALONE if small else 0.0, "ngram+copy": BELOW_NGRAM if small else 0.0}
    return [
        _goal(f"{corpus.name}, {task}: nats saved against {name}", math.log(systems[name]["perplexity"] / own), bound)
        for name, bound in bounds.items()
        if name in systems
    ]


def _lead(found: dict[str, Any]) -> tuple[float, tuple[float, float]]:
    """From a system's difference to the MTN to the MTN's lead over it."""
    low, high = found["ci95"]
    return -found["difference"], (-high, -low)


def _goal(
    name: str,
    shown: float,
    bound: float,
    spread: list[float] | None = None,
    *,
    value: float | None = None,
    at_most: bool = False,
) -> dict[str, Any]:
    """A lower bound (an upper one with `at_most`), held against `value` where that is not what is shown."""
    held = shown if value is None else value
    ok = held <= bound if at_most else held >= bound
    return {"name": name, "value": shown, "spread": spread or [shown, shown], "bound": bound, "ok": bool(ok)}


def _summary(asked: Questions, given: list[Answers]) -> dict[str, Any]:
    summary = summarize(asked, given, seed=BOOTSTRAP_SEED)
    summary["seeds"] = [float(columns_of_questions(each)[0].columns[:, 0].mean()) for each in given]
    summary["by_position"] = _by_position(asked, given)
    return summary


def _against(asked: Questions, name: str, reference: str, answers: dict[str, list[Answers]]) -> dict[str, Any] | None:
    """How a system differs from another; None where that is not there, or is itself."""
    if name == reference or reference not in answers:
        return None
    given, other = answers[name], answers[reference]
    own = given if len(given) == len(other) else given[:1] * len(other)
    return {"system": reference} | compare(asked, own, other, seed=BOOTSTRAP_SEED)


def _by_position(asked: Questions, given: list[Answers]) -> dict[str, float]:
    """MRR@10 by the number of earlier queries."""
    values = np.mean([columns_of_questions(each)[0].columns[:, 0] for each in given], axis=0)
    position = np.minimum(asked.position[asked.target], LAST_POSITION)
    return {str(place): float(values[position == place].mean()) for place in np.unique(position)}


def _protocol(corpus: Corpus, asked: Questions) -> dict[str, Any]:
    return {
        "split": "test",
        "sessions": len(asked.sessions),
        "targets": len(asked.length),
        "available": asked.available,
        "max_queries": corpus.asked,
        "seed": 1,
    }
