"""The command `compress`: stages that are made once, budgets that are kept or refused, what it leaves behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from export.compress import measure, run
from export.compress.stages import Stages
from mtn_edge import folders
from mtn_edge.cli import main
from mtn_edge.errors import EXIT_FAULT, EXIT_GATE, EXIT_INTERRUPTED, UserError

STUDENT = """
[student.model]
d_model = 16
heads = 2
ffn = 16
decoder_layers = 1
max_tokens = 12
max_queries = 6
[student.train]
epochs = 1
batch_queries = 64
learning_rate = 1e-2
warmup_steps = 10
"""


class Command:
    """The public command, in this process, with few questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.setattr(measure, "QUERIES", 40)
        monkeypatch.setattr(measure, "KEY_PRESSES", 60)

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        self._monkeypatch.setattr(sys, "argv", ["mtn-edge", "compress", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = self._capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def recipe(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(
    tmp_path: Path, command: Command, tiny_dataset: Path, tiny_checkpoint: Path
) -> None:
    text = f'{STUDENT}[prune]\nvocab = 0.1\n[search.space]\n"student.model.d_model" = [16, 64]\n'
    given = [tiny_dataset, "--teacher", tiny_checkpoint, "-o", tmp_path / "out", "--recipe", recipe(tmp_path, text)]
    status, out, _ = command(*given, "--dry-run", "--json")
    assert status == 0
    narrow, wide = json.loads(out)["points"]
    assert [stage["stage"] for stage in narrow["stages"]] == ["distill", "prune", "quantize", "export"]
    assert not any(stage["done"] for stage in narrow["stages"])
    assert narrow["parameters"] < wide["parameters"]
    assert narrow["expected_bytes"] < wide["expected_bytes"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["recipe.toml"]
    status, out, _ = command(*given, "--dry-run")
    assert "distill, prune, quantize, export" in out


def test_from_a_teacher_to_a_bundle_and_a_report(
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tiny_dataset: Path,
    tiny_checkpoint: Path,
) -> None:
    """Stopped in the last stage: the stages before are not made again, and what comes of it proves itself."""
    text = f"[budgets]\nsize_mb = 2\nmax_quality_drop = 0.99\n{STUDENT}[prune]\nffn = 0.25\nrecover_epochs = 1\n"
    out, page = tmp_path / "out", tmp_path / "out.html"
    given = [tiny_dataset, "--teacher", tiny_checkpoint, "-o", out, "--recipe", recipe(tmp_path, text)]

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "export_mobile", stopped)
        status, _, err = command(*given)
    assert status == EXIT_INTERRUPTED
    assert err.endswith(f"what is done is kept in `{tmp_path / '.out.compress'}`; go on with the same command.\n")
    assert not out.exists()
    _, planned, _ = command(*given, "--dry-run", "--json")
    (plan,) = json.loads(planned)["points"]
    done = {stage["stage"]: stage["done"] for stage in plan["stages"]}
    assert done == {"distill": True, "prune": True, "quantize": True, "export": False}

    with monkeypatch.context() as patched:
        for name in ("distill_model", "prune_checkpoint", "write_bundle"):
            patched.setattr(run, name, stopped)
        status, printed, _ = command(*given, "--report", page, "--json")
    assert status == 0
    facts = json.loads(printed)
    assert folders.read_manifest(out, "bundle")["compression"] == facts["compression"]
    facts = facts["compression"]
    assert not facts["over"]
    assert facts["bundle"]["bytes"] == facts["points"][0]["bytes"] > sum(facts["bundle"]["parts"].values())
    assert facts["bundle"]["bytes"] <= plan["expected_bytes"] <= facts["bundle"]["bytes"] + run.OTHER_BYTES
    assert 0 <= facts["same_first"]["complete"] <= 1
    assert facts["network_divergence"]["kl"] > 0
    assert facts["teacher"]["groups"]["decoder"] > 2 * facts["bundle"]["groups"]["decoder"] > 0
    assert "## Compression" in (out / "MODEL_CARD.md").read_text(encoding="utf-8")
    html = page.read_text(encoding="utf-8")
    assert "Side by side" in html
    assert "http" not in html.replace("http://www.w3.org", "").replace("https://www.w3.org", "").replace(
        "http://purl.org", ""
    )
    assert not (tmp_path / ".out.compress").exists()


def test_budgets_that_nothing_keeps_end_with_status_3_and_name_the_best(
    tmp_path: Path, command: Command, tiny_dataset: Path, tiny_checkpoint: Path
) -> None:
    text = '[budgets]\np95_ms = 0.001\n[quantize]\nprecision = "int8"\n'
    out, page = tmp_path / "out", tmp_path / "out.html"
    given = [tiny_dataset, "--teacher", tiny_checkpoint, "-o", out, "--recipe", recipe(tmp_path, text)]
    status, _, err = command(*given, "--report", page)
    assert status == EXIT_GATE
    assert "no point of the recipe keeps within `budgets.p95_ms` 0.001" in err
    best = Path(err.rpartition("lies in `")[2].partition("`")[0])
    folders.check_files(best, folders.read_manifest(best, "bundle"))
    assert not out.exists()
    assert "no bundle within the budgets" in page.read_text(encoding="utf-8")


def test_a_budget_below_what_arithmetic_allows_is_refused_before_any_work(
    tmp_path: Path, command: Command, tiny_dataset: Path, tiny_checkpoint: Path
) -> None:
    text = '[budgets]\nsize_mb = 0.01\n[quantize]\nprecision = "int8"\n'
    given = [tiny_dataset, "--teacher", tiny_checkpoint, "-o", tmp_path / "out", "--recipe", recipe(tmp_path, text)]
    status, _, err = command(*given)
    assert status == EXIT_GATE
    assert "`budgets.size_mb` is 0.01, and the smallest bundle of the recipe takes about" in err


def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, command: Command, wide_dataset: Path, tiny_dataset: Path, tiny_checkpoint: Path
) -> None:
    file = recipe(tmp_path, '[quantize]\nprecision = "int8"\n')
    out = tmp_path / "out"
    status, _, err = command(wide_dataset, "--teacher", tiny_checkpoint, "-o", out, "--recipe", file)
    assert status == EXIT_FAULT
    assert "another tokenizer" in err
    recurrent = f'[student]\narch = "seq2seq"\n{STUDENT}[quantize]\nmethod = "static"\n'
    file = recipe(tmp_path, recurrent.replace("decoder_layers = 1\n", ""))
    status, _, err = command(tiny_dataset, "--teacher", tiny_checkpoint, "-o", out, "--recipe", file, "--dry-run")
    assert status == EXIT_FAULT
    assert "reaches products of linear layers only" in err
    file = recipe(tmp_path, STUDENT)
    status, _, err = command(wide_dataset, "--teacher", tiny_checkpoint, "-o", out, "--recipe", file)
    assert status == EXIT_FAULT
    assert "another tokenizer" in err
    out.mkdir()
    (out / "mine.txt").write_text("keep me", encoding="utf-8")
    status, _, err = command(tiny_dataset, "--teacher", tiny_checkpoint, "-o", out, "--recipe", file, "--force")
    assert status == EXIT_FAULT
    assert (out / "mine.txt").read_text(encoding="utf-8") == "keep me"


def test_places_that_cannot_be_written_are_refused_before_any_work(
    tmp_path: Path, command: Command, tiny_dataset: Path, tiny_checkpoint: Path
) -> None:
    teacher, out = tmp_path / "teacher", tmp_path / "out"
    shutil.copytree(tiny_checkpoint, teacher)
    file = recipe(tmp_path, '[quantize]\nprecision = "int8"\n')
    given = [tiny_dataset, "--teacher", teacher, "--recipe", file]
    for places, sentence in (
        (("-o", out, "--report", file / "page.html"), f"page.html` cannot be written: nothing can be made in `{file}`"),
        (("-o", file / "out", "--cache", tmp_path / "c"), f"out` cannot be written: nothing can be made in `{file}`"),
        (("-o", out, "--cache", out), "lies where the bundle is to be"),
        (("-o", out, "--cache", out / "cache"), "lies where the bundle is to be"),
        (("-o", teacher, "--force"), f"`{teacher}` is what the command reads, so --force does not replace it"),
    ):
        status, _, err = command(*given, *places)
        assert status == EXIT_FAULT
        assert sentence in err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["recipe.toml", "teacher"]


def test_a_damaged_stage_is_made_again(tmp_path: Path, tiny_checkpoint: Path) -> None:
    made: list[Path] = []

    def make(place: Path) -> None:
        made.append(place)
        shutil.copytree(tiny_checkpoint, place)

    with Stages(tmp_path / "work") as stages:
        place = stages.folder("distill", {"a": 1}, make)
        assert stages.folder("distill", {"a": 1}, make) == place
        assert stages.folder("distill", {"a": 2}, make) != place
        assert len(made) == 2
        (place / "model.safetensors").write_bytes(b"hurt")
        stages.folder("distill", {"a": 1}, make)
        assert len(made) == 3
        folders.check_files(place, folders.read_manifest(place))
        with pytest.raises(UserError, match="another `compress` is at work"), Stages(tmp_path / "work"):
            pass
    left = tmp_path / "work" / ".distill-0123.abcd.partial"
    left.mkdir()
    with Stages(tmp_path / "work"):
        assert not left.exists()  # what a killed run left goes


def test_a_figure_that_is_not_taken_is_measured_again(tmp_path: Path) -> None:
    """A p95 beyond the budget may be a busy machine's, so it must not refuse for ever."""
    measured = iter([9.0, 4.0, 5.0])
    with Stages(tmp_path) as stages:
        found = [
            stages.document("cost", {}, lambda: {"p95": next(measured)}, keep=lambda found: found["p95"] <= 4.5)["p95"]
            for _ in range(3)
        ]
    assert found == [9.0, 4.0, 4.0]


@pytest.mark.parametrize("rubbish", ["", "[]", '{"found": {"mrr@10": 0.9}, "sha256": ""}', None])
def test_rubbish_among_the_stages_is_made_anew(tmp_path: Path, tiny_checkpoint: Path, rubbish: str | None) -> None:
    """Neither a figure that somebody changed nor something of another kind is taken for a result."""

    def put(place: Path) -> None:
        if rubbish is None:
            place.mkdir()
        else:
            place.write_text(rubbish, encoding="utf-8")

    with Stages(tmp_path / "work") as stages:
        document = stages.place("quality", {}).with_suffix(".json")
        put(document)
        assert stages.document("quality", {}, lambda: {"mrr@10": 0.5}) == {"mrr@10": 0.5}
        assert stages.document("quality", {}, dict) == {"mrr@10": 0.5}
        put(stages.place("distill", {}))
        assert not stages.has("distill", {})
        stages.folder("distill", {}, lambda place: shutil.copytree(tiny_checkpoint, place))
        assert stages.has("distill", {})
        (stages.place("distill", {}) / folders.MANIFEST).write_text("{}", encoding="utf-8")
        assert not stages.has("distill", {})


@pytest.mark.slow
def test_killed_twice_and_resumed_it_ends_with_the_same_bundle(
    tmp_path: Path, tiny_dataset: Path, tiny_checkpoint: Path
) -> None:
    """Once inside distillation, once in pruning; suggestions and scores are those of a run that nobody killed."""
    file = recipe(tmp_path, STUDENT.replace("epochs = 1", "epochs = 20") + "[prune]\nffn = 0.25\nrecover_epochs = 1\n")
    base = [sys.executable, "-m", "mtn_edge", "compress", str(tiny_dataset), "--teacher", str(tiny_checkpoint)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for sign in ("training: ", "prune: begins"):
        begun = [*base, "--recipe", str(file), "-o", str(tmp_path / "killed")]
        with subprocess.Popen(begun, stderr=subprocess.PIPE, text=True, env=environment) as running:
            assert running.stderr is not None
            for line in running.stderr:
                if line.startswith(sign):
                    time.sleep(0.3)
                    running.send_signal(signal.SIGKILL)
        assert running.returncode == -signal.SIGKILL
    for name in ("killed", "whole"):
        subprocess.run([*base, "--recipe", str(file), "-o", str(tmp_path / name)], check=True, env=environment)
    golden = [(tmp_path / name / "golden.json").read_bytes() for name in ("killed", "whole")]
    assert golden[0] == golden[1]
