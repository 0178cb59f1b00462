"""One evaluation: models opened, baselines made, every system asked the same questions, the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtn_edge import console
from mtn_edge.data.dataset import Dataset, SplitName
from mtn_edge.evaluation.baselines import BASELINES, Evidence
from mtn_edge.evaluation.comparison import compare
from mtn_edge.evaluation.protocol import Answers, Questions, Task, ask, draw_questions
from mtn_edge.evaluation.report import Figures
from mtn_edge.evaluation.summary import summarize
from mtn_edge.evaluation.systems import CEILING, Ceiling, Model, System
from mtn_edge.folders import read_manifest
from mtn_edge.names import distinct_names

_WEIGHED = {
    "bundle": ("encode.", "suggest.", "history.", "completions.", "followers."),
    "checkpoint": ("model.safetensors", "gate.safetensors", "ngram.safetensors"),
}
"""How the names of the files begin that count as a model's size."""
_MADE_FROM = {"trained_on": "weights", "dataset": "weights", "data": "lists", "ngram": "n-gram"}
"""Entries of a lineage that name a dataset."""


def open_models(paths: Sequence[Path], data: Dataset, taken: Sequence[str]) -> tuple[dict[str, Model], list[str]]:
    """Bundles and checkpoints by short names, and what is worth knowing about their lineage.

    Args:
        paths: their folders.
        data: what they are measured on.
        taken: names that are spoken for.
    """
    from mtn_edge.decoding.open import open_suggester

    models: dict[str, Model] = {}
    notes = []
    for path, name in zip(paths, distinct_names(paths, taken), strict=True):
        suggester = open_suggester(path)
        manifest = read_manifest(path)
        models[name] = Model(suggester, _size(manifest))
        lineage, own = manifest["lineage"], data.manifest["manifest_sha256"]
        foreign = [what for key, what in _MADE_FROM.items() if lineage.get(key) not in (None, own)]
        if foreign:
            notes.append(
                f"{name} has its {' and '.join(foreign)} from another dataset than {data.path.resolve().name}: it may"
                " have seen some of these sessions, and what is called seen is what this dataset's training split holds"
            )
        tokenizers = {folder["files"]["tokenizer.json"]["sha256"] for folder in (manifest, data.manifest)}
        if len(tokenizers) > 1:
            notes.append(f"{name} has another tokenizer than the dataset: its perplexity per token is not comparable")
    return models, notes


def _size(manifest: dict[str, Any]) -> int:
    files = manifest["files"].items()
    return sum(entry["bytes"] for name, entry in files if name.startswith(_WEIGHED[manifest["kind"]]))


def smallest_bundle(paths: Sequence[Path]) -> int | None:
    """Bytes of the smallest bundle, None where there is none: what an n-gram may take when nothing else is said."""
    manifests = [read_manifest(path) for path in paths]
    return min((_size(manifest) for manifest in manifests if manifest["kind"] == "bundle"), default=None)


def make_baselines(names: Sequence[str], data: Dataset, max_bytes: int | None) -> dict[str, System]:
    """Baselines by their names (see `baselines.Evidence`)."""
    evidence = Evidence(data, max_bytes)
    return {name: BASELINES[name](evidence) for name in names}


def open_ceiling(path: Path, data: Dataset) -> dict[str, System]:
    """The oracle of a simulated log, as a system."""
    from mtn_edge.data.oracle import Oracle

    return {CEILING: Ceiling(Oracle.load(path), data.tokenizer.encode)}


def evaluate_systems(
    data: Dataset,
    systems: dict[str, System],
    tasks: Sequence[Task],
    *,
    split: SplitName,
    reference: str,
    max_queries: int,
    seed: int,
) -> Figures:
    """The figures of all systems on all tasks.

    Args:
        data: the dataset.
        systems: by name, in the order of the tables.
        tasks: of `protocol.TASKS`.
        split: which sessions are asked about.
        reference: the system that every other is compared with.
        max_queries: queries that are asked about at most in each task.
        seed: seed of the choice of sessions and of the bootstrap.

    Returns:
        Task to system to its summary (see `summary.summarize`) with `bytes`, `settings` (what was chosen for it on the
        data), `against` (the reference's name as `system`, and what `comparison.compare` gives; None for the reference
        itself) and `protocol`.
    """
    figures: Figures = {}
    for questions in draw(data, tasks, split=split, max_queries=max_queries, seed=seed):
        answers = {name: ask_with_progress(name, system, questions) for name, system in systems.items()}
        protocol = _protocol(questions, split, max_queries, seed)
        figures[questions.task] = {
            name: summary
            | {"bytes": systems[name].nbytes, "settings": dict(systems[name].settings), "protocol": protocol}
            for name, summary in summaries(questions, answers, reference=reference, seed=seed).items()
        }
    return figures


def draw(data: Dataset, tasks: Sequence[Task], *, split: SplitName, max_queries: int, seed: int) -> list[Questions]:
    """The questions of each task, see `protocol.draw_questions`."""
    sessions, popular = data.sessions(split), {query for query, _ in data.popularity()}
    return [draw_questions(sessions, task, popular=popular, max_queries=max_queries, seed=seed) for task in tasks]


def summaries(questions: Questions, answers: dict[str, Answers], *, reference: str, seed: int) -> dict[str, Any]:
    """Each system's summary (see `summary.summarize`), and under `against` how it differs from the reference."""
    found = {}
    for name, own in answers.items():
        against: dict[str, Any] | None = None
        if name != reference:
            against = {"system": reference}
            against |= compare(questions, [own], [answers[reference]], seed=seed)
        found[name] = summarize(questions, [own], seed=seed) | {"against": against}
    return found


def ask_with_progress(name: str, system: System, questions: Questions) -> Answers:
    """A system's answers, with a progress bar."""
    with console.progress(f"{questions.task}, {name}", len(questions.length), "queries") as update:
        return ask(system, questions, progress=lambda done: update(done, ""))


def _protocol(questions: Questions, split: str, max_queries: int, seed: int) -> dict[str, Any]:
    """What was asked, beside the figures of every system."""
    return {
        "split": split,
        "sessions": len(questions.sessions),
        "targets": len(questions.length),
        "available": questions.available,
        "max_queries": max_queries,
        "seed": seed,
    }
