"""The command `train`: what it refuses, what it says, what it leaves behind."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtn_edge import folders
from mtn_edge.config import Config, check, load_config, override, preset
from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest, write_manifest
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.run import _Parent, train_model
from mtn_edge.training.state import STATE, Progress, TrainingState, load_state, save_state
from mtn_edge.training.workplace import Workplace

SMALL = [
    *("model.d_model=16", "model.heads=2", "model.ffn=16", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=8", "model.max_queries=4", "train.epochs=1", "train.batch_queries=200"),
]


def settings(*more: str) -> Config:
    return override(preset("tiny"), [*SMALL, *more])


def refused(dataset: Path, output: Path, config: Config | None = None, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        train_model(dataset, output, config=config or settings(), **{"device": "cpu", **options})  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.d_modle=1", "`model.d_modle` is not a setting; the nearest is `model.d_model`."),
        ("model.d_model=big", "`model.d_model` is 'big', and it must be a whole number; change that setting."),
        ("model.memory=some", "`model.memory` is 'some', and it must be one of all, last; change that setting."),
        ("model.d_model", "`--set model.d_model` has no `=`; write --set section.key=value."),
    ],
)
def test_wrong_settings_are_named(setting: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        settings(setting)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.d_model=15", "`model.d_model` is 15, and it must be a multiple of model.heads (2)"),
        ("train.learning_rate=nan", "`train.learning_rate` is nan, and it must be above 0"),
        ("train.learning_rate=inf", "`train.learning_rate` is inf, and it must be finite"),
        ("train.weight_decay=-1", "`train.weight_decay` is -1.0, and it must be at least 0"),
        ("train.warmup_steps=-1", "`train.warmup_steps` is -1, and it must be at least 0"),
        ("train.epochs=0", "`train.epochs` is 0, and it must be at least 1"),
        ("model.dropout=1", "`model.dropout` is 1.0, and it must be at least 0 and below 1"),
    ],
)
def test_values_that_cannot_work_are_named(setting: str, sentence: str, tiny_dataset: Path, tmp_path: Path) -> None:
    assert refused(tiny_dataset, tmp_path / "out", settings(setting)).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_wrong_folders_are_named(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert "is a checkpoint, not a dataset" in refused(tiny_checkpoint, tmp_path / "out")
    assert "does not exist" in refused(tmp_path / "nothing", tmp_path / "out")
    assert "exists already" in refused(tiny_dataset, tiny_checkpoint)
    assert "is a dataset, not a checkpoint" in refused(tiny_dataset, tiny_dataset, resume=True)
    with pytest.raises(UserError, match="is a dataset, not a checkpoint"):
        load_checkpoint(tiny_dataset)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none(tiny_dataset: Path, tmp_path: Path) -> None:
    sentence = "`--device cuda` was given, and PyTorch finds no CUDA device here; take --device cpu or auto."
    assert refused(tiny_dataset, tmp_path / "out", device="cuda") == sentence


def test_an_empty_split_is_named(tiny_dataset: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, dataset)
    shutil.rmtree(dataset / "valid")
    (dataset / folders.MANIFEST).unlink()
    folders.write_manifest(dataset, "dataset", {})
    assert "has no sessions in its valid split" in refused(dataset, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_what_a_checkpoint_holds(tiny_dataset: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = train_model(tiny_dataset, output, config=settings("train.seed=7"), device="cpu")
    names = [path.relative_to(output).as_posix() for path in sorted(output.rglob("*")) if path.is_file()]
    assert names == [
        *("config.toml", "manifest.json", "metrics.jsonl", "model.safetensors", "tokenizer.json"),
        "training_state/state.safetensors",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {oct(path.stat().st_mode)[-3:] for path in output.rglob("*") if path.is_file()} == {"644"}
    manifest = folders.read_manifest(output, "checkpoint")
    folders.check_files(output, manifest)
    dataset = folders.read_manifest(tiny_dataset, "dataset")
    assert manifest["lineage"]["dataset"] == dataset["manifest_sha256"]
    assert manifest["lineage"]["parent"] is None
    assert manifest["lineage"]["seed"] == 7
    assert manifest["model"]["vocab_size"] == vocabulary(tiny_dataset)  # whatever the preset says
    assert manifest["training"].items() <= result.items()
    assert result["valid_loss"] == min(
        json.loads(line)["valid_loss"] for line in (output / "metrics.jsonl").read_text().splitlines()
    )
    checkpoint = load_checkpoint(output)
    assert checkpoint.config == load_config(output / "config.toml", preset("base"))
    assert not checkpoint.model.training
    assert result["parameters"] == sum(p.numel() for p in checkpoint.model.parameters())
    # With the training state one can go on: optimizer, generator and last weights are there.
    state = load_state(output / "training_state")
    assert state is not None
    assert state.progress.step == result["steps"]
    assert set(state.part("model")) == set(checkpoint.model.state_dict())
    momenta = [key for key in state.part("optimizer") if key.startswith("momentum.")]
    assert len(momenta) > 8  # the matrices are Muon's
    assert len(state.part("optimizer")) == len(momenta) + 3 * (len(state.part("model")) - len(momenta))
    assert "cpu" in state.part("random")


def test_resume_when_finished_says_so(tiny_dataset: Path, tiny_checkpoint: Path, tiny_settings: list[str]) -> None:
    """And asks whether it is the run that was meant."""
    before = (tiny_checkpoint / "model.safetensors").stat().st_mtime_ns
    same = override(preset("tiny"), tiny_settings)
    result = train_model(tiny_dataset, tiny_checkpoint, config=same, device="cpu", resume=True)
    assert result["status"] == "finished already"
    assert (tiny_checkpoint / "model.safetensors").stat().st_mtime_ns == before
    other = override(same, ["model.ffn=48"])
    with pytest.raises(UserError, match=r"`model\.ffn` was 64 in the interrupted run and is 48 now"):
        train_model(tiny_dataset, tiny_checkpoint, config=other, device="cpu", resume=True)


def vocabulary(dataset: Path) -> int:
    return len(Tokenizer.load(dataset / "tokenizer.json"))


def interrupt(made_from: Path, output: Path, **changes: object) -> Path:
    """What an interrupted run leaves behind."""
    from dataclasses import asdict, replace

    config = settings()
    config = replace(config, model=replace(config.model, vocab_size=vocabulary(made_from)))
    sha = folders.read_manifest(made_from, "dataset")["manifest_sha256"]
    run = {"config": asdict(config), "dataset": sha, "processes": 1, **changes}
    place = Workplace(output).folder
    place.mkdir()
    save_state(place, TrainingState(run=run, progress=Progress(step=3), tensors={"model.x": torch.zeros(1)}))
    return place


def test_an_interrupted_run_is_not_lost_by_accident(tiny_dataset: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    place = interrupt(tiny_dataset, output)
    sentence = refused(tiny_dataset, output)
    assert "an interrupted run" in sentence
    assert "--resume" in sentence
    assert (place / STATE).exists()
    assert train_model(tiny_dataset, output, config=settings(), device="cpu", force=True)["status"] == "trained"
    assert not place.exists()


def test_force_removes_nothing_foreign(tiny_dataset: Path, tmp_path: Path) -> None:
    place = interrupt(tiny_dataset, tmp_path / "out")
    (place / "diary.txt").write_text("mine")
    assert "holds `diary.txt`, which mtn-edge did not write" in refused(tiny_dataset, tmp_path / "out", force=True)
    assert (place / "diary.txt").exists()


def test_resume_needs_the_same_run(tiny_dataset: Path, tmp_path: Path) -> None:
    interrupt(tiny_dataset, tmp_path / "out")
    sentence = refused(tiny_dataset, tmp_path / "out", settings("model.ffn=32"), resume=True)
    assert sentence.startswith("`model.ffn` was 16 in the interrupted run and is 32 now")
    interrupt(tiny_dataset, tmp_path / "two", dataset="0" * 64)
    sentence = refused(tiny_dataset, tmp_path / "two", resume=True)
    assert sentence.startswith("the interrupted run was training on another dataset")


def test_a_damaged_state_is_named(tiny_dataset: Path, tmp_path: Path) -> None:
    place = interrupt(tiny_dataset, tmp_path / "out")
    raw = (place / STATE).read_bytes()
    (place / STATE).write_bytes(raw[: len(raw) // 2])
    assert "is not a readable training state" in refused(tiny_dataset, tmp_path / "out", resume=True)


def test_a_half_written_state_does_not_count(tiny_dataset: Path, tmp_path: Path) -> None:
    place = interrupt(tiny_dataset, tmp_path / "out")
    (place / f"{STATE}.partial").write_bytes(b"half")
    state = load_state(place)
    assert state is not None
    assert state.progress == Progress(step=3)


def test_nothing_to_resume_starts_anew(tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = train_model(tiny_dataset, tmp_path / "out", config=settings(), device="cpu", resume=True)
    assert result["status"] == "trained"
    assert "nothing to resume: training starts anew" in capsys.readouterr().err


def test_diverging_ends_with_a_sentence_and_the_last_good_state(tiny_dataset: Path, tmp_path: Path) -> None:
    more = ("train.learning_rate=1e25", "train.clip_norm=1e30", "train.validate_every=1", "train.warmup_steps=2")
    sentence = refused(tiny_dataset, tmp_path / "out", settings(*more, "train.epochs=9", "train.patience=99"))
    assert sentence.startswith("training diverged: the loss or a weight is not a finite number at step ")
    assert not (tmp_path / "out").exists()
    state = load_state(Workplace(tmp_path / "out").folder)
    if state is not None:
        assert all(x.isfinite().all() for x in state.part("model").values())
        assert all(math.isfinite(row["valid_loss"]) for row in state.progress.rows)


def test_a_new_run_does_not_depend_on_what_ran_before(tiny_dataset: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        torch.rand(5)
        train_model(tiny_dataset, tmp_path / name, config=settings(), device="cpu")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    train_model(tiny_dataset, tmp_path / "three", config=settings("train.seed=2"), device="cpu")
    assert (tmp_path / "three" / "model.safetensors").read_bytes() != one


def copied(checkpoint: Path, place: Path) -> Path:
    shutil.copytree(checkpoint, place)
    return place


def rewrite(checkpoint: Path) -> None:
    manifest = folders.read_manifest(checkpoint, "checkpoint")
    for key in ("kind", "format_version", "mtn_edge_version", "files", "manifest_sha256"):
        manifest.pop(key)
    folders.write_manifest(checkpoint, "checkpoint", manifest)


def test_a_changed_byte_is_found(tiny_checkpoint: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "model.safetensors", "tokenizer.json", "metrics.jsonl", "manifest.json"):
        folder = copied(tiny_checkpoint, tmp_path / name)
        raw = bytearray((folder / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        (folder / name).write_bytes(raw)
        with pytest.raises(UserError, match=name):
            load_checkpoint(folder)


def test_parts_that_do_not_fit_are_named(tiny_checkpoint: Path, tmp_path: Path) -> None:
    def broken(name: str, change: object) -> str:
        folder = copied(tiny_checkpoint, tmp_path / name)
        assert callable(change)
        change(folder)
        rewrite(folder)
        with pytest.raises(UserError) as caught:
            load_checkpoint(folder)
        return str(caught.value)

    def config(old: str, new: str) -> object:
        return lambda folder: (folder / "config.toml").write_text(
            (folder / "config.toml").read_text().replace(old, new)
        )

    def weights(change: object) -> object:
        def apply(folder: Path) -> None:
            tensors = load_file(folder / "model.safetensors")
            assert callable(change)
            change(tensors)
            save_file(tensors, folder / "model.safetensors")

        return apply

    tokens = vocabulary(tiny_checkpoint)
    assert "`decoder_convolution.weight` is [32, 64] there and [48, 96] by config.toml" in broken(
        "a", config("d_model = 32", "d_model = 48")
    )
    assert "it lacks `decoder_layers.1" in broken("b", config("decoder_layers = 1", "decoder_layers = 2"))
    assert "it holds `decoder_norm.bias`" in broken("c", config('norm = "pre"', 'norm = "post"'))
    assert "it lacks `projection.weight`" in broken("d", weights(lambda x: x.pop("projection.weight")))
    assert f"it has {tokens} tokens and `model.vocab_size` is 500" in broken(
        "e", config(f"vocab_size = {tokens}", "vocab_size = 500")
    )
    assert "model.safetensors` does not fit its checkpoint: the checkpoint lacks it" in broken(
        "f", lambda folder: (folder / "model.safetensors").unlink()
    )
    assert "model.safetensors` does not fit its checkpoint: it cannot be read" in broken(
        "g", lambda folder: (folder / "model.safetensors").write_bytes(b"no tensors")
    )


def test_a_checkpoint_of_another_version_is_no_network_of_this_one(tiny_checkpoint, tmp_path):
    out = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, out)
    manifest = read_manifest(out)
    content = {key: manifest[key] for key in ("model", "training", "lineage")}
    del content["model"]["refinement"]
    (out / "manifest.json").unlink()
    write_manifest(out, "checkpoint", content)
    with pytest.raises(UserError, match=r"has no `model\.refinement`: another version made it"):
        load_checkpoint(out)


def test_weights_that_are_no_numbers_are_refused(tiny_checkpoint, tmp_path):
    out = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, out)
    weights = load_file(out / "model.safetensors")
    weights["embedding.weight"][3, 3] = float("nan")
    save_file(weights, out / "model.safetensors")
    manifest = read_manifest(out)
    (out / "manifest.json").unlink()
    write_manifest(out, "checkpoint", {key: manifest[key] for key in ("model", "training", "lineage")})
    with pytest.raises(UserError, match=r"`embedding\.weight` holds NaN"):
        load_checkpoint(out)


@pytest.mark.parametrize("setting", ["train.seed=-1", "train.seed=99999999999", "train.ngram_mb=nan"])
def test_numbers_out_of_range_are_refused(setting):
    with pytest.raises(UserError, match="must be"):
        check(override(preset("tiny"), [setting]))


@pytest.mark.parametrize(
    ("parent", "users", "own", "wanted"), [(None, None, 5, 5), ("a", 3, 5, 3), ("a", None, 5, None)]
)
def test_k_of_a_checkpoint_is_the_smallest_of_all_that_taught_it(parent, users, own, wanted):
    assert _Parent(parent, users).users_with(own) == wanted
