"""How long is a key press? The bundle's latency over every key press of held-out queries, against the limit.

    python benchmarks/keystroke.py [BUNDLE] [--data DATASET] [--quick] [-o FILE.json]

Without BUNDLE: the demo's (`demo/bundle`, which `mtn-edge demo` makes when it is missing), on its own test split. One
thread, 8 suggestions. Each run is a fresh process; the figure is the median of the runs' p50 and its spread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from mtn_edge.profiling.cases import draw_sessions, golden_sessions
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.profiling.protocol import profile_bundle

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "demo"
LIMIT_MS = 5.0
"""Key press p50 on one thread."""


def main() -> None:
    """Measures, writes the JSON document, prints the goals."""
    options = parse_arguments()
    bundle, sessions = find_inputs(options)
    rows = measure("mtn-edge", bundle, sessions, runs=2 if options.quick else 5)
    goals = [goal("key press p50, ms, one thread", [row["keystroke_ms"]["p50"] for row in rows], LIMIT_MS)]
    document = {
        "machine": describe_machine(),
        "versions": describe_versions(),
        "goals": goals,
        "bundle": bundle.name,
        "sessions": len(sessions),
        "rows": rows,
    }
    write(options.output, document)
    print_goals(goals)
    print(f"written: {options.output}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="?", help="folder of a bundle (default: the demo's)")
    parser.add_argument("--data", type=Path, help="type the test split of this dataset (default: golden vectors)")
    parser.add_argument("--quick", action="store_true", help="2 runs of 500 key presses instead of 5 of 2,000")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "keystroke.json")
    return parser.parse_args()


def find_inputs(options: argparse.Namespace) -> tuple[Path, list[list[str]]]:
    """The bundle, and the sessions whose queries are typed."""
    bundle, data = options.bundle, options.data
    if bundle is None:
        bundle, data = DEMO / "bundle", data or DEMO / "dataset"
        if not bundle.exists():
            subprocess.run([sys.executable, "-m", "mtn_edge", "demo", "-o", str(DEMO)], check=True)
    if data is None:
        return bundle, golden_sessions(bundle)
    from mtn_edge.data.dataset import Dataset

    held_out = Dataset.open(data).sessions("test")
    return bundle, draw_sessions(held_out, seed=1, key_presses=500 if options.quick else 2000)


def measure(system: str, bundle: Path, sessions: list[list[str]], *, runs: int) -> list[dict[str, Any]]:
    """One row a run: milliseconds of a key press, of suggestions before the first key, and of appending a query."""
    rows = []
    for run in range(runs):
        figures = profile_bundle(bundle, sessions, threads=1, progress=lambda _: None).figures
        times = {key: figures[key] for key in ("keystroke_ms", "suggest_ms", "encode_ms", "load_ms", "rss_mb", "bytes")}
        rows.append({"system": system, "run": run, **times})
        print(f"{system}, run {run + 1} of {runs}: key press p50 {figures['keystroke_ms']['p50']:.2f} ms")
    return rows


def goal(name: str, values: list[float], bound: float) -> dict[str, Any]:
    """The median of `values` against an upper bound, with their spread."""
    value = statistics.median(values)
    return {"name": name, "value": value, "spread": [min(values), max(values)], "bound": bound, "ok": value <= bound}


def write(path: Path, document: dict[str, Any]) -> None:
    """Puts the document in place whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def print_goals(goals: list[dict[str, Any]]) -> None:
    """The goals as a table."""
    print(f"{'goal':<40}{'value':>10}{'spread':>18}{'bound':>10}  ok")
    for each in goals:
        spread = f"{each['spread'][0]:.2f} to {each['spread'][1]:.2f}"
        verdict = "yes" if each["ok"] else "NO"
        print(f"{each['name']:<40}{each['value']:>10.2f}{spread:>18}{each['bound']:>10.2f}  {verdict}")


if __name__ == "__main__":
    main()
