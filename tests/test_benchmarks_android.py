"""The benchmark of the Android library on a JVM: it runs, and its goals are counted honestly."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the benchmarks need the extra [train]")

ROOT = Path(__file__).parents[1]
RUNTIME = Path.home() / ".m2/repository/com/microsoft/onnxruntime/onnxruntime/1.26.0/onnxruntime-1.26.0.jar"


@pytest.fixture(autouse=True)
def _modules_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_lines_of_code_by_hand(tmp_path: Path) -> None:
    from measuring.jvm import lines_of_code

    text = "package a;\n\nimport b;\n\n/** What\n * it is. */\nfinal class A {\n    // why\n    int b;  // c\n}\n"
    (tmp_path / "A.java").write_text(text, encoding="utf-8")
    assert lines_of_code(tmp_path) == 3


def test_goals_by_hand() -> None:
    from android_jvm import goals

    row = {"jvm_open_ms_all": [200.0, 400.0, 290.0], "jvm_keystroke_ms": 2.5, "python_keystroke_ms": 2.0}
    other = {"jvm_open_ms_all": [280.0, 270.0], "jvm_keystroke_ms": 2.2, "python_keystroke_ms": 2.0}
    found = goals([row | {"jvm_rss_mb": 30.0}, other | {"jvm_rss_mb": 60.0}], 2001)
    assert [(each["value"], each["ok"]) for each in found] == [
        (280.0, True),
        (pytest.approx(1.175), True),
        (45.0, False),
        (2001, False),
    ]
    assert found[0]["spread"] == [200.0, 400.0]


def test_a_quick_run(tiny_bundle: Path, tmp_path: Path) -> None:
    if shutil.which("javac") is None or not RUNTIME.is_file():
        pytest.skip("NOT TESTED: the benchmark on a JVM, since there is no JDK, or no jars: `mvn -f suggester test`")
    command = [sys.executable, ROOT / "benchmarks" / "android_jvm.py", "--quick", "--bundle", tiny_bundle]
    done = subprocess.run([*command, "-o", tmp_path / "x.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert [each["bound"] for each in document["goals"]] == [300.0, 1.2, 40.0, 2000]
    assert all(each["value"] > 0 for each in document["goals"])
    assert document["rows"][0]["key_presses"] > 100
    assert document["versions"]["onnxruntime (JVM)"] == "1.26.0"
