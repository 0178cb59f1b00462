"""What a bundle costs and how good it is: the figures that budgets are held against, and those of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from export.sessions import batches_of, read_sessions
from mtn_edge import folders
from mtn_edge.console import progress
from mtn_edge.data.dataset import Dataset
from mtn_edge.evaluation.protocol import TASKS, Answers, Questions
from mtn_edge.evaluation.run import ask_with_progress, draw, summaries
from mtn_edge.evaluation.systems import Model
from mtn_edge.profiling.cases import draw_sessions, presses
from mtn_edge.profiling.protocol import profile_bundle
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.training.checkpoint import load_checkpoint
from quantize.teacher import agreement, same_tokenizer

QUERIES = 2000
"""Queries that are asked about at most, in each task and split."""
KEY_PRESSES = 1000
"""Key presses that are timed, about."""
AGREEMENT_SESSIONS = 200
"""Validation sessions on which two networks are compared."""
EXAMPLES = 8
"""Sessions in the report."""
SHOWN = 5
"""Suggestions of each."""
TEACHER, BUNDLE = "teacher", "bundle"


def cost(bundle: Path, data: Dataset, *, seed: int) -> dict[str, Any]:
    """`bytes` of all files, and `keystroke_ms` (p50, p95, p99) on one thread of this machine."""
    sessions = draw_sessions(data.sessions("valid"), seed=seed, key_presses=KEY_PRESSES)
    total = sum(1 for _ in presses(sessions))
    with progress("key presses", total, "requests") as update:
        profile = profile_bundle(bundle, sessions, threads=1, progress=lambda done: update(done, ""))
    figures = profile.figures
    times = {name: figures["keystroke_ms"][name] for name in ("p50", "p95", "p99", "count")}
    return {"bytes": figures["bytes"], "keystroke_ms": times, "machine": figures["machine"]}


def quality(bundle: Path, data: Dataset, *, seed: int) -> dict[str, Any]:
    """MRR@10 of each task and their mean (`mrr@10`), on the validation split, as the bundle shows its suggestions."""
    found: dict[str, Any] = {}
    for questions in draw(data, TASKS, split="valid", max_queries=QUERIES, seed=seed):
        answers = ask_with_progress("the bundle", Model(Suggester.open(bundle)), questions)
        found[questions.task] = summaries(questions, {BUNDLE: answers}, reference=BUNDLE, seed=seed)[BUNDLE]["mrr@10"]
    return {"tasks": found, "mrr@10": float(np.mean(list(found.values())))}


def comparison(teacher: Path, bundle: Path, data: Dataset, *, seed: int) -> dict[str, Any]:
    """Both on the test split.

    Returns:
        `tasks`: the summaries of both by task, the bundle's with its paired difference from the teacher;
        `same_first`: by task, the share of questions at which both show the same query first.
    """
    paths = {TEACHER: teacher, BUNDLE: bundle}
    tasks: dict[str, Any] = {}
    same: dict[str, float] = {}
    for questions in draw(data, TASKS, split="test", max_queries=QUERIES, seed=seed):
        answers = {name: _answers(name, path, questions) for name, path in paths.items()}
        tasks[questions.task] = summaries(questions, answers, reference=TEACHER, seed=seed)
        first = (answers[name].best for name in paths)
        same[questions.task] = float(np.mean([one == other for one, other in zip(*first, strict=True)]))
    return {"tasks": tasks, "same_first": same}


def _answers(name: str, path: Path, questions: Questions) -> Answers:
    return ask_with_progress(name, Model(Suggester.open(path)), questions)


def divergence(teacher: Path, student: Path, data: Dataset) -> dict[str, Any] | None:
    """How far the float32 network of a student is from the teacher's: `kl` in nats a token, `top1`, `tokens`.

    None where their tokens are not the same, or there are no validation sessions.
    """
    mine, theirs = load_checkpoint(student), load_checkpoint(teacher)
    sessions = read_sessions(data, "valid", AGREEMENT_SESSIONS)
    if not same_tokenizer(mine.tokenizer, theirs.tokenizer) or not sessions:
        return None
    found = agreement(mine.model, theirs.model, batches_of(sessions, mine))
    return {"kl": found.kl, "top1": found.top1, "tokens": found.tokens}


def examples(teacher: Path, bundle: Path, data: Dataset) -> list[dict[str, Any]]:
    """What both suggest in some sessions, with nothing typed and after the first characters of the next query.

    Sessions of the test split whose every query is in the dataset's popularity list, so that none is one user's own.
    """
    popular = {query for query, _ in data.popularity()}
    found: list[dict[str, Any]] = []
    opened = {TEACHER: Suggester.open(teacher), BUNDLE: Suggester.open(bundle)}
    taken: set[tuple[str, ...]] = set()
    for queries in data.sessions("test"):
        if len(queries) < 2 or len(set(queries)) < len(queries) or not popular.issuperset(queries):
            continue
        *session, target = queries
        if tuple(session) in taken:
            continue
        taken.add(tuple(session))
        for typed in ("", target[: max(1, len(target) // 3)]):
            shown = {name: _shown(suggester, session, typed) for name, suggester in opened.items()}
            found.append({"session": session, "typed": typed, "searched": target, **shown})
        if len(found) >= 2 * EXAMPLES:
            break
    return found


def _shown(suggester: Suggester, session: Sequence[str], typed: str) -> list[str]:
    running = suggester.session()
    for query in session:
        running.append(query)
    return [each.text for each in running.suggest(typed, SHOWN).suggestions]


def parts(bundle: Path) -> dict[str, int]:
    """Bytes of a bundle's files, by what they are."""
    files = folders.read_manifest(bundle, "bundle")["files"]
    found: dict[str, int] = {}
    for name, entry in files.items():
        kind = next((kind for kind, beginnings in _PARTS.items() if name.startswith(tuple(beginnings))), "other files")
        found[kind] = found.get(kind, 0) + entry["bytes"]
    return found


_PARTS: dict[str, Sequence[str]] = {
    "graphs": ("encode.", "suggest.", "history."),
    "lists": ("completions.", "followers."),
    "tokenizer": ("tokenizer.",),
}
