"""Fusion through the public commands: a fresh n-gram, block lists, and files that do not fit."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")

import onnx
from onnx import numpy_helper

from export.verify import verify_bundle
from mtn_edge.cli import app
from mtn_edge.config import override, preset
from mtn_edge.data.prepare import PrepareSettings, prepare
from mtn_edge.folders import read_manifest, write_manifest
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.lists import FOLLOWERS
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.run import train_model

STRANGE = "zebra quagga okapi"
RUN = CliRunner()


@pytest.fixture(scope="module")
def fused(tiny_dataset: Path, tiny_settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with all sources."""
    out = tmp_path_factory.mktemp("fused") / "checkpoint"
    config = override(preset("tiny"), [*tiny_settings, "model.fusion=all", "train.ngram_mb=0.05"])
    train_model(tiny_dataset, out, config=config, device="cpu")
    return out


@pytest.fixture(scope="module")
def newer(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of newer logs, in which everybody asks for the same strange thing."""
    folder = tmp_path_factory.mktemp("newer")
    lines = [f"{number}\t{STRANGE}\t{STRANGE}\tnew york hotels" for number in range(80)]
    (folder / "sessions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = PrepareSettings(format="sessions", min_users=1, vocab_size=300, split="hash")
    prepare([folder / "sessions.tsv"], folder / "dataset", settings)
    return folder / "dataset"


def quantize(*arguments: object) -> dict:  # type: ignore[type-arg]
    result = RUN.invoke(app, ["quantize", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def spelt_by_the_ngram(bundle: Path) -> set[tuple[int, ...]]:
    """All token pairs that the n-gram of a bundle's graph holds."""
    graph = onnx.load(bundle / "suggest.onnx").graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer if each.name.startswith("ngram")}
    sizes, tokens = arrays["ngram.sizes"].astype(int), arrays["ngram.tokens"]
    context = np.repeat(np.arange(len(sizes)), sizes)
    vocabulary = len(Tokenizer.load(bundle / "tokenizer.json"))
    return {(row, int(token)) for row, token in zip(context, tokens[: len(context)], strict=True) if row < vocabulary}


def sealed(bundle: Path) -> Path:
    """The bundle with a manifest that fits what lies in it now."""
    own = {"kind", "format_version", "mtn_edge_version", "files", "manifest_sha256"}
    content = {key: value for key, value in read_manifest(bundle).items() if key not in own}
    (bundle / "manifest.json").unlink()
    write_manifest(bundle, "bundle", content)
    return bundle


def failed(bundle: Path) -> set[str]:
    return {check.name for check in verify_bundle(bundle) if not check.ok}


@pytest.fixture(scope="module")
def whole(fused: Path, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 bundle of it that verifies."""
    bundle = tmp_path_factory.mktemp("whole") / "bundle"
    quantize(fused, "-o", bundle, "--fp32", "--data", tiny_dataset)
    assert failed(bundle) == set()
    return bundle


def cut(graph: onnx.GraphProto, source: str) -> None:
    """Takes a source out of the mixture, as a fault in the lowering would."""
    arrays = {each.name: each for each in graph.initializer}
    if source == "ngram":  # it knows nothing: all its shares are zero
        values = numpy_helper.to_array(arrays["ngram.values"])
        arrays["ngram.values"].CopyFrom(numpy_helper.from_array(np.zeros_like(values), "ngram.values"))
        return
    bias = numpy_helper.to_array(arrays["gate.linear.bias"]).copy()
    if source == "copy":  # network, n-gram and three lengths of copying, in this order
        bias[2:] = -50
    else:
        bias[:] = 0
        weight = numpy_helper.to_array(arrays["gate.linear.weight"])
        arrays["gate.linear.weight"].CopyFrom(numpy_helper.from_array(np.zeros_like(weight), "gate.linear.weight"))
    arrays["gate.linear.bias"].CopyFrom(numpy_helper.from_array(bias, "gate.linear.bias"))


@pytest.mark.parametrize("source", ["ngram", "copy", "gate"])
def test_a_source_that_is_cut_off_fails_verify(whole: Path, tmp_path: Path, source: str) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(whole, bundle)
    model = onnx.load(bundle / "suggest.onnx")
    cut(model.graph, source)
    (bundle / "suggest.onnx").write_bytes(model.SerializeToString())
    assert failed(sealed(bundle)) & {"PyTorch = graph: score of a token", "golden vectors: score"}


def test_lists_that_are_cut_off_fail_verify(tiny_bundle: Path, tmp_path: Path) -> None:
    assert max(read_manifest(tiny_bundle)["decoding"]["mix_suggest"]) > 0  # or else they would not matter
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    Completions(()).save(bundle / FOLLOWERS)
    assert failed(sealed(bundle)) & {"golden vectors: score", "golden vectors: hypotheses and suggestions missing"}


def test_a_new_count_changes_what_is_suggested_without_training(fused: Path, newer: Path, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    quantize(fused, "-o", before, "--int8")
    quantize(fused, "-o", after, "--int8", "--ngram-from", newer)
    nats = [Suggester.open(bundle).session().log_probability(STRANGE)[0] for bundle in (before, after)]
    assert nats[1] > nats[0] + 5
    assert RUN.invoke(app, ["verify", str(after)]).exit_code == 0
    inspected = RUN.invoke(app, ["inspect", str(after)]).output
    assert "ngram.bytes" in inspected
    assert "entries" in inspected


def test_what_a_block_list_denies_is_not_counted(fused: Path, newer: Path, tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("quagga\n", encoding="utf-8")
    quantize(fused, "-o", tmp_path / "open", "--fp32", "--ngram-from", newer)
    quantize(fused, "-o", tmp_path / "blocked", "--fp32", "--ngram-from", newer, "--blocklist", denied)
    tokens = Tokenizer.load(fused / "tokenizer.json").encode(STRANGE)
    pairs = set(itertools.pairwise(tokens))
    held = spelt_by_the_ngram(tmp_path / "open")
    assert pairs <= held
    known = Tokenizer.load(fused / "tokenizer.json").encode("new york hotels")
    kept = spelt_by_the_ngram(tmp_path / "blocked")
    assert not pairs & kept
    assert set(itertools.pairwise(known)) <= kept


def test_a_count_of_other_data_is_told(fused: Path, newer: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    quantize(fused, "-o", tmp_path / "after", "--fp32", "--ngram-from", newer)
    assert read_manifest(tmp_path / "after")["lineage"]["ngram"] == read_manifest(newer)["manifest_sha256"]
    arguments = ["evaluate", str(tiny_dataset), str(tmp_path / "after"), "--task", "suggest", "--max-queries", "5"]
    assert "has its n-gram from another dataset" in RUN.invoke(app, arguments).output


def test_a_block_list_with_foreign_data_is_refused(fused: Path, newer: Path, tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("quagga\n", encoding="utf-8")
    arguments = ["quantize", fused, "-o", tmp_path / "b", "--fp32", "--data", newer, "--blocklist", denied]
    result = RUN.invoke(app, [*map(str, arguments)])
    assert "with --data the one it was trained on" in str(getattr(result.exception, "hint", ""))


def test_a_block_list_without_data_is_refused(fused: Path, tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("quagga\n", encoding="utf-8")
    arguments = ["quantize", str(fused), "-o", str(tmp_path / "b"), "--fp32", "--blocklist", str(denied), "--json"]
    result = RUN.invoke(app, arguments)
    assert "name a dataset to count again" in result.output + str(result.exception)
    assert not (tmp_path / "b").exists()


def test_an_ngram_of_another_tokenizer_or_none_at_all_is_refused(fused: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(fused, broken)
    (broken / "ngram.safetensors").unlink()
    result = RUN.invoke(app, ["suggest", str(broken), "-p", "new", "--json"])
    assert result.exit_code != 0
    assert "ngram.safetensors" in result.output + str(result.exception)


def test_no_ngram_to_count_anew(tiny_checkpoint: Path, newer: Path, tmp_path: Path) -> None:
    arguments = ["quantize", str(tiny_checkpoint), "-o", str(tmp_path / "b"), "--fp32", "--ngram-from", str(newer)]
    result = RUN.invoke(app, arguments)
    assert "mixes no n-gram in" in result.output + str(result.exception)
