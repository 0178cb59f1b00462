"""The commands that use what was made: `suggest`, `inspect`, `doctor`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtn_edge.console import JsonFlag, VerboseFlag, emit, say
from mtn_edge.errors import EXIT_FAULT, UserError


def suggest(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE|CHECKPOINT", help="What suggests.", show_default=False)],
    session: Annotated[
        list[str] | None,
        typer.Option("--session", "-s", help="An earlier query; once for each, oldest first.", show_default=False),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", "-p", help="What is typed so far, as it is typed.", show_default=False),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Suggestions wanted.")] = 8,
    deadline_ms: Annotated[
        float | None,
        typer.Option("--deadline-ms", help="Popular completions answer when the model takes longer.", min=0),
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(
            "--min-probability",
            help="Leave out what the model finds less probable (0: nothing; default: the bundle's floor).",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        Literal["generate", "grounded"],
        typer.Option("--mode", help="grounded: nothing but popular queries can come out; the model ranks them."),
    ] = "generate",
    typos: Annotated[
        bool, typer.Option("--typos", help="Fill a short list with popular queries one typo away from the typed text.")
    ] = False,
    threads: Annotated[int, typer.Option("--threads", help="Threads of one search.", min=1)] = 1,
    blocklist: Annotated[
        Path | None,
        typer.Option(
            "--blocklist",
            metavar="FILE",
            help="Words and phrases never to suggest, one a line, besides the bundle's; read again when it changes.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Suggest the next query, or the end of the one being typed: one a line, a tab, and where it comes from.

    Without -p, on a terminal: a list that changes as one types. Elsewhere: suggestions for the next query.
    """
    from mtn_edge.decoding.open import open_suggester

    if k < 0:
        raise UserError(f"`-k` is {k}, and it must be at least 0", code="bad-argument", hint="ask for 1 or more")
    opened = open_suggester(path, threads=threads, blocklist=blocklist).session(session or ())
    ask = partial(opened.suggest, k=k, deadline_ms=deadline_ms, min_probability=min_probability, mode=mode, typos=typos)
    if prefix is None and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        from mtn_edge.runtime.interactive import run

        run(opened, ask)
        return
    result = ask(prefix or "")
    if as_json or result.suggestions:
        lines = "\n".join(f"{suggestion.text}\t{suggestion.source}" for suggestion in result.suggestions)
        emit(result.to_json(), as_json=as_json, words=lines)
    if not as_json:
        say(f"{result.reason + '; ' if result.reason else ''}{result.elapsed_ms:.1f} ms")


def inspect(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A dataset, checkpoint, bundle or model repository.", show_default=False),
    ],
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Say what a dataset, checkpoint, bundle or model repository is: sizes, lineage, precision, vocabulary, files."""
    from mtn_edge.runtime import inspection

    document = inspection.inspect_folder(path)
    emit(document, as_json=as_json, words=inspection.words(document))


def doctor(as_json: JsonFlag = False, verbose: VerboseFlag = False) -> None:  # noqa: ARG001 (read by `main`)
    """Say what is installed here, what each missing part is for, and what the processor can do."""
    from mtn_edge.runtime import doctor as doctor_module

    document = doctor_module.examine()
    emit(document, as_json=as_json, words=doctor_module.words(document))
    if not document["ok"]:
        raise typer.Exit(EXIT_FAULT)
