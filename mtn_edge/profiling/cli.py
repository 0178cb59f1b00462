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
    from mtn_edge.profiling.on_phone import Device
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
    adb: Annotated[
        bool, typer.Option("--adb", help="Measure on the phone that is connected, on each type of core.")
    ] = False,
    serial: Annotated[
        str | None, typer.Option(metavar="S", help="The phone's name in `adb devices`, for --adb.")
    ] = None,
    runner: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What runs there, made by android_demo/tools/build_profiler.sh.",
            show_default="android_demo/build/profiler.jar",
        ),
    ] = None,
    seed: SeedOption = 1,
    as_json: JsonFlag = False,
    force: ForceFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (the entry point reads it)
) -> None:
    """Measure what bundles cost: bytes, loading, memory, encoding a query, suggestions at every key press."""
    if not adb and (serial is not None or runner is not None):
        raise typer.BadParameter(f"--{'serial' if serial is not None else 'runner'} goes with --adb")
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
    cases = {
        name: (bundle, held_out if held_out is not None else golden_sessions(bundle))
        for name, bundle in zip(distinct_names(bundles), bundles, strict=True)
    }
    how = ""
    if adb:
        profiles, how = _on_phone(cases, threads, serial, runner)
    else:
        profiles = {name: _profile(name, *case, threads) for name, case in cases.items()}
    source = f"the test split of {data.resolve().name}" if data is not None else "each bundle's golden vectors"
    sentences = f"{about(profiles, source)} {how}".strip()
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


def _on_phone(
    cases: dict[str, tuple[Path, list[list[str]]]], threads: int, serial: str | None, runner: Path | None
) -> tuple[dict[str, Profile], str]:
    """What was measured on the phone, and how, in sentences."""
    from mtn_edge.profiling.adb import connect
    from mtn_edge.profiling.on_phone import about_device, prepared
    from mtn_edge.profiling.runner import DEFAULT

    profiles: dict[str, Profile] = {}
    with prepared(connect(serial), runner or DEFAULT) as device:
        for name, (bundle, sessions) in cases.items():
            for kind, profile in _profile_there(device, name, bundle, sessions, threads).items():
                profiles[f"{name}, {kind}" if kind else name] = profile
    return profiles, about_device(device, profiles)


def _profile_there(
    device: Device, name: str, bundle: Path, sessions: list[list[str]], threads: int
) -> dict[str, Profile]:
    from mtn_edge.profiling.cases import presses
    from mtn_edge.profiling.on_phone import profile_on_phone

    total = sum(1 for _ in presses(sessions)) * max(len(device.core_types), 1)
    with console.progress(f"profile, {name}", total, "requests") as update:
        return profile_on_phone(device, bundle, sessions, threads=threads, progress=lambda done: update(done, ""))
