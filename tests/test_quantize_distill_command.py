"""The command `distill`: what it refuses, what it says, what it leaves behind."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mtn_edge import folders
from mtn_edge.cli import main
from mtn_edge.config import Config, load_config, override, preset, to_toml
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.evaluation.prefixes import prefix_lengths
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.objective import Clock
from mtn_edge.training.run import train_model
from mtn_edge.training.state import load_state
from quantize.distill import distill_model
from quantize.teacher_answers import choose, teacher_answers, typed_prefixes
from quantize.teacher_folder import ANSWERS, TeacherFolder

SMALL = [
    *("model.d_model=16", "model.heads=2", "model.ffn=16", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=6", "train.epochs=1", "train.batch_queries=200"),
]
LEARNS = ("train.batch_queries=32", "train.learning_rate=1e-2", "train.warmup_steps=20")


def settings(*more: str) -> Config:
    return override(preset("tiny"), [*SMALL, *more])


def refused(dataset: Path, output: Path, teacher: Path, *more: str, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        distill_model(dataset, output, teacher=teacher, config=settings(*more), device="cpu", **options)  # type: ignore[arg-type]
    return str(caught.value)


class Command:
    """The public command, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str]:
        """Exit status and standard output."""
        self._monkeypatch.setattr(sys, "argv", ["mtn-edge", "distill", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), self._capsys.readouterr().out


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_the_public_command(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path, command: Command) -> None:
    output = tmp_path / "student"
    words = [word for setting in SMALL for word in ("--set", setting)]
    more = ("--set", "distill.states=0.1", "--set", "distill.answers=0.1", "--seed", "3", "--device", "cpu", "--json")
    status, said = command(tiny_dataset, "--teacher", tiny_checkpoint, "-o", output, *words, *more)
    assert status == 0, said
    result = json.loads(said)
    assert result["status"] == "trained"
    assert [path.name for path in tmp_path.iterdir()] == ["student"]

    manifest = folders.read_manifest(output, "checkpoint")
    folders.check_files(output, manifest)
    teacher = load_checkpoint(tiny_checkpoint)
    assert manifest["lineage"]["parent"] == teacher.manifest["manifest_sha256"]
    assert manifest["lineage"]["seed"] == 3
    assert manifest["training"].items() <= result.items()
    about = manifest["training"]["distillation"]
    assert about.items() >= {"truth": 0.1, "temperature": 1.0, "states": 0.1, "answers": 0.1}.items()
    assert about["kl"] > 0.05
    assert 0 < about["top1"] < 1
    assert about["teacher_valid_loss"] == pytest.approx(teacher.manifest["training"]["valid_loss"], abs=1e-3)
    assert about["answered_queries"] > 100

    # The checkpoint is one like any other: nothing in it remembers the maps.
    student = load_checkpoint(output)
    assert student.config == load_config(output / "config.toml", preset("base"))
    assert student.config.distill is not None
    assert set(load_file(output / "model.safetensors")) == set(student.model.state_dict())
    state = load_state(output / "training_state")
    assert state is not None
    assert not [name for name in state.tensors if "objective" in name or "map" in name]
    assert student.manifest["training"]["parameters"] == sum(x.numel() for x in student.model.parameters())

    status, said = command(tiny_dataset, "--teacher", tiny_checkpoint, "-o", output, *words, *more[:-1], "--resume")
    assert status == 0
    assert "nothing to resume" in said
    assert f"The teacher: {about['teacher_valid_loss']:.4f} nats per token" in said


def test_a_wrong_teacher_is_one_sentence_in_json(tiny_dataset: Path, tmp_path: Path, command: Command) -> None:
    status, said = command(tiny_dataset, "--teacher", tiny_dataset, "-o", tmp_path / "x", "--json")
    assert status == 1
    assert json.loads(said)["error"] == {
        "code": "wrong-kind",
        "message": f"`{tiny_dataset}` is a dataset, not a checkpoint",
        "hint": "make one with `mtn-edge train`",
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("distill.truth=1.5", "`distill.truth` is 1.5, and it must be from 0 to 1"),
        ("distill.truth=nan", "`distill.truth` is nan, and it must be from 0 to 1"),
        ("distill.temperature=0", "`distill.temperature` is 0.0, and it must be above 0 and finite"),
        ("distill.states=-1", "`distill.states` is -1.0, and it must be at least 0 and finite"),
        ("distill.answers=2", "`distill.answers` is 2.0, and it must be from 0 to 1"),
        ("distill.beam=0", "`distill.beam` is 0, and it must be at least 1"),
        ("train.bpe_dropout=0.1", "`train.bpe_dropout` is 0.1, and it must be 0 with a teacher"),
    ],
)
def test_values_that_cannot_work_are_named(
    setting: str, sentence: str, tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    assert refused(tiny_dataset, tmp_path / "x", tiny_checkpoint, setting).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_hidden_vectors_need_two_mtns(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    sentence = refused(tiny_dataset, tmp_path / "x", tiny_checkpoint, "model.arch=hred", "distill.sessions=1")
    assert sentence.startswith("`distill.sessions` is 1.0, and it must be 0 with model.arch hred: only MTNs have it")
    train_model(tiny_dataset, tmp_path / "hred", config=settings("model.arch=hred", "model.units=8"), device="cpu")
    sentence = refused(tiny_dataset, tmp_path / "x", tmp_path / "hred", "distill.states=1")
    assert "is of the architecture hred, and `distill.states` and `distill.sessions` need an MTN" in sentence


def test_settings_of_a_teacher_need_one(tiny_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a setting of \[distill\] was given, and `train` has no teacher"):
        train_model(tiny_dataset, tmp_path / "x", config=settings("distill.truth=0.5"), device="cpu")
    with pytest.raises(UserError, match=r"`distill.temprature` is not a setting; the nearest is `distill.temperature`"):
        settings("distill.temprature=2")
    (tmp_path / "my.toml").write_text("[distill]\ntemperature = 3.0\n")
    config = load_config(tmp_path / "my.toml", preset("tiny"))
    assert config.distill is not None
    assert config.distill.temperature == 3
    assert "[distill]" in to_toml(config)
    assert "[distill]" not in to_toml(preset("tiny"))


def test_another_tokenizer_is_named(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, dataset)
    # As many tokens, other merges.
    Tokenizer.train(["zebra crossing"] * 9, 300).save(dataset / "tokenizer.json")
    (dataset / folders.MANIFEST).unlink()
    folders.write_manifest(dataset, "dataset", {"lineage": {}})
    sentence = refused(dataset, tmp_path / "x", tiny_checkpoint)
    assert sentence.startswith(f"the teacher `{tiny_checkpoint}` cuts texts with another tokenizer (")
    assert sentence.endswith(
        "and both must be the same; train the teacher on this dataset, or name the dataset that it was trained on."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_a_narrower_teacher_is_named(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    sentence = refused(tiny_dataset, tmp_path / "x", tiny_checkpoint, "model.max_tokens=13")
    assert "has `model.max_tokens` 12 and the student 13, and a teacher must see as much as its student" in sentence
    assert sentence.endswith("give the student as much at most: model.max_tokens=12.")


def test_a_teacher_of_a_newer_version_is_named(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(tiny_checkpoint, teacher)
    manifest = json.loads((teacher / folders.MANIFEST).read_text())
    text = json.dumps({**manifest, "format_version": folders.FORMAT_VERSION + 1, "manifest_sha256": "0" * 64})
    digest = hashlib.sha256(text.encode()).hexdigest()
    (teacher / folders.MANIFEST).write_text(text.replace("0" * 64, digest))
    assert "has format version 2, newer than 1, the newest that is read here" in refused(
        tiny_dataset, tmp_path / "x", teacher
    )


def test_places_that_are_taken(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert "is the teacher itself" in refused(tiny_dataset, tiny_checkpoint, tiny_checkpoint, force=True)
    assert "is what the command reads" in refused(tiny_dataset, tiny_dataset, tiny_checkpoint, force=True)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine.txt").write_text("mine")
    assert "exists already and nothing is overwritten" in refused(tiny_dataset, tmp_path / "x", tiny_checkpoint)
    other = TeacherFolder(tmp_path / ".y.teacher", {})
    other.open()
    assert "another `distill` is at work" in refused(tiny_dataset, tmp_path / "y", tiny_checkpoint)
    other.close(remove=True)
    (tmp_path / ".y.teacher").mkdir()
    (tmp_path / ".y.teacher" / "diary.txt").write_text("mine")
    assert "holds `diary.txt`, which mtn-edge did not write" in refused(tiny_dataset, tmp_path / "y", tiny_checkpoint)
    assert (tmp_path / ".y.teacher" / "diary.txt").exists()


def test_a_time_budget_that_the_teacher_uses_up(
    tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantize.teacher_outputs.SAVE_SECONDS", 0.0)
    sentence = refused(tiny_dataset, tmp_path / "x", tiny_checkpoint, "train.time_budget=1e-6")
    assert "was over while the teacher was asked, before training began; what is done so far is kept" in sentence
    assert [path.name for path in tmp_path.iterdir()] == [".x.teacher"]
    assert json.loads((tmp_path / ".x.teacher" / "about.json").read_text())["done"] == 1
    done = distill_model(tiny_dataset, tmp_path / "x", teacher=tiny_checkpoint, config=settings(), device="cpu")
    assert done["status"] == "trained"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_any_architecture_teaches_any_other_and_a_cache_serves_them(tiny_dataset: Path, tmp_path: Path) -> None:
    config = settings("model.arch=transformer", *LEARNS)
    train_model(tiny_dataset, tmp_path / "teacher", config=config, device="cpu")
    for arch in ("hred", "mtn"):
        result = distill_model(
            tiny_dataset,
            tmp_path / arch,
            teacher=tmp_path / "teacher",
            config=settings(f"model.arch={arch}", "model.units=8", "distill.truth=0", *LEARNS),
            device="cpu",
            cache=tmp_path / "cache",
        )
        assert result["valid_loss"] < 5.9  # log 379 at the start
    (place,) = (tmp_path / "cache").iterdir()  # asked once
    assert (place / "states.bin").stat().st_size > 0


def test_outputs_that_were_changed_are_not_learnt(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    losses = []
    for name in ("first", "second"):
        result = distill_model(
            tiny_dataset,
            tmp_path / name,
            teacher=tiny_checkpoint,
            config=settings(*LEARNS),
            device="cpu",
            cache=tmp_path / "cache",
        )
        losses.append(result["valid_loss"])
        (states,) = tmp_path.glob("cache/*/states.bin")
        states.write_bytes(b"\xff" * states.stat().st_size)  # not a number, all of them
    assert losses[0] == losses[1]


def test_the_teacher_alone_teaches_what_it_knows(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """With the truth left out, the same steps bring the student nearer to its teacher than training alone."""
    more = ("train.epochs=3", *LEARNS)
    taught = distill_model(
        tiny_dataset, tmp_path / "a", teacher=tiny_checkpoint, config=settings("distill.truth=0", *more), device="cpu"
    )["distillation"]
    alone = distill_model(
        tiny_dataset, tmp_path / "b", teacher=tiny_checkpoint, config=settings("distill.truth=1", *more), device="cpu"
    )["distillation"]
    assert taught["kl"] < 0.9 * alone["kl"]


def test_three_levels(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    more = ("model.levels=3", "distill.answers=0.1", "distill.sessions=0.1")
    result = distill_model(tiny_dataset, tmp_path / "x", teacher=tiny_checkpoint, config=settings(*more), device="cpu")
    assert result["distillation"]["kl"] > 0


def test_answers_begin_with_what_is_typed_and_outlive_a_kill(
    tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    sessions = Dataset.open(tiny_dataset).sessions("train")
    teacher, clock = load_checkpoint(tiny_checkpoint), Clock(0.0, 0.0)
    folder = TeacherFolder(tmp_path / "said", {})
    folder.open()
    asked = {"share": 0.05, "beam": 3, "seed": 4, "clock": clock}
    read, targets = teacher_answers(teacher, sessions, folder, **asked)  # type: ignore[arg-type]
    assert read == choose(sessions, 0.05, 4, longest=7)
    assert len(read) == round(0.05 * len(sessions))
    changed = 0
    for number, (queries, answers) in enumerate(zip(read, targets, strict=True)):
        typed = typed_prefixes(queries, 4, number)
        assert typed[0] or len(queries[0]) == 1
        for query, answer, prefix in zip(queries, answers, typed, strict=True):
            assert query.startswith(prefix)
            assert prefix == "" or len(prefix) in prefix_lengths(query)
            assert answer.startswith(prefix)
            assert answer
            changed += answer != query
    assert changed > 5
    file = tmp_path / "said" / ANSWERS
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])
    assert teacher_answers(teacher, sessions, folder, **asked).targets == targets  # type: ignore[arg-type]
    assert file.read_bytes() == whole
    folder.close(remove=True)


def test_the_generator_of_training_does_not_see_the_teacher(
    tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """A run whose teacher was asked before, by another one, ends with the same weights."""
    config = settings("model.dropout=0.3")
    for name in ("one", "two"):
        distill_model(
            tiny_dataset,
            tmp_path / name,
            teacher=tiny_checkpoint,
            config=config,
            device="cpu",
            cache=tmp_path / "cache",
        )
        torch.rand(3)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
