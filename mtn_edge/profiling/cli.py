"""The command `profile`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtn_edge import console
from mtn_edge.console import ForceFlag, JsonFlag, SeedOption, VerboseFlag
from mtn_edge.errors import missing_extra

if TYPE_CHECKING:
    from mtn_edge.profiling.protocol import Profile


def profile(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE", help="What `quantize` wrote.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET", help="Type the queries of its test split (without it, the bundle's golden ones)."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of one call.")] = 1,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots.")] = None,
    seed: SeedOption = 1,
    as_json: JsonFlag = False,
    force: ForceFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (the entry point reads it)
) -> None:
    """Measure what bundles cost: bytes, loading, memory, encoding a query, suggestions at every key press."""
    from mtn_edge.names import distinct_names
    from mtn_edge.profiling.cases import draw_sessions, golden_sessions
    from mtn_edge.profiling.report import about, words, write_report
    from mtn_edge.runtime.bundle import Bundle

    if report is not None:
        from mtn_edge.pages.page import prepare_page

        prepare_page(report, force=force)
    for bundle in bundles:
        Bundle.open(bundle)  # before any file of it is read
    held_out = None
    if data is not None:
        if importlib.util.find_spec("pyarrow") is None:
            raise missing_extra("pyarrow", "train", "--data")
        from mtn_edge.data.dataset import Dataset

        held_out = draw_sessions(Dataset.open(data).sessions("test"), seed=seed)
    profiles = {
        name: _profile(name, bundle, held_out if held_out is not None else golden_sessions(bundle), threads)
        for name, bundle in zip(distinct_names(bundles), bundles, strict=True)
    }
    source = f"the test split of {data.resolve().name}" if data is not None else "each bundle's golden vectors"
    sentences = about(profiles, source)
    if report is not None:
        write_report(report, profiles, about=sentences)
        console.say(f"report: {report}")
    figures = {name: each.figures for name, each in profiles.items()}
    console.emit(figures, as_json=as_json, words=f"{words(profiles)}\n\n{sentences}")


def _profile(name: str, bundle: Path, sessions: list[list[str]], threads: int) -> Profile:
    from mtn_edge.profiling.cases import presses
    from mtn_edge.profiling.protocol import profile_bundle

    total = sum(1 for _ in presses(sessions))
    with console.progress(f"profile, {name}", total, "requests") as update:
        return profile_bundle(bundle, sessions, threads=threads, progress=lambda done: update(done, ""))
