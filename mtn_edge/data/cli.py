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
    sessions: Annotated[int, typer.Option(min=1, help="How many sessions to simulate.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    force: console.ForceFlag = False,
    as_json: console.JsonFlag = False,
    verbose: console.VerboseFlag = False,  # noqa: ARG001 (read by the entry point)
) -> None:
    """Write a simulated search log in the AOL format."""
    from mtn_edge.data.synthetic_log import write_log

    made = write_log(output, sessions, seed, force=force)
    console.emit(
        made,
        as_json=as_json,
        words=f"{output}: {made['rows']:,} rows of {made['queries']:,} queries in {made['sessions']:,} sessions"
        f" of {made['users']:,} users",
    )


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
    for module, package in {"ibis": "ibis-framework", "duckdb": "duckdb", "pyarrow": "pyarrow"}.items():
        if importlib.util.find_spec(module) is None:
            raise missing_extra(package, "train", f"`{purpose}`")
