"""The command `prune`: what it removes, what it refuses, and that what it leaves can be used like any checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")

from mtn_edge.cli import app
from mtn_edge.config import Config, load_config, override, preset
from mtn_edge.data.dataset import Dataset
from mtn_edge.data.prepare import PrepareSettings, prepare
from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest
from mtn_edge.models.build import count_parameters
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.run import Beginning, train_model

RUN = CliRunner()


def prune(*arguments: object) -> dict[str, Any]:
    result = RUN.invoke(app, ["prune", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def refused(*arguments: object) -> str:
    result = RUN.invoke(app, ["prune", *map(str, arguments)])
    assert result.exit_code != 0
    return str(result.exception) if isinstance(result.exception, UserError) else result.output


@pytest.fixture(scope="module")
def deep(tiny_dataset: Path, tiny_settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with two decoder layers, four heads and all sources."""
    out = tmp_path_factory.mktemp("deep") / "checkpoint"
    more = ["model.decoder_layers=2", "model.heads=4", "model.fusion=all", "train.ngram_mb=0.05", "train.epochs=5"]
    train_model(tiny_dataset, out, config=override(preset("tiny"), [*tiny_settings, *more]), device="cpu")
    return out


@pytest.fixture(scope="module")
def recovered(deep: Path, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """That checkpoint with half of everything removed in two rounds."""
    out = tmp_path_factory.mktemp("pruned") / "checkpoint"
    shares = ("--ffn", 0.5, "--heads", 0.5, "--layers", 0.5, "--vocab", 0.1)
    more = ("--data", tiny_dataset, "--rounds", 2, "--recover-epochs", 2)
    return out, prune(deep, "-o", out, *shares, *more)


def test_half_of_everything_in_two_rounds(recovered: tuple[Path, dict[str, Any]], deep: Path) -> None:
    out, report = recovered
    before, after = report["before"], report["after"]
    assert [len(layers) for layers in after["layers"].values()] == [1, 1, 1]
    sizes = [size for layers in after["layers"].values() for size in layers]
    assert sum(size["ffn"] for size in sizes) == 3 * 64 // 2
    assert sum(size["heads"] for size in sizes) + after["memory_heads"] == 4 * 4 // 2
    assert after["vocab_size"] == before["vocab_size"] - before["vocab_size"] // 10
    checkpoint = load_checkpoint(out)
    assert sum(parameter.numel() for parameter in checkpoint.model.parameters()) == after["parameters"]
    assert count_parameters(load_config(out / "config.toml", Config()).model) == after["parameters"]
    stages = {stage["stage"]: stage["nats_per_query"] for stage in report["stages"]}
    assert list(stages) == ["before", *(f"{what}, round {n}" for n in (1, 2) for what in ("pruned", "recovered"))]
    assert stages["recovered, round 1"] < stages["pruned, round 1"]
    assert stages["recovered, round 2"] < stages["pruned, round 2"]
    parent, own = read_manifest(deep, "checkpoint"), read_manifest(out, "checkpoint")
    assert own["lineage"]["parent"] == parent["manifest_sha256"]
    assert own["lineage"]["dataset"] == parent["lineage"]["dataset"]
    assert own["training"]["pruning"] == {key: value for key, value in report.items() if key != "checkpoint"}
    assert [path.name for path in out.parent.iterdir()] == ["checkpoint"]


def test_what_is_left_becomes_a_bundle(
    recovered: tuple[Path, dict[str, Any]], tiny_dataset: Path, tmp_path: Path
) -> None:
    """The gates of `quantize` hold: graphs equal PyTorch, int8 is near; n-gram and gate fit the new tokens."""
    out, _ = recovered
    checkpoint = load_checkpoint(out)
    assert checkpoint.config.model.fusion == "all"
    assert checkpoint.sources is not None
    assert checkpoint.sources.ngram is not None
    assert len(checkpoint.sources.ngram.unigram) == len(checkpoint.tokenizer)
    made = RUN.invoke(app, ["quantize", str(out), "-o", str(tmp_path / "b"), "--int8", "--data", str(tiny_dataset)])
    assert made.exit_code == 0, made.output + str(made.exception)
    assert RUN.invoke(app, ["verify", str(tmp_path / "b")]).exit_code == 0
    found = RUN.invoke(app, ["suggest", str(tmp_path / "b"), "-p", "new york h", "--json"])
    assert json.loads(found.stdout)["suggestions"][0]["text"].startswith("new york h")


def test_a_pruned_checkpoint_can_be_pruned_again(
    recovered: tuple[Path, dict[str, Any]], tiny_dataset: Path, tmp_path: Path
) -> None:
    """Its tokenizer is a part of the dataset's, which is enough."""
    out, first = recovered
    again = prune(out, "-o", tmp_path / "again", "--ffn", 0.5, "--data", tiny_dataset, "--recover-epochs", 0)
    assert again["before"] == first["after"]
    assert sum(layers[0]["ffn"] for layers in again["after"]["layers"].values()) == 3 * 64 // 4
    assert len(again["stages"]) == 2


@pytest.mark.parametrize(
    ("flag", "changed"),
    [("--ffn", "layer_ffn"), ("--heads", "layer_heads"), ("--layers", "decoder_layers"), ("--vocab", "vocab_size")],
)
def test_each_flag_alone_and_without_data(flag: str, changed: str, deep: Path, tmp_path: Path) -> None:
    share = 0.2 if flag == "--vocab" else 0.5
    report = prune(deep, "-o", tmp_path / "out", flag, share)
    assert report["after"]["parameters"] < report["before"]["parameters"]
    assert report["stages"] == []
    model, before = load_checkpoint(tmp_path / "out").config.model, load_checkpoint(deep).config.model
    assert getattr(model, changed) != getattr(before, changed)
    # Tokens that are gone cannot be counted: without data the fusion goes with them.
    assert model.fusion == ("none" if flag == "--vocab" else "all")
    tokenizer = Tokenizer.load(tmp_path / "out" / "tokenizer.json")
    text = "new york 東京 🎉"
    assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()
    found = RUN.invoke(app, ["suggest", str(tmp_path / "out"), "-p", "new", "--json"])
    assert found.exit_code == 0, found.output


def test_the_same_command_gives_the_same_weights(tiny_checkpoint: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    options = ("--ffn", 0.25, "--data", tiny_dataset, "--recover-epochs", 1)
    for name in ("one", "two"):
        prune(tiny_checkpoint, "-o", tmp_path / name, *options)
    one, two = (read_manifest(tmp_path / name)["files"]["model.safetensors"] for name in ("one", "two"))
    assert one == two


def test_shares_that_make_no_sense(deep: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out")
    assert "give one of --ffn, --heads, --layers, --vocab" in " ".join(refused(deep, *out).split())
    for share in (1, -0.5, "nan"):
        assert "the share that is removed must be above 0 and below 1" in refused(deep, *out, "--ffn", share)
    assert "`--heads 0.01` removes none of the attention heads, of which the network has 24" in refused(
        deep, *out, "--heads", 0.01
    )
    assert "22 of 24 heads were to be removed, and 18 can go at most: every attention keeps one" in refused(
        deep, *out, "--heads", 0.95
    )
    assert "can go at most: every feed-forward layer keeps one" in refused(deep, *out, "--ffn", 0.999)
    assert "`--layers 0.5` removes none of the layers, of which the network has 1 + 1 + 1; leave it out" in refused(
        tiny_checkpoint, *out, "--layers", 0.5
    )
    assert "259 bytes and specials stay" in refused(deep, *out, "--vocab", 0.9)
    assert "`--recover-epochs` was given without data; name a dataset" in refused(
        deep, *out, "--ffn", 0.5, "--recover-epochs", 1
    )
    assert list(tmp_path.iterdir()) == []


def test_a_network_without_heads_says_so(tiny_dataset: Path, tmp_path: Path) -> None:
    small = ["model.arch=seq2seq", "model.d_model=16", "model.units=16", "train.epochs=1", "train.batch_queries=400"]
    path = tmp_path / "recurrent"
    train_model(tiny_dataset, path, config=override(preset("tiny"), small), device="cpu")
    for flag, what in (("--heads", "attention heads"), ("--ffn", "feed-forward units"), ("--layers", "layers")):
        assert f"a seq2seq network has no {what} to remove" in refused(path, "-o", tmp_path / "out", flag, 0.5)
    report = prune(path, "-o", tmp_path / "out", "--vocab", 0.1, "--data", tiny_dataset, "--recover-epochs", 1)
    assert report["after"]["vocab_size"] < report["before"]["vocab_size"]


def test_what_stands_is_kept_and_other_tokens_are_refused(deep: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    stands = tmp_path / "stands"
    shutil.copytree(deep, stands)
    assert "exists already and nothing is overwritten" in refused(deep, "-o", stands, "--ffn", 0.5)
    sentence = refused(stands, "-o", stands, "--ffn", 0.5, "--force")
    assert "is what the command reads, so --force does not replace it" in sentence
    prune(deep, "-o", stands, "--ffn", 0.5, "--force")
    assert load_checkpoint(stands).config.model.layer_ffn != ()
    (tmp_path / "log.tsv").write_text("\n".join(["quux zyzzyva\tquux zyzzyva hotel"] * 60) + "\n", encoding="utf-8")
    prepare_settings = PrepareSettings(format="sessions", min_users=1, vocab_size=300, split="hash")
    prepare([tmp_path / "log.tsv"], tmp_path / "other", prepare_settings)
    assert len(Dataset.open(tmp_path / "other").tokenizer) < len(Dataset.open(tiny_dataset).tokenizer)
    sentence = refused(deep, "-o", tmp_path / "out", "--ffn", 0.5, "--data", tmp_path / "other")
    assert "was prepared with another tokenizer" in sentence


def test_sizes_of_layers_are_settings(tiny_settings: list[str]) -> None:
    config = override(preset("tiny"), [*tiny_settings, "model.layer_heads=1,2,1", "model.layer_ffn=3, 4,5"])
    assert config.model.layer_heads == (1, 2, 1)
    assert config.model.layer_ffn == (3, 4, 5)


def test_an_interrupted_recovery_leaves_nothing(
    tiny_checkpoint: Path, tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtn_edge.training import watch

    def stop(self: watch.Watch, *arguments: object) -> tuple[bool, bool]:
        return True, False  # as if Ctrl-C had come

    monkeypatch.setattr(watch.Watch, "_share_step", stop)
    sentence = refused(tiny_checkpoint, "-o", tmp_path / "out", "--ffn", 0.5, "--data", tiny_dataset)
    assert "pruning was interrupted in a recovery, and nothing is kept of it; run the command again" in sentence
    assert list(tmp_path.iterdir()) == []


def test_training_begins_with_the_weights_it_is_given(
    tiny_checkpoint: Path, tiny_dataset: Path, tmp_path: Path
) -> None:
    import torch

    checkpoint = load_checkpoint(tiny_checkpoint)
    weights = {name: 2 * tensor for name, tensor in checkpoint.model.state_dict().items()}
    settings = override(checkpoint.config, ["train.learning_rate=1e-9", "train.epochs=1", "train.weight_decay=0"])
    out = tmp_path / "out"
    tokenizer = checkpoint.tokenizer.restricted(range(len(checkpoint.tokenizer)))
    train_model(tiny_dataset, out, config=settings, beginning=Beginning(weights, tokenizer, "a" * 64, 3), device="cpu")
    for name, tensor in load_checkpoint(out).model.state_dict().items():
        torch.testing.assert_close(tensor, weights[name], atol=1e-5, rtol=1e-5)
    assert read_manifest(out)["lineage"]["parent"] == "a" * 64
