"""`suggest`, `inspect` and `doctor`: what they print, and how they leave."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mtn_edge import cli
from mtn_edge.runtime import doctor, inspection, suggester
from mtn_edge.runtime.call import TOO_LATE


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def call(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["mtn-edge", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return Outcome(left.value.code, *capsys.readouterr())  # type: ignore[arg-type]

    return call


def test_suggest_prints_a_line_for_each_suggestion(run: Callable[..., Outcome], tiny_bundle: Path) -> None:
    asked = ("suggest", tiny_bundle, "-s", "paris hotels", "-s", "paris weather", "-p", "Restau", "-k", "3")
    found = run(*asked, "--min-probability", "0")
    assert found.status == 0
    lines = [line.split("\t") for line in found.out.splitlines()]
    assert len(lines) == 3
    assert "Restaurants near me" in {text for text, _ in lines}
    assert {source for _, source in lines} <= {"model", "completions"}
    assert found.err.endswith(" ms\n")
    # With the bundle's floor only what is likely; with a high one nothing, and why.
    likely = [line.split("\t") for line in run(*asked).out.splitlines()]
    assert likely[0][0] == "Restaurants near me"
    own = [line for line in likely if line[1] == "model"]
    assert own == lines[: len(own)]
    doubtful = run(*asked, "--min-probability", "0.9999999")
    assert "\tmodel" not in doubtful.out
    assert doubtful.err.startswith(f"{suggester.DOUBTFUL}; ")


def test_suggest_prints_the_document_of_the_contract(run: Callable[..., Outcome], tiny_bundle: Path) -> None:
    found = run("suggest", tiny_bundle, "-s", " Paris  HOTELS ", "-p", "東", "--json")
    document = json.loads(found.out)
    assert list(document) == ["suggestions", "prefix", "session", "reason", "elapsed_ms"]
    assert (document["prefix"], document["session"]) == ("東", ["paris hotels"])
    assert all(entry["text"].startswith("東京") for entry in document["suggestions"][:3])


@pytest.mark.parametrize("model", ["tiny_bundle", "tiny_checkpoint"])
def test_suggest_leaves_out_what_a_block_list_denies(
    run: Callable[..., Outcome], request: pytest.FixtureRequest, tmp_path: Path, model: str
) -> None:
    path: Path = request.getfixturevalue(model)
    (tmp_path / "list.txt").write_text("jaguar price\nfood\n")
    free = run("suggest", path, "-p", "jaguar ").out
    left = run("suggest", path, "-p", "jaguar ", "--blocklist", tmp_path / "list.txt")
    assert "jaguar price\t" in free
    kept = {line for line in free.splitlines() if not {"price", "food"} & set(line.split())}
    assert kept
    assert len(kept - set(left.out.splitlines())) <= 1  # a wider search may find a better one for the last place
    assert not {"price", "food"} & set(left.out.split())
    denied = run("suggest", path, "-p", "Jaguar PRICE now", "--blocklist", tmp_path / "list.txt")
    assert (denied.status, denied.out, denied.err.split(";")[0]) == (0, "", suggester.DENIED)
    missing = run("suggest", path, "-p", "jaguar", "--blocklist", tmp_path / "none")
    assert (missing.status, "cannot be read" in missing.err) == (1, True)


def test_suggest_forgives_a_typo_when_asked(run: Callable[..., Outcome], tiny_bundle: Path) -> None:
    typed = ["-p", "jagaur p", "--min-probability", "0.9"]
    assert "jaguar" not in run("suggest", tiny_bundle, *typed).out
    found = run("suggest", tiny_bundle, *typed, "--typos")
    assert {"jaguar price\ttypo", "jaguar pictures\ttypo"} <= set(found.out.splitlines())
    assert found.err.startswith(f"{suggester.DOUBTFUL}; ")


def test_suggest_without_p_and_without_a_terminal_is_about_the_next_query(
    run: Callable[..., Outcome], tiny_checkpoint: Path
) -> None:
    assert run("suggest", tiny_checkpoint, "-k", "2").out == run("suggest", tiny_checkpoint, "-k", "2", "-p", "").out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-p", "new", "--deadline-ms", "0"], TOO_LATE),
        (["-p", "x\udcff"], suggester.UNREADABLE),
        (["-p", "x" * 10_000], suggester.TOO_LONG),
        (["-p", "new", "-k", "0"], suggester.NOTHING_ASKED),
        (["-p", "new", "-k", "10000", "--min-probability", "0.3"], suggester.DOUBTFUL),
        (["-p", "jaguar price", "-k", "10000", "--min-probability", "0"], suggester.FEW),
    ],
)
def test_a_short_list_says_why(run: Callable[..., Outcome], tiny_bundle: Path, options: list[str], reason: str) -> None:
    words, document = run("suggest", tiny_bundle, *options), run("suggest", tiny_bundle, *options, "--json")
    assert words.status == document.status == 0
    assert words.err.startswith(f"{reason}; ")
    assert json.loads(document.out)["reason"] == reason


def test_faults_leave_with_the_status_of_the_contract(
    run: Callable[..., Outcome], tiny_bundle: Path, tmp_path: Path
) -> None:
    negative = run("suggest", tiny_bundle, "-p", "a", "-k", "-1")
    assert (negative.status, negative.out) == (1, "")
    assert negative.err == "error: `-k` is -1, and it must be at least 0; ask for 1 or more.\n"
    impossible = run("suggest", tiny_bundle, "-p", "a", "--min-probability", "1.5")
    assert (impossible.status, impossible.out) == (1, "")
    assert "is 1.5, and it must be at least 0 and below 1; give 0 to let everything pass." in impossible.err
    assert run("suggest", tiny_bundle, "-k", "many").status == 2
    assert run("suggest", tiny_bundle, "--threads", "0").status == 2
    missing = run("suggest", tmp_path / "none", "--json")
    assert missing.status == 1
    assert json.loads(missing.out)["error"]["code"] == "missing"


def test_suggest_runs_a_bundle_without_torch_and_says_what_a_checkpoint_needs(
    tiny_bundle: Path, tiny_checkpoint: Path
) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from mtn_edge.cli import main\n"
        "sys.argv = ['mtn-edge', 'suggest', *sys.argv[1:], '-p', 'pa', '-k', '1']\n"
        "main()"
    )
    bundle, checkpoint = (
        subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
        for path in (tiny_bundle, tiny_checkpoint)
    )
    assert bundle.returncode == 0
    assert bundle.stdout.startswith("paris ")
    assert checkpoint.returncode == 1
    assert checkpoint.stderr == (
        "error: running a checkpoint needs the package `torch`, which is not installed; "
        'install it with `pip install "mtn-edge[train]"`.\n'
    )


@pytest.mark.parametrize("kind", ["dataset", "checkpoint", "bundle"])
def test_inspect_says_what_a_folder_is(run: Callable[..., Outcome], request: pytest.FixtureRequest, kind: str) -> None:
    path: Path = request.getfixturevalue(f"tiny_{kind}")
    document = json.loads(run("inspect", path, "--json").out)
    assert (document["kind"], document["path"]) == (kind, str(path))
    assert document["bytes"] == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert document["vocabulary"]["tokens"] == len(json.loads((path / "tokenizer.json").read_bytes())["model"]["vocab"])
    assert document["lineage"]
    words = run("inspect", path).out
    assert words.startswith(f"{path}: a {kind} of ")
    assert "vocabulary.tokens" in words
    assert all(name in words for name in document["files"])


def test_inspect_names_a_damaged_file(run: Callable[..., Outcome], tiny_bundle: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_bundle, tmp_path / "b")
    (tmp_path / "b" / "encode.onnx").write_bytes(b"")
    found = run("inspect", tmp_path / "b")
    assert found.status == 1
    assert found.err.startswith(f"error: `{tmp_path / 'b' / 'encode.onnx'}` is missing, damaged or changed")
    assert run("inspect", tmp_path).err.startswith(f"error: `{tmp_path}` has no manifest.json")


def test_inspection_words_flatten_what_is_nested() -> None:
    assert inspection._flat("", {"a": {"b": 1, "c": None}, "d": [1, 2], "e": [{"f": 1, "g": 2}]}) == [
        ("a.b", "1"),
        ("a.c", "none"),
        ("d", "1, 2"),
        ("e", "f 1, g 2"),
    ]
    assert [inspection._size(count) for count in (999, 1_000, 2_540_000, 10**9)] == [
        "999 B",
        "1.00 kB",
        "2.54 MB",
        "1.00 GB",
    ]


def test_doctor_says_what_is_here(run: Callable[..., Outcome]) -> None:
    found = run("doctor", "--json")
    document = json.loads(found.out)
    assert (found.status, document["ok"]) == (0, True)
    assert document["onnxruntime"]["supported"] == ">=1.26,<1.29"
    assert set(document["extras"]) == {"train", "report", "sign", "inc", "spark", "tensorrt", "tensorrt-rtx"}
    assert document["cpu"]["cores"] >= 1
    words = run("doctor").out
    assert "instructions for int8" in words
    assert "[train] for preparing data, training" in words


@pytest.mark.parametrize(("version", "ok"), [("1.25.9", False), ("1.26.0", True), ("1.28.4", True), ("1.29.0", False)])
def test_doctor_knows_the_supported_versions(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, version: str, ok: bool
) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == "onnxruntime" else real(name))
    found = run("doctor")
    assert found.status == (0 if ok else 1)
    assert ("NOT SUPPORTED" in found.out) == (not ok)


def test_doctor_names_what_is_missing(run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("torch", "numpy") else real(name))
    found = run("doctor")
    assert found.status == 1
    assert "numpy (missing)" in found.out
    assert 'missing (pip install "mtn-edge[train]")' in found.out


def test_the_supported_versions_are_those_that_are_declared() -> None:
    import tomllib

    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"onnxruntime{doctor._onnxruntime('1.26')['supported']}" in declared["dependencies"]
    names = [requirement.split(">")[0].split("[")[0] for requirement in declared["dependencies"]]
    assert sorted(names) == sorted(doctor.BASE)
    for extra, requirements in declared["optional-dependencies"].items():
        packages = {requirement.split(">")[0].split("<")[0].split("[")[0] for requirement in requirements}
        assert extra in doctor.EXTRAS
        assert packages - {"mtn-edge"} >= set(doctor.EXTRAS[extra][0]) - {"duckdb"}
