"""The command `evaluate`."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtn_edge import console
from mtn_edge.console import ForceFlag, JsonFlag, SeedOption, VerboseFlag
from mtn_edge.errors import UserError, missing_extra

if TYPE_CHECKING:
    from mtn_edge.evaluation.protocol import Task
    from mtn_edge.evaluation.systems import System

Split = Literal["train", "valid", "test"]


def evaluate(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `data prepare` wrote.")],
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[BUNDLE|CHECKPOINT]...", help="What is measured; none for the baselines alone."),
    ] = None,
    task: Annotated[
        Literal["suggest", "complete", "both"], typer.Option(help="The next query, the end of a query, or both.")
    ] = "both",
    baselines: Annotated[
        str,
        typer.Option(
            help="Baselines to measure beside: mpc, mpc+terms, adj, ngram, ngram+copy, mcg; with commas, or none."
        ),
    ] = "mpc",
    baseline_mb: Annotated[
        float | None,
        typer.Option(
            metavar="MB",
            help="Megabytes (10^6 bytes) that an n-gram may take; without it, those of the smallest bundle given, or"
            " any number when none is.",
        ),
    ] = None,
    oracle: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oracle.jsonl", help="What `data synth` wrote beside the log: adds its ceiling."),
    ] = None,
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
    """Measure models beside baselines on held-out sessions (docs/evaluation.md says how).

    A model is measured as the product shows it: its own suggestions, with its lists of popular queries and followers.
    Every system is compared with the first model, or with the first baseline when there is none.
    """
    for package in ("pyarrow", "sacrebleu"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "evaluate")
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.evaluation.baselines import parse_names
    from mtn_edge.evaluation.protocol import TASKS
    from mtn_edge.evaluation.report import sections_of, words, write_report
    from mtn_edge.evaluation.run import evaluate_systems, make_baselines, open_ceiling, open_models, smallest_bundle
    from mtn_edge.evaluation.systems import CEILING

    paths, chosen = models or [], parse_names(baselines)
    if not paths and not chosen:
        raise UserError(
            "no model and no baseline is named, and there is nothing to measure",
            code="nothing-to-measure",
            hint="name a bundle or a checkpoint after the dataset, or --baselines mpc",
        )
    if baseline_mb is not None and not 0 < baseline_mb < math.inf:
        raise UserError(
            f"`--baseline-mb` is {baseline_mb:g}, and it must be above 0 and finite",
            code="bad-setting",
            hint="take 1 or more",
        )
    if report is not None:
        from mtn_edge.pages.page import prepare_page

        prepare_page(report, force=force)
    data = Dataset.open(dataset)
    opened, notes = open_models(paths, data, [*chosen, CEILING])
    limit = smallest_bundle(paths) if baseline_mb is None else round(baseline_mb * 1e6)
    systems: dict[str, System] = make_baselines(chosen, data, limit)
    if split == "valid" and opened:
        notes.append(
            "what a bundle or a fused checkpoint was tuned on is the validation split: its figures are too good"
        )
    notes += [f"{name} is set to {dict(system.settings)}" for name, system in systems.items() if system.settings]
    for note in notes:
        console.say(f"note: {note}")
    systems |= opened
    if oracle is not None:
        systems |= open_ceiling(oracle, data)

    tasks: tuple[Task, ...] = TASKS if task == "both" else (task,)
    reference = next(iter([*opened, *systems]))
    figures = evaluate_systems(
        data, systems, tasks, split=split, reference=reference, max_queries=max_queries, seed=seed
    )
    about = (
        f"Dataset {dataset.resolve().name}, seed {seed}. A model is measured as the product shows it: its own"
        " suggestions, with its lists of popular queries and followers (a checkpoint has none); its perplexity is"
        " its own alone."
    )
    if report is not None:
        write_report(report, sections_of(figures), about=about, notes=notes)
        console.say(f"report: {report}")
    console.emit(figures, as_json=as_json, words=f"{words(figures)}\n\n{about}")
