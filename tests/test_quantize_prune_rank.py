"""An embedding of low rank: the best one there is, the same in every form, and refused where it makes no sense."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")
pytest.importorskip("onnx", reason="bundles are made with the extra [train]")

import numpy as np
import onnx
import torch

from export.bundle import write_bundle
from export.verify import verify_bundle
from mtn_edge.cli import app
from mtn_edge.config import Config, ModelConfig, check, load_config, override, preset
from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest
from mtn_edge.models.build import build, count_parameters
from mtn_edge.tokenizer import BOS, EOS, MIN_VOCAB, PAD
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.run import train_model
from quantize import inc
from quantize.distill import distill_model
from quantize.prune_rank import narrow_table, usual_counts

RUN = CliRunner()
SIZES = {"vocab_size": 60, "d_model": 24, "heads": 3, "ffn": 10, "max_tokens": 6, "max_queries": 5, "dropout": 0.0}
KINDS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "memory": "last", "levels": 3},
    {"mixer": "ssru"},
    {"arch": "transformer", "max_session_tokens": 20},
]
ALL_KINDS = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())) or "plain")


def prune(*arguments: object) -> dict[str, Any]:
    result = RUN.invoke(app, ["prune", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def refused(*arguments: object) -> str:
    result = RUN.invoke(app, ["prune", *map(str, arguments)])
    assert result.exit_code != 0
    return str(result.exception) if isinstance(result.exception, UserError) else result.output


def network(**kind: Any) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    config = ModelConfig(**{**SIZES, **kind})
    torch.manual_seed(3)
    model = build(config)
    return config, {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()}


@torch.no_grad()
def scores(config: ModelConfig, weights: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a session in one pass, and of two steps of decoding."""
    model = build(config).eval()
    model.load_state_dict(weights)
    source, target = torch.tensor([[[BOS, 0], [7, 8]]]), torch.tensor([[[BOS, 7, 8], [BOS, 11, 0]]])
    cache = model.append(torch.tensor([7, 8, 9]), model.append(torch.tensor([BOS]), model.start()))
    first, past = model.step(torch.tensor([BOS]), 0, cache.memory, None)
    second, _ = model.step(torch.tensor([11]), 1, cache.memory, past)
    return model.logits(model.states(source, target)), model.logits(torch.cat([first, second]))


@ALL_KINDS
def test_the_full_rank_is_the_same_network(kind: dict[str, Any]) -> None:
    config, weights = network(**kind)
    after, left = narrow_table(config, weights, config.d_model, torch.arange(1, 61))
    assert after.embedding_rank == config.d_model
    for found, wanted in zip(scores(after, left), scores(config, weights), strict=True):
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@ALL_KINDS
def test_a_table_of_low_rank_loses_nothing(kind: dict[str, Any]) -> None:
    """What has rank 7 already is the same with 7 dimensions; narrowing what is narrow does the same."""
    config, weights = network(**kind)
    weights["embedding.weight"] = torch.randn(60, 7) @ torch.randn(7, 24) / 7
    once, left = narrow_table(config, weights, 15, None)
    after, left = narrow_table(once, left, 7, None)
    assert left["embedding.weight"].shape == (60, 7)
    assert count_parameters(after) == sum(tensor.numel() for tensor in left.values())
    for found, wanted in zip(scores(after, left), scores(config, weights), strict=True):
        torch.testing.assert_close(found, wanted, atol=5e-5, rtol=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 99), st.booleans(), st.booleans())
def test_no_table_of_that_rank_is_nearer(rank: int, seed: int, counted: bool, narrow: bool) -> None:
    """Eckart-Young: the squared error is the sum of the squared singular values that are left out."""
    generator = torch.Generator().manual_seed(seed)
    config = ModelConfig(**{**SIZES, "d_model": 12, "embedding_rank": 12 if narrow else 0})  # type: ignore[arg-type]
    weights = {"embedding.weight": torch.randn(60, 12, generator=generator)}
    if narrow:  # maps that training has led apart
        for name in ("embedding_up.weight", "embedding_down.weight"):
            weights[name] = torch.randn(12, 12, generator=generator)
    counts = torch.randint(1, 1000, (60,), generator=generator) if counted else None
    _, left = narrow_table(config, weights, rank, counts)

    def tables(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """[v, 2 d]: what tokens are looked up as, and what states are scored with."""
        table = tensors["embedding.weight"].double()
        if "embedding_up.weight" not in tensors:
            return torch.cat([table, table], dim=1)
        up, down = tensors["embedding_up.weight"].double(), tensors["embedding_down.weight"].double()
        return torch.cat([table @ up.T, table @ down], dim=1)

    weight = torch.ones(60, 1) if counts is None else counts.sqrt()[:, None]
    error = ((tables(left) - tables(weights)) * weight).square().sum()
    dropped = torch.linalg.svdvals(tables(weights) * weight)[rank:].square().sum()
    torch.testing.assert_close(error, dropped, atol=1e-6 * float(weight.square().sum()), rtol=1e-5)
    if not narrow:
        torch.testing.assert_close(left["embedding_down.weight"], left["embedding_up.weight"].T)


@pytest.fixture(scope="module")
def mixed(tiny_dataset: Path, tiny_settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with all sources."""
    out = tmp_path_factory.mktemp("mixed") / "checkpoint"
    more = ["model.heads=4", "model.fusion=all", "train.ngram_mb=0.05", "train.epochs=4"]
    train_model(tiny_dataset, out, config=override(preset("tiny"), [*tiny_settings, *more]), device="cpu")
    return out


@pytest.fixture(scope="module")
def narrow(mixed: Path, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """That checkpoint with half of the width of its embedding, in two rounds, and with some of everything else gone."""
    out = tmp_path_factory.mktemp("narrow") / "checkpoint"
    rounds = ("--rounds", 2, "--recover-epochs", 1)
    others = ("--ffn", 0.25, "--heads", 0.25, "--vocab", 0.1, "--sparsity", 0.3)
    return out, prune(mixed, "-o", out, "--rank", 0.5, *others, "--data", tiny_dataset, *rounds)


def test_half_of_the_width_goes(narrow: tuple[Path, dict[str, Any]]) -> None:
    out, report = narrow
    assert (report["before"]["embedding_width"], report["after"]["embedding_width"]) == (32, 16)
    assert report["removed"]["rank"] == 0.5
    assert [stage["stage"] for stage in report["stages"]] == [
        *("before", "pruned, round 1", "recovered, round 1", "pruned, round 2", "recovered, round 2")
    ]
    assert report["stages"][-1]["nats_per_query"] < report["stages"][-2]["nats_per_query"]
    checkpoint = load_checkpoint(out)
    assert load_config(out / "config.toml", Config()).model.embedding_rank == 16
    assert checkpoint.model.embedding.weight.shape == (report["after"]["vocab_size"], 16)
    assert sum(parameter.numel() for parameter in checkpoint.model.parameters()) == report["after"]["parameters"]
    shown = RUN.invoke(app, ["inspect", str(out)])
    assert any(line.split() == ["model.embedding_rank", "16"] for line in shown.stdout.splitlines())


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
def test_it_becomes_a_bundle_in_every_precision(
    precision: str, narrow: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The gates hold: graphs equal PyTorch, integers are near, and the table is stored once, as [v, r]."""
    out, report = narrow
    made = RUN.invoke(app, ["quantize", str(out), "-o", str(tmp_path / "b"), f"--{precision}"])
    assert made.exit_code == 0, made.output + str(made.exception)
    assert RUN.invoke(app, ["verify", str(tmp_path / "b")]).exit_code == 0
    v = report["after"]["vocab_size"]
    models = [onnx.load(tmp_path / "b" / f"{name}.onnx") for name in ("encode", "suggest")]
    stored = [each for model in models for each in model.graph.initializer]
    kind = onnx.TensorProto.FLOAT if precision == "fp32" else onnx.TensorProto.INT8
    assert [
        (each.name, each.data_type, list(each.dims)) for each in stored if v in each.dims and len(each.dims) > 1
    ] == [("embedding.rows", kind, [v, 16])]
    maps = {each.name: list(each.dims) for each in stored if each.name.startswith(("embedding_up", "embedding_down"))}
    part = "weight" if precision == "fp32" else "values"
    assert (maps[f"embedding_up.{part}"], maps[f"embedding_down.{part}"]) == ([16, 32], [32, 16])
    assert "in a table of rank 16" in (tmp_path / "b" / "MODEL_CARD.md").read_text()
    found = RUN.invoke(app, ["suggest", str(tmp_path / "b"), "-p", "new york h", "--json"])
    assert json.loads(found.stdout)["suggestions"][0]["text"].startswith("new york h")


@pytest.mark.parametrize(("arch", "method"), [("mtn", "qat"), ("transformer", "static")])
def test_a_network_that_begins_with_a_low_rank_in_every_method(
    arch: str,
    method: str,
    tiny_dataset: Path,
    tiny_settings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inc, "is_installed", lambda: False)
    more = [f"model.arch={arch}", "model.embedding_rank=12", "train.epochs=4"]
    train_model(tiny_dataset, tmp_path / "c", config=override(preset("tiny"), [*tiny_settings, *more]), device="cpu")
    manifest = write_bundle(
        tmp_path / "c",
        tmp_path / "b",
        precision="int8",
        method=method,  # type: ignore[arg-type]
        dataset=tiny_dataset,
        force=False,
        seed=1,
    )
    assert 0 < manifest["quantization"]["kl"] < 0.05
    assert manifest["quantization"]["groups"]["embedding"]["products"].keys() <= {
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
    }
    assert all(entry.ok for entry in verify_bundle(tmp_path / "b"))


def test_teachers_and_students_may_have_one(
    narrow: tuple[Path, dict[str, Any]],
    tiny_dataset: Path,
    tiny_checkpoint: Path,
    tiny_settings: list[str],
    tmp_path: Path,
) -> None:
    """States stay as wide as the layers, so that they can be compared."""
    more = ["train.epochs=1", "model.embedding_rank=6", "distill.states=0.1", "distill.sessions=0.1"]
    config = override(preset("tiny"), [*tiny_settings, *more])
    first = tmp_path / "first"
    distill_model(tiny_dataset, first, teacher=tiny_checkpoint, config=config, device="cpu")
    about = distill_model(tiny_dataset, tmp_path / "second", teacher=first, config=config, device="cpu")
    assert np.isfinite(about["distillation"]["kl"])
    assert about["distillation"]["teacher_valid_loss"] == pytest.approx(
        read_manifest(first)["training"]["valid_loss"], abs=1e-3
    )
    assert load_checkpoint(tmp_path / "second").model.embedding.weight.shape[1] == 6


def test_shares_that_make_no_sense(tiny_checkpoint: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out")
    for share in (1, -0.5, "nan"):
        assert "the share that is removed must be above 0 and below 1" in refused(
            tiny_checkpoint, *out, "--rank", share
        )
    assert "`--rank 0.01` removes none of the dimensions of its embedding, of which the network has 32" in refused(
        tiny_checkpoint, *out, "--rank", 0.01
    )
    v = load_checkpoint(tiny_checkpoint).config.model.vocab_size
    sentence = refused(tiny_checkpoint, *out, "--rank", 0.04)
    assert (
        f"`--rank 0.04` leaves 31 of 32 dimensions, and with its two maps such an embedding has {31 * (v + 64):,}"
        in (sentence)
    )
    least = -(-32 * v // (v + 64))
    assert f"in place of {32 * v:,}; give a larger share, so that fewer than {least} dimensions are left" in sentence
    assert list(tmp_path.iterdir()) == []
    report = prune(tiny_checkpoint, *out, "--rank", 1 - (least - 1) / 32)
    assert report["after"]["embedding_width"] == least - 1
    assert report["after"]["parameters"] < report["before"]["parameters"]


def test_recurrent_networks_have_none(tiny_dataset: Path, tmp_path: Path) -> None:
    small = ["model.arch=seq2seq", "model.d_model=16", "model.units=16", "train.epochs=1", "train.batch_queries=400"]
    train_model(tiny_dataset, tmp_path / "c", config=override(preset("tiny"), small), device="cpu")
    sentence = refused(tmp_path / "c", "-o", tmp_path / "out", "--rank", 0.5)
    assert "a seq2seq network has no dimensions of its embedding to remove" in sentence
    for setting, rule in (
        ("model.arch=hred", "`model.embedding_rank` is 8, and it must be 0 with model.arch hred"),
        ("model.embedding_rank=129", "`model.embedding_rank` is 129, and it must be from 0 to model.d_model (128)"),
        ("model.embedding_rank=-1", "`model.embedding_rank` is -1, and it must be from 0 to model.d_model (128)"),
    ):
        with pytest.raises(UserError) as error:
            check(override(preset("tiny"), ["model.embedding_rank=8", setting]))
        assert rule in str(error.value)


def test_without_data_tokens_count_by_the_order_of_learning(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The ends of a query and the first merges stay near what they were; the last ones pay."""
    counts = usual_counts(MIN_VOCAB + 3)
    assert counts[[BOS, EOS, MIN_VOCAB, MIN_VOCAB + 1, MIN_VOCAB + 2]].tolist() == [1, 1, 1, 1 / 2, 1 / 3]
    assert counts[PAD] == counts[100] == 1 / (MIN_VOCAB + 3)
    prune(tiny_checkpoint, "-o", tmp_path / "out", "--rank", 0.6)
    before, after = (load_checkpoint(path).model for path in (tiny_checkpoint, tmp_path / "out"))
    errors = (after.logits(torch.eye(32)) - before.logits(torch.eye(32))).norm(dim=0)
    assert errors[[BOS, EOS]].mean() < 0.5 * errors[MIN_VOCAB : MIN_VOCAB + 10].mean()
    assert errors[MIN_VOCAB : MIN_VOCAB + 10].mean() < 0.8 * errors[-50:].mean()


def test_fewer_numbers_by_what_the_rank_says() -> None:
    whole = preset("tiny").model
    narrowed = replace(whole, embedding_rank=64)
    assert count_parameters(whole) - count_parameters(narrowed) == 4096 * 64 - 2 * 64 * 128
