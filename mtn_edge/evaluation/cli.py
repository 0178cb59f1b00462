"""The command `evaluate`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mtn_edge import console
from mtn_edge.console import ForceFlag, JsonFlag, SeedOption, VerboseFlag
from mtn_edge.errors import missing_extra

if TYPE_CHECKING:
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.evaluation.protocol import Questions, Task
    from mtn_edge.evaluation.systems import System

Split = Literal["train", "valid", "test"]


def evaluate(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `data prepare` wrote.")],
    models: Annotated[list[Path], typer.Argument(metavar="BUNDLE|CHECKPOINT", help="What is measured.")],
    task: Annotated[
        Literal["suggest", "complete", "both"], typer.Option(help="The next query, the end of a query, or both.")
    ] = "both",
    baselines: Annotated[str, typer.Option(help="Baselines to measure beside, separated by commas, or none.")] = "mpc",
    split: Annotated[Split, typer.Option(help="Which sessions to ask about.")] = "test",
    max_queries: Annotated[
        int, typer.Option(min=1, help="Queries to ask about at most in each task; sessions are drawn whole.")
    ] = 500,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots.")] = None,
    seed: SeedOption = 1,
    as_json: JsonFlag = False,
    force: ForceFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (the entry point reads it)
) -> None:
    """Measure models beside baselines on held-out sessions.

    A model is measured as the product shows it: its own suggestions, filled up from its list of popular completions.
    """
    for package in ("pyarrow", "sacrebleu"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "evaluate")
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.evaluation.baselines import BASELINES, parse_names
    from mtn_edge.evaluation.protocol import TASKS, draw_questions
    from mtn_edge.evaluation.report import Figures, words, write_report

    chosen = parse_names(baselines)
    if report is not None:
        from mtn_edge.pages.page import prepare_page

        prepare_page(report, force=force)
    data = Dataset.open(dataset)
    popularity = data.popularity()
    systems: dict[str, System] = {name: BASELINES[name](popularity) for name in chosen}
    notes = _open_models(models, data, systems)
    for note in notes:
        console.say(f"note: {note}")

    tasks: tuple[Task, ...] = TASKS if task == "both" else (task,)
    sessions, popular = data.sessions(split), {query for query, _ in popularity}
    questions = [draw_questions(sessions, each, popular=popular, max_queries=max_queries, seed=seed) for each in tasks]
    figures: Figures = {}
    for asked in questions:
        protocol = _protocol(asked, split, max_queries, seed)
        figures[asked.task] = {
            name: _measure(name, system, asked, seed) | {"protocol": protocol} for name, system in systems.items()
        }
    about = (
        f"Dataset {dataset.resolve().name}, seed {seed}. A model is measured as the product shows it: its own"
        " suggestions, filled up from its list of popular completions (a checkpoint has none); its perplexity is"
        " its own alone."
    )
    if report is not None:
        write_report(report, figures, about=about, notes=notes)
        console.say(f"report: {report}")
    console.emit(figures, as_json=as_json, words=f"{words(figures)}\n\n{about}")


def _open_models(paths: list[Path], data: Dataset, systems: dict[str, System]) -> list[str]:
    """Adds the models to `systems`, and returns what is worth knowing about their lineage."""
    from mtn_edge.decoding.open import open_suggester
    from mtn_edge.evaluation.systems import Model
    from mtn_edge.folders import read_manifest
    from mtn_edge.names import distinct_names

    notes = []
    for path, name in zip(paths, distinct_names(paths, [*systems]), strict=True):
        systems[name] = Model(open_suggester(path))
        manifest = read_manifest(path)
        trained_on = manifest["lineage"]["trained_on" if manifest["kind"] == "bundle" else "dataset"]
        if trained_on != data.manifest["manifest_sha256"]:
            notes.append(
                f"{name} was trained on another dataset than {data.path.resolve().name}: it may have seen some of these"
                " sessions in its training, and what is called seen is what this dataset's training split holds"
            )
        tokenizers = {folder["files"]["tokenizer.json"]["sha256"] for folder in (manifest, data.manifest)}
        if len(tokenizers) > 1:
            notes.append(f"{name} has another tokenizer than the dataset: its perplexity per token is not comparable")
    return notes


def _measure(name: str, system: System, questions: Questions, seed: int) -> dict[str, Any]:
    from mtn_edge.evaluation.protocol import ask
    from mtn_edge.evaluation.summary import summarize

    with console.progress(f"{questions.task}, {name}", len(questions.target_session), "queries") as update:
        answers = ask(system, questions, progress=lambda done: update(done, ""))
    return summarize(questions, answers, seed=seed)


def _protocol(questions: Questions, split: str, max_queries: int, seed: int) -> dict[str, Any]:
    """What was asked, beside the figures of every system."""
    return {
        "split": split,
        "sessions": len(questions.sessions),
        "targets": len(questions.target_session),
        "available": questions.available,
        "max_queries": max_queries,
        "seed": seed,
    }
