"""The command line as a whole: light to start, honest exit statuses, one sentence or one JSON document."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "lightning", "onnx", "onnxruntime", "ibis", "duckdb", "pandas", "pyarrow", "matplotlib", "sacrebleu")


def mtn_edge(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtn_edge", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_help_is_light() -> None:
    program = (
        "import sys, time; sys.argv = ['mtn-edge', '--help']\n"
        "from mtn_edge.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        f"print([x for x in {HEAVY} if x in sys.modules], time.process_time())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    imported, seconds = result.stdout.splitlines()[-1].split("]")
    assert imported == "["
    assert float(seconds) < 1  # of processor time, so that a busy machine does not fail it


@pytest.mark.parametrize(
    "command",
    [
        "data",
        "train",
        "distill",
        "prune",
        "quantize",
        "suggest",
        "evaluate",
        "profile",
        "verify",
        "inspect",
        "doctor",
        "demo",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    result = mtn_edge(command, "--help")
    assert result.returncode == 0
    assert "Usage:" in result.stdout
    assert len(result.stdout.splitlines()) > 5


def test_usage_faults_exit_2_and_name_the_option() -> None:
    result = mtn_edge("suggest", "nowhere", "--nonsense")
    assert result.returncode == 2
    assert result.stderr.startswith("error: No such option: --nonsense")
    assert len(result.stderr.splitlines()) == 1


def test_mendable_faults_exit_1_in_words_and_in_json(tmp_path: Path) -> None:
    words = mtn_edge("verify", tmp_path / "none")
    assert words.returncode == 1
    assert words.stderr == f"error: `{tmp_path / 'none'}` does not exist; name the folder of a bundle.\n"
    assert words.stdout == ""
    document = mtn_edge("verify", tmp_path / "none", "--json")
    assert document.returncode == 1
    assert json.loads(document.stdout)["error"]["code"] == "missing"
    assert "Traceback" in mtn_edge("verify", tmp_path / "none", "-v").stderr
