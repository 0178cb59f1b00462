"""`mtn-edge data`: logs to datasets, simulated logs, and what a dataset holds."""

from __future__ import annotations

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mtn_edge import console
from mtn_edge.errors import missing_extra

app = typer.Typer(help="Search logs to datasets.", no_args_is_help=True, rich_markup_mode=None)

DatasetOut = Annotated[Path, typer.Option("--output", "-o", metavar="DATASET", help="The new dataset.")]


class FormatName(StrEnum):
    """Formats of logs."""

    auto = "auto"
    aol = "aol"
    sessions = "sessions"


class SplitBy(StrEnum):
    """Ways to split."""

    time = "time"
    hash = "hash"


class CoverageName(StrEnum):
    """Sessions that an oracle's file covers."""

    test = "test"
    all = "all"
    none = "none"


@app.command()
def prepare(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG", help="Log files, plain or gzip.")],
    output: DatasetOut,
    format: Annotated[  # noqa: A002 (the option's name)
        FormatName,
        typer.Option(help="aol: user, query, time [, rank, URL] between tabs; sessions: one a line, tabs between."),
    ] = FormatName.auto,
    min_users: Annotated[int, typer.Option(min=1, help="Keep a query only if so many different users issued it.")] = 5,
    gap_minutes: Annotated[float, typer.Option(min=0, help="A longer pause starts a new session.")] = 30,
    vocab_size: Annotated[int, typer.Option(min=259, help="Tokens of the tokenizer at most.")] = 4096,
    split: Annotated[
        SplitBy | None,
        typer.Option(help="By start of the session, or by a hash of the user. [default: time; sessions: hash]"),
    ] = None,
    seed: console.SeedOption = 1,
    force: console.ForceFlag = False,
    as_json: console.JsonFlag = False,
    verbose: console.VerboseFlag = False,  # noqa: ARG001 (read by the entry point)
) -> None:
    """Make a dataset from search logs: cleaned, cut into sessions, without personal text, split, counted."""
    _need_engine("data prepare")
    from mtn_edge.data.prepare import PrepareSettings
    from mtn_edge.data.prepare import prepare as run
    from mtn_edge.data.report import report_words

    settings = PrepareSettings(
        format=format.value,
        min_users=min_users,
        gap_minutes=gap_minutes,
        vocab_size=vocab_size,
        split=split.value if split else None,
        seed=seed,
    )
    report = run(logs, output, settings, force=force)
    console.emit(report, as_json=as_json, words=report_words(report, output))


@app.command()
def synth(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.tsv", help="The new log.")],
    sessions: Annotated[int | None, typer.Option(min=1, help="How many sessions to simulate.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Or: rows of the log at least.")] = None,
    difficulty: Annotated[
        float, typer.Option(help="Above 0: near 0 sessions follow their usual course, large ones are noise.")
    ] = 1.0,
    oracle: Annotated[
        CoverageName,
        typer.Option(help="Sessions that FILE.oracle.jsonl has the exact answers for; test: the last ones."),
    ] = CoverageName.test,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    force: console.ForceFlag = False,
    as_json: console.JsonFlag = False,
    verbose: console.VerboseFlag = False,  # noqa: ARG001 (read by the entry point)
) -> None:
    """Write a simulated search log in the AOL format, and beside it the best answers that any system could give."""
    if (sessions is None) == (rows is None):
        raise typer.BadParameter("give exactly one of them", param_hint="--sessions, --rows")
    _need("data synth", {"pyarrow": "pyarrow"})
    from mtn_edge.data.synthetic_log import LogSettings, log_words, write_log

    settings = LogSettings(sessions=sessions, rows=rows, seed=seed, difficulty=difficulty, oracle=oracle.value)
    made = write_log(output, settings, force=force)
    console.emit(made, as_json=as_json, words=log_words(made, output))


@app.command()
def stats(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `data prepare` wrote.")],
    as_json: console.JsonFlag = False,
    verbose: console.VerboseFlag = False,  # noqa: ARG001 (read by the entry point)
) -> None:
    """Say what a dataset holds: sessions, queries, lengths, repeats, vocabulary."""
    _need_engine("data stats")
    from mtn_edge.data.stats import describe, stats_words

    document = describe(dataset)
    console.emit(document, as_json=as_json, words=stats_words(document))


def _need_engine(purpose: str) -> None:
    _need(purpose, {"ibis": "ibis-framework", "duckdb": "duckdb", "pyarrow": "pyarrow"})


def _need(purpose: str, packages: dict[str, str]) -> None:
    for module, package in packages.items():
        if importlib.util.find_spec(module) is None:
            raise missing_extra(package, "train", f"`{purpose}`")
