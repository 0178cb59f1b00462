"""What does the Android library cost on a JVM, and is it as fast as Python on the same bundle?

    python benchmarks/android_jvm.py [--bundle BUNDLE] [--quick] [-o FILE.json]

The runner of `mtn-edge profile --adb` on this machine's JVM against the same protocol in Python, in turns: fresh
processes that open the bundle (on the JVM cold: with ONNX Runtime's library, which is unpacked from its jar here and
lies ready on a phone), and processes that type the bundle's golden queries after 50 requests that do not count. One
thread; a heap of 64 MB and the JVM's first compiler alone, since that is nearer to a phone. Medians over the rounds,
with the least and the most. Needs a JDK and the jars of `mvn -f android_demo/suggester test`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring.goals import goal
from measuring.inputs import ROOT, find_inputs
from measuring.jvm import DEMO, compile_runner, lines_of_code, run
from measuring.results import write

from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.cases import golden_sessions
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.profiling.protocol import LOADS, Profile, profile_bundle, summarize

ROUNDS = 5
OPEN_MS = 300.0
AGAINST_PYTHON = 1.2
GROWTH_MB = 40.0
LINES = 2000


def main() -> None:
    """Measures, writes the JSON document, prints times and goals."""
    options = parse_arguments()
    bundle = options.bundle or find_inputs("tiny", data=None, checkpoint=None, bundle=None).bundle
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(bundle, Path(folder), 1 if options.quick else ROUNDS)
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions() | {"java": java_version(), "onnxruntime (JVM)": rows[0]["jvm_onnxruntime"]},
        "protocol": {"rounds": len(rows), "loads": LOADS, "key_presses": rows[0]["key_presses"], "threads": 1},
        "goals": goals(rows, lines_of_code(DEMO / "suggester" / "src" / "main")),
        "rows": rows,
    }
    write(options.output, document)
    table = [["median of the rounds", "JVM", "Python"]]
    table += [
        [name, *(f"{middle(rows, f'{who}_{name}'):.2f}" for who in ("jvm", "python"))]
        for name in ("open_ms", "encode_ms", "suggest_ms", "keystroke_ms", "rss_mb")
    ]
    print(f"\n{aligned(table)}\n")
    for each in document["goals"]:
        print(f"{each['name']}: {each['value']:.2f}, bound {each['bound']}, {'yes' if each['ok'] else 'NO'}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="what is opened and typed (that of the key-press benchmark)")
    parser.add_argument("--quick", action="store_true", help="one round instead of 5")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "android_jvm.json")
    return parser.parse_args()


def measure(bundle: Path, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """A row for each round; both sides take turns, so that the machine's moods hit both alike."""
    class_path = compile_runner(folder)
    sessions = golden_sessions(bundle)
    bundle = bundle.resolve()
    rows = []
    for number in range(rounds):
        cold = [run(class_path, folder, {"bundle": str(bundle), "cold": True})["load_ms"] for _ in range(LOADS)]
        loads = [run(class_path, folder, {"bundle": str(bundle)}) for _ in range(LOADS)]
        typed = run(class_path, folder, {"bundle": str(bundle), "sessions": sessions})
        jvm = summarize(bundle, loads, typed, {})
        python = profile_bundle(bundle, sessions, threads=1, progress=lambda _: None)
        rows.append(
            {
                "jvm_open_ms": statistics.median(cold),
                "jvm_open_ms_all": cold,
                "jvm_library_ms": jvm.figures["import_ms"],
                "jvm_load_ms": jvm.figures["load_ms"],
                "python_open_ms": python.figures["load_ms"],
                **row("jvm", jvm),
                **row("python", python),
                "key_presses": jvm.figures["keystroke_ms"]["count"],
                "jvm_onnxruntime": typed["onnxruntime"],
            }
        )
        print(f"round {number + 1} of {rounds}", flush=True)
    return rows


def row(who: str, profile: Profile) -> dict[str, float]:
    """One side of a round."""
    times = {f"{who}_{name}": profile.figures[name]["p50"] for name in ("encode_ms", "suggest_ms", "keystroke_ms")}
    tail = {f"{who}_keystroke_p99_ms": profile.figures["keystroke_ms"]["p99"]}
    return times | tail | {f"{who}_{name}": profile.figures[name] for name in ("open_rss_mb", "rss_mb")}


def goals(rows: Sequence[dict[str, Any]], lines: int) -> list[dict[str, Any]]:
    """What the library promises."""
    cold = [value for each in rows for value in each["jvm_open_ms_all"]]
    ratios = [each["jvm_keystroke_ms"] / each["python_keystroke_ms"] for each in rows]
    growth = [each["jvm_rss_mb"] for each in rows]
    found = [
        goal(name, statistics.median(values), bound, [min(values), max(values)])
        for name, values, bound in (
            ("cold open with ONNX Runtime's library, ms", cold, OPEN_MS),
            ("key press p50, JVM over Python", ratios, AGAINST_PYTHON),
            ("growth of memory by opening and typing, MB", growth, GROWTH_MB),
        )
    ]
    return [*found, goal("lines of code of the library", lines, LINES)]


def middle(rows: Sequence[dict[str, Any]], name: str) -> float:
    """The median of a column."""
    return statistics.median(each[name] for each in rows)


def java_version() -> str:
    """What `java` says it is."""
    command = ["java", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.split("\n")[0]


if __name__ == "__main__":
    main()
