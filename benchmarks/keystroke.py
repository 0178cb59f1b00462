"""How long is a key press? Ours against CTranslate2, the usual way, a browser's way, and the limits of the machine.

    python benchmarks/keystroke.py [--preset tiny|small|both] [--quick] [-o FILE.json]
    python benchmarks/keystroke.py --preset tiny --data DATASET --checkpoint CHECKPOINT --bundle BUNDLE

One run, one thread, 8 suggestions, beam 8, at most 8 new tokens for the peers. Every key press of the last query of
held-out sessions is typed on all systems in turn (`peers/` says what each is, `measuring/race.py` how), with the
session's earlier queries repeated until there are 1, 5, 20 and 50. What is missing (dataset, checkpoints, bundles, the
trained tail model) is made once in `benchmarks/work/`, which takes about ten minutes. Beside FILE.json stands FILE.html
with plots. CTranslate2 comes with the dependency group `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

# One thread everywhere; the libraries read it when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring.capacity import loading, throughput
from measuring.goals import capacity_goals, mixing_goals, race_goals, summarize
from measuring.inputs import ROOT, TRAINING, Inputs, find_inputs
from measuring.limits import measure_limits
from measuring.page import write_report
from measuring.race import draw_sessions, race
from peers import BEAM, NEW_TOKENS, SUGGESTIONS, System
from peers.ours import FUSED, VARIANTS, WITHOUT_LISTS, Ours
from peers.python_beam import PythonBeam
from peers.tail import TailModel
from peers.translator import Translator

from export.graphs import build_graphs
from mtn_edge.data.dataset import Dataset
from mtn_edge.folders import read_manifest
from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.runtime.engine import OnnxEngine
from mtn_edge.training.checkpoint import Checkpoint, load_checkpoint
from mtn_edge.training.gate import learn_sources
from quantize.plan import uniform_plan

LENGTHS = (1, 5, 20, 50)
"""Earlier queries."""


def main() -> None:
    """Measures, writes the JSON document and the page, prints times and goals."""
    options = parse_arguments()
    torch.set_num_threads(1)
    presets = list(TRAINING) if options.preset == "both" else [options.preset]
    sessions = 8 if options.quick else 60
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions("ctranslate2", "torch"),
        "protocol": {
            "threads": 1,
            "suggestions": SUGGESTIONS,
            "beam": BEAM,
            "new_tokens_of_peers": NEW_TOKENS,
            "sessions": sessions,
            "earlier_queries": "the held-out session's own, repeated to reach the length",
            "training": "as given" if options.checkpoint else TRAINING,
        },
        "goals": [],
        "presets": {},
        "rows": [],
    }
    for name in presets:
        inputs = find_inputs(name, data=options.data, checkpoint=options.checkpoint, bundle=options.bundle)
        measure(inputs, sessions, document, quick=options.quick)
    write(options.output, document)
    write_report(options.output.with_suffix(".html"), document)
    print_times(document["rows"])
    print_goals(document["goals"])
    print(f"written: {options.output} and {options.output.with_suffix('.html').name}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=[*TRAINING, "both"], default="both", help="size of the model (both)")
    parser.add_argument("--data", type=Path, help="dataset whose test split is typed")
    parser.add_argument("--checkpoint", type=Path, help="a trained model of the one preset that is named")
    parser.add_argument("--bundle", type=Path, help="the int8 bundle of that checkpoint")
    parser.add_argument("--quick", action="store_true", help="8 sessions instead of 60, short rounds of threads")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "keystroke.json")
    options = parser.parse_args()
    if options.preset == "both" and (options.checkpoint or options.bundle):
        parser.error("--checkpoint and --bundle are of one size: name it with --preset")
    if options.bundle and not options.checkpoint:
        parser.error("--bundle goes with the --checkpoint it was made from")
    return options


def measure(inputs: Inputs, count: int, document: dict[str, Any], *, quick: bool) -> None:
    """Adds one preset's rows, goals and figures to the document."""
    sessions = draw_sessions(Dataset.open(inputs.data).sessions("test"), count)
    with tempfile.TemporaryDirectory() as folder:
        systems = open_systems(inputs, Path(folder))
        (python_beam,) = (system for system in systems if isinstance(system, PythonBeam))
        limits = measure_limits(python_beam.weights)
        presses = race(
            systems, sessions, LENGTHS, lambda done: print(f"{inputs.name}: session {done} of {count}", flush=True)
        )
    rows = summarize(inputs.name, presses, limits)
    loads = loading(inputs.bundle, sessions[:8])
    threads = throughput(inputs.bundle, sessions, seconds=0.5 if quick else 2.0, rounds=2 if quick else 5)
    document["rows"] += rows
    for ours in VARIANTS:
        document["goals"] += race_goals(inputs.name, ours, Translator.name, presses, rows)
    document["goals"] += mixing_goals(inputs.name, presses)
    document["goals"] += capacity_goals(inputs.name, loads, threads, document["machine"]["cores"])
    checkpoint = read_manifest(inputs.checkpoint, "checkpoint")
    document["presets"][inputs.name] = {
        "model": checkpoint["model"],
        "training": checkpoint["training"],
        "decoding": read_manifest(inputs.bundle, "bundle")["decoding"],
        "limits": limits.to_json(),
        "loading": loads,
        "threads": {str(number): rates for number, rates in threads.items()},
    }


def open_systems(inputs: Inputs, folder: Path) -> list[System]:
    """Everything that is raced, ours first; `folder` is for what has to be converted."""
    checkpoint = load_checkpoint(inputs.checkpoint)
    ours = [Ours(name, inputs.bundle, **arguments) for name, arguments in VARIANTS.items()]
    ours.append(Ours(WITHOUT_LISTS, inputs.bundle, lists=False, min_probability=0.0))
    engine = fused_engine(checkpoint, Dataset.open(inputs.data), folder)
    ours.append(Ours(FUSED, inputs.bundle, lists=False, engine=engine, min_probability=0.0))
    return [
        *ours,
        Translator(checkpoint, folder),
        PythonBeam(checkpoint, ours[0].suggester),
        TailModel(inputs.tail),
    ]


def fused_engine(checkpoint: Checkpoint, data: Dataset, folder: Path) -> OnnxEngine:
    """The int8 graphs of a network with everything mixed in."""
    config = replace(checkpoint.config, model=replace(checkpoint.config.model, fusion="all"))
    sources, _ = learn_sources(checkpoint.model, data, config)
    state = {name: tensor.numpy() for name, tensor in checkpoint.model.state_dict().items()}
    build_graphs(state, config.model, uniform_plan("int8"), sources).save(folder)
    return OnnxEngine(folder, asdict(config.model), threads=1)


def write(path: Path, document: dict[str, Any]) -> None:
    """Puts the document in place whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def print_times(rows: list[dict[str, Any]]) -> None:
    """Milliseconds of a key press."""
    table = [["key press, ms", "earlier", "p50", "p95", "p99", "cpu p50", "p99", "limit", "steps", "list", "found"]]
    for row in rows:
        times = row["keystroke_ms"]
        limit = max(row.get("memory_limit_ms", 0), row.get("arithmetic_limit_ms", 0))
        table.append(
            [
                f"{row['preset']}: {row['system']}",
                str(row["earlier_queries"]),
                *(f"{times[share]:.2f}" for share in ("p50", "p95", "p99")),
                *(f"{row['cpu_ms'][share]:.2f}" for share in ("p50", "p99")),
                f"{limit:.2f}" if limit else "-",
                "-" if row["steps"] is None else f"{row['steps']:.1f}",
                f"{row['suggestions']:.1f}",
                f"{row['found']:.2f}",
            ]
        )
    print(f"\n{aligned(table)}\n")


def print_goals(goals: list[dict[str, Any]]) -> None:
    """The goals as a table."""
    table = [["goal", "value", "spread", "bound", "ok"]]
    for each in goals:
        spread = f"{each['spread'][0]:.2f} to {each['spread'][1]:.2f}"
        table.append(
            [each["name"], f"{each['value']:.2f}", spread, f"{each['bound']:.2f}", "yes" if each["ok"] else "NO"]
        )
    print(f"{aligned(table)}\n")


if __name__ == "__main__":
    main()
