"""The command `demo`: the whole line on a simulated log, by the same commands that a user types."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from mtn_edge import console
from mtn_edge.console import ForceFlag, JsonFlag, SeedOption, VerboseFlag
from mtn_edge.errors import UserError

SESSIONS = 25_000
"""Simulated sessions, so that all steps together take less than five minutes on two cores."""
TRAINING = ("train.epochs=3", "train.label_smoothing=0", "model.dropout=0", "train.time_budget=160")
"""Settings of the training: few passes and a limit, which only slow machines meet, for the same reason; and nothing
against learning by heart, which so few passes over so regular a log cannot do. Those of the command line win."""
PROBES = 400
"""Held-out queries among which sessions to show are looked for."""
EARLIER = (2, 4)
"""Earlier queries of a session that is shown, fewest and most."""
LETTERS = 2
"""Characters typed in what is shown."""
SHOWN = 5
"""Suggestions in what is shown."""


@dataclass(frozen=True)
class Step:
    """One command and why it is run."""

    title: str
    arguments: list[str]

    @property
    def name(self) -> str:
        """The command without its arguments."""
        return " ".join(self.arguments[: 2 if self.arguments[0] == "data" else 1])


@dataclass
class Runner:
    """Runs commands one after the other and remembers what they took."""

    as_json: bool
    steps: list[dict[str, Any]] = field(default_factory=list)

    def run(self, step: Step) -> None:
        """Shows the command line and runs it.

        Raises:
            typer.Exit: it failed; with its status.
        """
        arguments = [*step.arguments, "--json"] if self.as_json else step.arguments
        line = shlex.join(["mtn-edge", *arguments])
        console.say(f"\n{step.title}\n$ {line}")
        began = time.monotonic()
        done = subprocess.run(  # noqa: S603 (our own command line)
            [sys.executable, "-m", "mtn_edge", *arguments],
            stdout=subprocess.PIPE if self.as_json else None,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if done.returncode:
            if self.as_json:
                print(done.stdout, end="", flush=True)  # noqa: T201 (the step's own error document)
            console.say(f"demo: this step ended with status {done.returncode}, so the demo ends here.")
            raise typer.Exit(done.returncode)
        result = json.loads(done.stdout) if self.as_json else None
        self.steps.append({"name": step.name, "command": line, "seconds": round(seconds, 1), "result": result})


@dataclass(frozen=True)
class Probe:
    """A held-out query with the session before it, and what the bundle suggests after its first letters."""

    session: list[str]
    query: str
    suggestions: list[str]

    @property
    def typed(self) -> str:
        """The letters typed."""
        return self.query[:LETTERS]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for everything.")] = Path(
        "demo"
    ),
    sessions: Annotated[int, typer.Option(min=100, help="Sessions to simulate.")] = SESSIONS,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting for `train`, section.key=value; may be repeated. Training ends after 160 seconds; "
            "train.time_budget=0 lets it go on.",
        ),
    ] = None,
    seed: SeedOption = 1,
    as_json: JsonFlag = False,
    force: ForceFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (the entry point reads it)
) -> None:
    """Run everything once: simulated log, dataset, model, bundle, quality, cost, suggestions."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())) and not force:
        raise UserError(
            f"`{output}` exists already and nothing is overwritten",
            code="exists",
            hint="choose another folder with -o, or replace what an earlier demo wrote with --force",
        )
    output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    runner = Runner(as_json)
    for step in main_steps(output, sessions=sessions, settings=settings or [], seed=seed, force=force):
        runner.run(step)
    for step in suggestion_steps(output):
        runner.run(step)
    seconds = time.monotonic() - began
    _finish(runner, output, seconds)


def main_steps(output: Path, *, sessions: int, settings: Sequence[str], seed: int, force: bool) -> list[Step]:
    """From nothing to a measured bundle, all in the folder `output`."""
    log, dataset, checkpoint, bundle = (str(output / name) for name in ("log.tsv", "dataset", "checkpoint", "bundle"))
    chosen = [part for setting in (*TRAINING, *settings) for part in ("--set", setting)]
    drawn = ["--seed", str(seed)]
    again = ["--force"] if force else []
    return [
        Step(
            "A search log from a simulator.", ["data", "synth", "-o", log, "--sessions", str(sessions), *drawn, *again]
        ),
        Step(
            "Cleaned, cut into sessions, split by time, counted.",
            ["data", "prepare", log, "-o", dataset, *drawn, *again],
        ),
        Step(
            "A network is trained.", ["train", dataset, "-o", checkpoint, "--preset", "tiny", *chosen, *drawn, *again]
        ),
        Step(
            "It becomes a bundle of 8-bit graphs.",
            ["quantize", checkpoint, "-o", bundle, "--int8", "--data", dataset, *drawn, *again],
        ),
        Step("The bundle proves itself.", ["verify", bundle]),
        Step(
            "Its quality on held-out sessions, beside the most popular completions.",
            [
                *("evaluate", dataset, bundle, "--task", "both", "--baselines", "mpc"),
                *("--report", str(output / "evaluation.html"), *drawn, *again),
            ],
        ),
        Step(
            "Its cost at every key press.",
            ["profile", bundle, "--data", dataset, "--report", str(output / "profile.html"), *drawn, *again],
        ),
    ]


def suggestion_steps(output: Path) -> list[Step]:
    """Suggestions where the session matters: two held-out sessions, the same letters typed, then nothing typed."""
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.runtime.suggester import Suggester

    bundle = output / "bundle"
    probes = probe(Suggester.open(bundle), Dataset.open(output / "dataset").sessions("test"))
    pair = telling_pair(probes)
    if pair is None:
        return [Step("What it suggests first.", ["suggest", str(bundle), "-k", str(SHOWN)])]
    typed = pair[0].typed
    asked: list[tuple[str, list[str], list[str]]] = [(f'"{typed}" typed, no session before it.', [], ["-p", typed])]
    for each, name in zip(pair, ("one session", "another session"), strict=True):
        asked.append((f'"{typed}" typed in {name} ("{each.query}" was searched).', each.session, ["-p", typed]))
    for each, name in zip(pair, ("the first of them", "the second"), strict=True):
        asked.append((f"Nothing typed yet in {name}.", each.session, []))
    return [
        Step(title, ["suggest", str(bundle), *_earlier(session), *prefix, "-k", str(SHOWN)])
        for title, session, prefix in asked
    ]


def probe(suggester: Any, sessions: Sequence[Sequence[str]]) -> list[Probe]:
    """What is suggested for the first held-out queries that have a few queries before them."""
    probes: list[Probe] = []
    for queries in sessions:
        for place in range(EARLIER[0], min(len(queries), EARLIER[1] + 1)):
            if len(probes) == PROBES:
                return probes
            earlier, query = list(queries[:place]), queries[place]
            if len(query) > LETTERS and query not in earlier:
                found = suggester.session(earlier).suggest(query[:LETTERS], SHOWN).suggestions
                probes.append(Probe(earlier, query, [suggestion.text for suggestion in found]))
    return probes


def telling_pair(probes: Sequence[Probe]) -> tuple[Probe, Probe] | None:
    """Two sessions with the same letters typed whose lists differ most and begin with what was searched.

    Chosen to show what a session does; how often it helps is the evaluation's question. The first of equals is taken;
    None when no two queries begin with the same letters.
    """
    best: tuple[float, Probe, Probe] | None = None
    for number, first in enumerate(probes):
        for second in probes[:number]:
            if first.typed != second.typed or first.query == second.query:
                continue
            hits = sum(each.query == each.suggestions[0] for each in (first, second) if each.suggestions)
            worth = hits - len({*first.suggestions} & {*second.suggestions}) / SHOWN
            if best is None or worth > best[0]:
                best = (worth, second, first)
    return best and best[1:]


def _earlier(session: Sequence[str]) -> list[str]:
    return [part for query in session for part in ("-s", query)]


def _finish(runner: Runner, output: Path, seconds: float) -> None:
    places = {
        "bundle": str(output / "bundle"),
        "quality": str(output / "evaluation.html"),
        "cost": str(output / "profile.html"),
    }
    words = "\n".join(
        [
            "",
            f"Done in {seconds:.0f} s.",
            *(f"  {step['seconds']:6.1f} s  {step['name']}" for step in runner.steps),
            f"The bundle: {places['bundle']}",
            f"Its quality, a page with plots: {places['quality']}",
            f"Its cost, a page with plots: {places['cost']}",
            f"Try it: mtn-edge suggest {shlex.quote(places['bundle'])}",
        ]
    )
    document = {"seconds": round(seconds, 1), "cores": os.cpu_count(), "steps": runner.steps, **places}
    console.emit(document, as_json=runner.as_json, words=words)
