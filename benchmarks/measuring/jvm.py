"""The phone's runner on a JVM: compiled from its sources, with the jars that Maven keeps on this machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from measuring.inputs import ROOT
from mtn_edge.profiling.protocol import read_result
from mtn_edge.profiling.runner import MAIN
from mtn_edge.profiling.worker import SUGGESTIONS, WARM_UP

DEMO = ROOT / "android_demo"
JARS = (
    "com/microsoft/onnxruntime/onnxruntime/1.26.0/onnxruntime-1.26.0.jar",
    "com/eclipsesource/minimal-json/minimal-json/0.9.5/minimal-json-0.9.5.jar",
    "net/i2p/crypto/eddsa/0.3.0/eddsa-0.3.0.jar",
)

LIKE_A_PHONE = ("-Xms16m", "-Xmx64m", "-XX:TieredStopAtLevel=1")
"""By itself a JVM lets garbage pile up to a share of the machine's memory, and its second compiler, which no phone has,
takes tens of megabytes; without it code is slower, not faster."""


def compile_runner(folder: Path) -> str:
    """The class path of the runner, whose classes go into `folder`.

    Raises:
        SystemExit: a JDK or a jar is missing.
    """
    jars = [Path.home() / ".m2" / "repository" / jar for jar in JARS]
    if shutil.which("javac") is None or not all(jar.is_file() for jar in jars):
        raise SystemExit("this needs a JDK, and the jars that `mvn -f android_demo/suggester test` fetches")
    path = ":".join(map(str, jars))
    sources = [str(file) for part in ("suggester", "profiler") for file in (DEMO / part / "src/main").rglob("*.java")]
    javac = ["javac", "--release", "8", "-Xlint:-options", "-d", str(folder), "-cp", path, *sources]
    subprocess.run(javac, check=True)
    return f"{folder}:{path}"


def run(class_path: str, folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The result of a job in a process of its own (the job of `profiling.on_phone`).

    Args:
        class_path: what `compile_runner` gave.
        folder: for the job's file.
        job: what differs from a job that only opens.
    """
    usual = {"threads": 1, "suggestions": SUGGESTIONS, "warm_up": WARM_UP, "sessions": [], "golden": []}
    file = folder / "job.json"
    file.write_text(json.dumps(usual | job), encoding="utf-8")
    command = ["java", *LIKE_A_PHONE, "-cp", class_path, MAIN, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        result = read_result(process.stdout, lambda _: None)
        process.communicate()
    if result is None:
        raise SystemExit(f"the runner ended with status {process.returncode}; its own words stand above")
    return result


def lines_of_code(folder: Path) -> int:
    """Lines of Java without blank ones, comments and imports."""
    count = 0
    for file in sorted(folder.rglob("*.java")):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        lines = [line.strip() for line in text.split("\n")]
        count += sum(not re.match(r"$|//|import |package ", line) for line in lines)
    return count
