"""`profile --adb` against a stand-in phone whose runner is the real one, on a JVM with the real ONNX Runtime."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mtn_edge import cli
from mtn_edge.profiling import on_phone
from mtn_edge.profiling.golden import agrees
from mtn_edge.profiling.on_phone import FOLDER
from mtn_edge.profiling.phone import core_types
from mtn_edge.profiling.runner import LIBRARIES

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "android_demo"
SDK = DEMO / "build" / "sdk"
JARS = (
    "com/microsoft/onnxruntime/onnxruntime/1.26.0/onnxruntime-1.26.0.jar",
    "com/eclipsesource/minimal-json/minimal-json/0.9.5/minimal-json-0.9.5.jar",
    "net/i2p/crypto/eddsa/0.3.0/eddsa-0.3.0.jar",
)
PROGRAMS = ("cat", "chmod", "grep", "mkdir", "rm", "sed", "true")
"""What the phone's shell has beside what is made here."""
FACTS = {
    "ro.product.manufacturer": "Acme",
    "ro.product.model": "Phone 7",
    "ro.soc.model": "AC700",
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
    "ro.product.cpu.abi": "arm64-v8a",
}
Phone = Callable[..., Path]
Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="session")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The runner, compiled for a JVM, with what it needs."""
    jars = [Path.home() / ".m2" / "repository" / jar for jar in JARS]
    if shutil.which("javac") is None or not all(jar.is_file() for jar in jars):
        library = DEMO / "suggester"
        pytest.skip(f"NOT TESTED: the runner, since there is no JDK, or its jars are not here: `mvn -f {library} test`")
    classes = tmp_path_factory.mktemp("runner")
    sources = [
        str(file) for part in ("suggester", "profiler") for file in (DEMO / part / "src" / "main").rglob("*.java")
    ]
    path = ":".join(map(str, jars))
    lint = ["--release", "8", "-Xlint:all,-options,-processing", "-Werror"]
    done = subprocess.run(
        ["javac", *lint, "-d", classes, "-cp", path, *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return f"{classes}:{path}"


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phone:
    """Makes the stand-in; returns its folder."""

    def make(
        *,
        class_path: str = "",
        kilohertz: dict[int, int] | None = None,
        facts: dict[str, str] | None = None,
        taskset: bool = True,
        **more: object,
    ) -> Path:
        home = tmp_path / "stand-in"
        binaries, storage = home / "bin", home / "root" / "data" / "local" / "tmp"
        binaries.mkdir(parents=True)
        storage.mkdir(parents=True)
        for number, value in (kilohertz if kilohertz is not None else {0: 1_800_000, 1: 2_800_000}).items():
            core = home / "root" / "sys" / "devices" / "system" / "cpu" / f"cpu{number}" / "cpufreq"
            core.mkdir(parents=True)
            (core / "cpuinfo_max_freq").write_text(f"{value}\n", encoding="utf-8")
        for name in PROGRAMS:
            (binaries / name).symlink_to(str(shutil.which(name)))
        cases = "".join(f"{name}) echo '{value}';;\n" for name, value in (FACTS | (facts or {})).items())
        script(binaries / "getprop", f"case $1 in\n{cases}esac")
        script(binaries / "dumpsys", "echo 'IsStatusOverride: false'; echo 'Thermal Status: 1'")
        if taskset:
            script(binaries / "taskset", 'echo "$1" >> "$STAND_IN/masks"\n[ "$1" != 8 ] || exit 1\nshift\nexec "$@"')
        script(
            binaries / "app_process",
            '[ -f "$CLASSPATH" ] && [ -f "$LD_LIBRARY_PATH/libonnxruntime.so" ] && [ "$1" = / ] || exit 9\n'
            'echo $$ > "$STAND_IN/pid"\n'
            f'sed "s|/data/local/tmp|{storage}|" "$3" > "$3.here"\n'
            f'exec {shutil.which("java")} -cp "{class_path}" "$2" "$3.here"',
        )
        settings = {"devices": [["S1", "device"]], "shell": shutil.which("sh")} | more
        (home / "phone.json").write_text(json.dumps(settings), encoding="utf-8")
        tools = tmp_path / "tools"
        tools.mkdir()
        script(tools / "adb", f'exec {sys.executable} {ROOT / "tests" / "stand_in_adb.py"} "$@"')
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        monkeypatch.setenv("STAND_IN", str(home))
        return home

    return make


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """In the shape of what the build makes."""
    path = tmp_path / "profiler.jar"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("classes.dex", *(f"lib/arm64-v8a/{library}" for library in LIBRARIES)):
            archive.writestr(name, name)
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns its status, its JSON document and its words."""
    monkeypatch.setattr(on_phone, "LOADS", 2)

    def call(*arguments: object) -> tuple[int, Any, str]:
        monkeypatch.setattr(sys, "argv", ["mtn-edge", "profile", *map(str, arguments), "--adb", "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        written = capsys.readouterr()
        return int(str(ended.value.code)), json.loads(written.out), written.err

    return call


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def left_over(home: Path) -> list[Path]:
    return list((home / "root" / "data" / "local" / "tmp").iterdir())


def test_the_report_of_a_phone(
    phone: Phone, runner: Path, run: Run, class_path: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    home = phone(class_path=class_path, kilohertz={0: 1_800_000, 1: 1_800_000, 2: 2_800_000, 3: 2_500_000})
    page = tmp_path / "page.html"
    status, document, words = run(tiny_bundle, "--runner", runner, "--report", page)
    assert status == 0, words
    assert list(document) == ["bundle, big", "bundle, LITTLE"]
    vectors = json.loads((tiny_bundle / "golden.json").read_text(encoding="utf-8"))["vectors"]
    assert f"golden: {len(vectors)} of {len(vectors)}" in words
    for figures in document.values():
        assert figures["golden"] == {"agree": len(vectors), "of": len(vectors)}
        assert figures["keystroke_ms"]["count"] == document["bundle, big"]["keystroke_ms"]["count"] > 100
        assert len(figures["load_ms_all"]) == 2
        assert 0 < figures["open_rss_mb"] < figures["process_mb"]
        for times in ("encode_ms", "suggest_ms", "keystroke_ms"):
            assert 0 < figures[times]["p50"] <= figures[times]["p95"] <= figures[times]["p99"]
        assert figures["machine"]["cpu"] == "Acme Phone 7 (AC700)"
        assert figures["machine"]["cores"] == 4
        assert figures["machine"]["system"] == "Android 14 (API level 34) arm64-v8a"
        assert figures["machine"]["heat"] == {"before": "light", "after": "light"}
        assert figures["versions"]["onnxruntime"] == "1.26.0"
        assert figures["bytes"] == sum(file.stat().st_size for file in tiny_bundle.iterdir())
    assert document["bundle, LITTLE"]["machine"]["core_numbers"] == [0, 1]
    # Each type is asked for; then two openings and one run each are held there, and the golden run nowhere.
    assert (home / "masks").read_text(encoding="utf-8").split() == ["4", "8", "3", *["4"] * 3, *["3"] * 3]
    html = page.read_text(encoding="utf-8")
    assert "Left out, since adb&#39;s shell may not use them: middle cores." in html
    assert "(big: cores 2; LITTLE: cores 0, 1)" in html
    assert "Held back because of heat: light." in html
    assert left_over(home) == []


def test_a_phone_that_does_not_tell_its_cores_apart(
    phone: Phone, runner: Path, run: Run, class_path: str, tiny_bundle: Path
) -> None:
    home = phone(class_path=class_path, taskset=False)
    status, document, words = run(tiny_bundle, "--runner", runner, "--serial", "S1")
    assert status == 0, words
    assert list(document) == ["bundle"]
    assert "core_type" not in document["bundle"]["machine"]
    assert left_over(home) == []


def test_the_runner_asks_what_the_worker_asks(class_path: str, tiny_bundle: Path, tmp_path: Path) -> None:
    from mtn_edge.profiling.worker import Job, measure

    sessions = [["paris 🎉", "東京"], ["ab", "c", "é"]]
    job = {"bundle": str(tiny_bundle), "threads": 1, "suggestions": 8, "warm_up": 3, "sessions": sessions, "golden": []}
    (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
    with subprocess.Popen(
        ["java", "-cp", class_path, "dev.mtnedge.profiler.Main", str(tmp_path / "job.json")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        result = json.loads(process.stdout.read())["result"]
    wanted = measure(Job(bundle=str(tiny_bundle), threads=1, sessions=sessions))
    asked = [result["requests"][at : at + 3] for at in range(0, len(result["requests"]), 4)]
    assert asked == [[*request[:3]] for request in wanted["requests"]]
    assert len(result["encode"]) == len(wanted["encode"]) == 3
    assert set(wanted) - set(result) == set()


@pytest.mark.parametrize(
    ("then", "code", "sentence"),
    [
        ("vanish", "phone-lost", "the phone `S1` was lost while it was in use (not connected any more)"),
        ("die", "phone-failed", "the runner on the phone `S1` ended with status 137 (Killed)"),
    ],
)
def test_a_run_that_ends_in_the_middle(
    phone: Phone, runner: Path, run: Run, class_path: str, tiny_bundle: Path, then: str, code: str, sentence: str
) -> None:
    home = phone(class_path=class_path, taskset=False, then=then)
    status, document, words = run(tiny_bundle, "--runner", runner)
    assert status == 1
    assert document["error"]["code"] == code
    assert document["error"]["message"] == sentence
    if then == "vanish":
        assert f"{FOLDER} stays on the phone until the next run" in words
    else:
        assert left_over(home) == []


def test_a_phone_that_computes_something_else_is_refused(
    phone: Phone, runner: Path, run: Run, class_path: str, tiny_bundle: Path
) -> None:
    home = phone(class_path=class_path, lies=True)
    status, document, words = run(tiny_bundle, "--runner", runner)
    assert status == 3
    assert document["error"]["code"] == "golden-differs"
    assert re.search(r"golden: \d+ of \d+", words)
    assert left_over(home) == []


def test_ctrl_c_removes_what_was_pushed(phone: Phone, runner: Path, class_path: str, tiny_bundle: Path) -> None:
    home = phone(class_path=class_path)
    command = [sys.executable, "-m", "mtn_edge", "profile", str(tiny_bundle), "--adb", "--runner", str(runner)]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs are deaf to it
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, preexec_fn=heard) as process:
        while not (home / "pid").exists() or not (home / "pid").read_text(encoding="utf-8"):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert left_over(home) == []
    runs = Path("/proc") / (home / "pid").read_text(encoding="utf-8").strip()
    while runs.exists() and "zombie" not in (runs / "status").read_text(encoding="utf-8"):
        time.sleep(0.05)  # it ends with its input; nothing else would end it within minutes


@pytest.mark.parametrize(
    ("devices", "more", "code", "sentence"),
    [
        ([], [], "no-phone", "`adb devices` lists none"),
        ([["A", "device"], ["B", "device"]], [], "several-phones", "several phones are connected (A, B)"),
        ([["A", "device"]], ["--serial", "C"], "no-phone", "the phone `C` is not connected"),
        ([["A", "unauthorized"]], [], "phone-not-ready", "the phone `A` does not trust this computer yet"),
        ([["A", "offline"]], [], "phone-not-ready", "the phone `A` is offline"),
        ([["A", "no permissions (udev); see [x]"]], [], "phone-not-ready", "may not be used by this user"),
        ([["A", "recovery"]], ["--serial", "A"], "phone-not-ready", "the phone `A` is in the state `recovery`"),
    ],
)
def test_phones_that_are_not_there_or_not_ready(
    phone: Phone,
    runner: Path,
    run: Run,
    tiny_bundle: Path,
    devices: list[list[str]],
    more: list[str],
    code: str,
    sentence: str,
) -> None:
    phone(devices=devices)
    status, document, _ = run(tiny_bundle, "--runner", runner, *more)
    assert (status, document["error"]["code"]) == (1, code)
    assert sentence in document["error"]["message"]
    assert document["error"]["hint"]


def test_a_computer_without_adb(monkeypatch: pytest.MonkeyPatch, run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, document, _ = run(tiny_bundle)
    assert status == 1
    assert document["error"]["message"] == "--adb needs the program `adb`, which is not on the PATH"


def test_an_adb_that_does_not_work(phone: Phone, run: Run, tiny_bundle: Path) -> None:
    phone(devices_status=1)
    status, document, _ = run(tiny_bundle)
    assert (status, document["error"]["code"]) == (1, "adb-failed")


@pytest.mark.parametrize(
    ("stand_in", "code", "sentence"),
    [
        ({"push_fails": "remote No space left on device"}, "phone-full", "the storage of the phone `S1` is full"),
        ({"push_fails": "Broken pipe"}, "phone-failed", "`adb push` on the phone `S1` ended with status 1"),
        ({"facts": {"ro.build.version.sdk": "23"}}, "phone-too-old", "API level 23), and 24 is the least"),
        ({"facts": {"ro.product.cpu.abi": "x86"}}, "runner-abi", "the phone is of the kind x86, and"),
    ],
)
def test_phones_that_cannot_take_it(
    phone: Phone, runner: Path, run: Run, tiny_bundle: Path, stand_in: dict[str, Any], code: str, sentence: str
) -> None:
    home = phone(**stand_in)
    status, document, _ = run(tiny_bundle, "--runner", runner)
    assert (status, document["error"]["code"]) == (1, code)
    assert sentence in document["error"]["message"]
    assert left_over(home) == []


def test_the_kind_of_phone_that_a_runner_lacks_is_asked_of_its_build(
    phone: Phone, runner: Path, run: Run, tiny_bundle: Path
) -> None:
    phone(facts={"ro.product.cpu.abi": "x86"})
    _, document, _ = run(tiny_bundle, "--runner", runner)
    assert document["error"]["hint"].endswith('build_profiler.sh --abis "arm64-v8a x86"')  # what it holds, and that
    script = Path(__file__).parents[1] / "android_demo" / "tools" / "build_profiler.sh"
    assert "--abis) abis=$2" in script.read_text(encoding="utf-8")


def test_runners_that_are_none(phone: Phone, run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    home = phone()
    status, document, _ = run(tiny_bundle, "--runner", tmp_path / "none.jar")
    assert (status, document["error"]["code"]) == (1, "runner-missing")
    assert "build_profiler.sh" in document["error"]["hint"]
    (tmp_path / "text.jar").write_text("no archive", encoding="utf-8")
    status, document, _ = run(tiny_bundle, "--runner", tmp_path / "text.jar")
    assert (status, document["error"]["code"]) == (1, "runner-bad")
    with zipfile.ZipFile(tmp_path / "empty.jar", "w") as archive:
        archive.writestr("classes.dex", "")
    status, document, _ = run(tiny_bundle, "--runner", tmp_path / "empty.jar")
    assert "is no runner" in document["error"]["message"]
    assert left_over(home) == []


def test_options_of_a_phone_need_one(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "mtn_edge", "profile", str(tiny_bundle), "--serial", "S1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--serial goes with --adb" in done.stderr


def test_types_of_cores_by_hand() -> None:
    found = core_types({0: 1_700_000, 1: 1_700_000, 2: 2_370_000, 3: 2_910_000})
    assert [(each.name, each.cores, each.mask) for each in found] == [
        ("big", (3,), "8"),
        ("middle", (2,), "4"),
        ("LITTLE", (0, 1), "3"),
    ]
    names = [each.name for each in core_types({0: 2_300_000, 5: 2_960_000, 2: 3_150_000, 7: 3_300_000})]
    assert names == ["big", "middle 3.15 GHz", "middle 2.96 GHz", "LITTLE"]
    assert core_types({0: 2_000_000, 1: 2_000_000}) == core_types({}) == ()
    assert core_types({9: 1, 0: 2})[1].mask == "200"


def test_lists_agree_within_the_tolerance() -> None:
    wanted = [("a", -1.0), ("b", -2.0), ("c", -2.05)]
    judged = {"places": 3, "tolerance": 0.1}
    assert agrees(wanted, wanted, **judged)
    assert agrees(wanted, [("a", -1.05), ("c", -2.0), ("b", -2.01)], **judged)  # a near tie may swap
    assert not agrees(wanted, [("a", -1.2), ("b", -2.0), ("c", -2.05)], **judged)
    assert not agrees([("a", -1.0), ("b", -1.15)], [("b", -1.06), ("a", -1.09)], **judged)  # no near tie
    assert agrees(wanted, [("a", -1.0), ("b", -2.0), ("d", -2.04)], **judged)  # the edge of a full list
    assert not agrees(wanted, [("a", -1.0), ("b", -2.0)], **judged)  # there was room for it
    assert not agrees(wanted, [], **judged)


def test_the_runner_uses_nothing_that_android_lacks() -> None:
    pom = DEMO / "profiler" / "pom.xml"
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("NOT TESTED: what the runner uses of Java, since there is no JDK or no Maven")
    command = ["mvn", "--offline", "--batch-mode", "--quiet", f"--file={pom}", "process-classes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "offline" in done.stdout:
        pytest.skip(f"NOT TESTED: what the runner uses of Java: run `mvn -f {pom} process-classes` once")
    assert done.returncode == 0, done.stdout


def test_the_runner_is_built_for_phones(tmp_path: Path) -> None:
    if shutil.which("javac") is None or not (SDK / "complete").is_file():
        pytest.skip(f"NOT TESTED: the runner's build, since there is no JDK or no {SDK}: run tools/fetch_sdk.sh")
    out = tmp_path / "profiler.jar"
    command = [DEMO / "tools" / "build_profiler.sh", out, "--abis", "arm64-v8a"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == ["classes.dex", *(f"lib/arm64-v8a/{library}" for library in LIBRARIES)]
        dex = archive.read("classes.dex")
        assert dex.startswith(b"dex\n")
        assert b"Ldev/mtnedge/profiler/Main;" in dex
        assert archive.read(f"lib/arm64-v8a/{LIBRARIES[0]}").startswith(b"\x7fELF")
    done = subprocess.run([*command[:2], "--sdk", tmp_path / "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not a whole set of Android's tools" in done.stderr
