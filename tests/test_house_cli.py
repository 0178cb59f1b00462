"""The command line as a whole: light to start, honest exit statuses, one sentence or one JSON document."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = ("torch", "lightning", "onnx", "onnxruntime", "ibis", "duckdb", "pandas", "pyarrow", "matplotlib", "sacrebleu")


def mtn_edge(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtn_edge", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_help_is_light() -> None:
    program = f"import sys; sys.argv = ['mtn-edge', '--help']\nfrom mtn_edge.cli import app\ntry: app()\nexcept SystemExit: pass\nprint([x for x in {HEAVY} if x in sys.modules])"
    began = time.perf_counter()
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    seconds = time.perf_counter() - began
    assert result.stdout.splitlines()[-1] == "[]"
    assert seconds < 3  # under 0.5 s on an idle machine; tests may share theirs


@pytest.mark.parametrize(
    "command",
    ["data", "train", "quantize", "suggest", "evaluate", "profile", "verify", "inspect", "doctor", "demo"],
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
