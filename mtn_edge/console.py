"""What every command shares: its common options, one JSON document or words, progress with rate and time left."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from mtn_edge.errors import UserError

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Replace an output that mtn-edge wrote earlier.")]
VerboseFlag = Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks and details.")]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Seed of everything random.", show_default=True, min=0, max=2**32 - 1)
]


def say(text: str) -> None:
    """Words for people: on standard error, so that standard output stays clean for results."""
    print(text, file=sys.stderr, flush=True)


def emit(document: dict[str, Any], *, as_json: bool, words: str) -> None:
    """The result of a command on standard output: `document` as JSON, or `words`."""
    print(json.dumps(document, ensure_ascii=False, allow_nan=False) if as_json else words, flush=True)


def duration(name: str, text: str) -> float:
    """Seconds of a duration as people write it: `90`, `90s`, `1.5m`, `2h`.

    Raises:
        UserError: it is none; `name` says where it was given.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise UserError(
            f"`{name} {text}` is no time", code="bad-setting", hint="write seconds, or minutes as 10m, hours as 2h"
        )
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


@contextmanager
def progress(label: str, total: int | None, unit: str, *, start: int = 0) -> Iterator[Callable[[int, str], None]]:
    """A progress bar on a terminal, a plain line every ten seconds elsewhere; both with rate and time left.

    Args:
        label: what is going on.
        total: how many units there are; None when nobody knows.
        unit: what is counted, plural.
        start: units done before (a resumed run), which do not count in the rate.

    Yields:
        A function to call with how many units are done in all, and a short note (may be empty).
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/" + (f"{total:,}" if total is not None else "?") + f" {unit}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        began = time.monotonic()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total, completed=start, note="", rate="")

            def update_bar(done: int, note: str = "") -> None:
                rate = (done - start) / max(time.monotonic() - began, 1e-9)
                bar.update(task, completed=done, note=note, rate=f"{rate:,.0f} {unit}/s")

            yield update_bar
        return

    began = shown = time.monotonic()
    last = start

    def line(done: int, note: str) -> None:
        rate = (done - start) / max(time.monotonic() - began, 1e-9)
        left = f", {(total - done) / rate:,.0f} s left" if total is not None and rate > 0 else ""
        of = f" of {total:,}" if total is not None else ""
        say(f"{label}: {done:,}{of} {unit}, {rate:,.0f} {unit}/s{left}{', ' + note if note else ''}")

    def update_line(done: int, note: str = "") -> None:
        nonlocal shown, last
        last = done
        if time.monotonic() - shown >= 10:
            shown = time.monotonic()
            line(done, note)

    yield update_line
    if last > start:
        line(last, "")
