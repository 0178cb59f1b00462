"""The file of an n-gram: what is written comes back, and what does not fit is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="n-grams are safetensors files")

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from mtn_edge.errors import UserError
from mtn_edge.ngram.counting import count
from mtn_edge.ngram.file import NAME, facts, load, save
from mtn_edge.ngram.model import NGram
from mtn_edge.ngram.pruning import fit
from mtn_edge.tokenizer import Tokenizer

TEXTS = ["rome hotels", "rome hotels cheap", "paris hotels", "rome weather"] * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngram")
    Tokenizer.train(TEXTS, 262).save(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> NGram:
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    encoded = tokenizer.encode_batch(TEXTS)
    tokens = np.array([token for query in encoded for token in query])
    return fit(count(tokens, np.cumsum([0, *map(len, encoded)])), len(tokenizer))


@pytest.fixture
def file(model: NGram, folder: Path, tmp_path: Path) -> Path:
    save(model, tmp_path / NAME, folder / "tokenizer.json")
    return tmp_path / NAME


def test_what_is_written_comes_back(model: NGram, folder: Path, file: Path) -> None:
    again = load(file, folder / "tokenizer.json")
    assert np.array_equal(again.unigram, model.unigram)
    for mine, other in zip(again.levels, model.levels, strict=True):
        for left, right in zip(mine, other, strict=True):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
    before = file.read_bytes()
    save(again, file, folder / "tokenizer.json")
    assert file.read_bytes() == before
    assert 0 < len(before) - model.nbytes < 2000


@pytest.mark.parametrize("order", [2, 3])
def test_a_row_may_be_wide_and_an_order_low(folder: Path, tmp_path: Path, order: int) -> None:
    tokens = np.arange(3, 262)
    made = fit(
        count(np.stack([np.full(259, 5), tokens], 1).ravel(), np.arange(0, 519, 2), order), 262, most_followers=None
    )
    save(made, tmp_path / NAME, folder / "tokenizer.json")
    again = load(tmp_path / NAME, folder / "tokenizer.json")
    assert len(again.levels) == order - 1
    assert again.levels[0].sizes.max() == 260
    assert again.levels[0].sizes.dtype == np.uint16


def test_facts_are_contexts_entries_and_bytes(model: NGram) -> None:
    found = facts(model)
    assert found["bytes"] == model.nbytes == sum(order["bytes"] for order in found["orders"])
    assert [order["order"] for order in found["orders"]] == [1, 2, 3, 4]
    for order, level in zip(found["orders"][1:], model.levels, strict=True):
        assert order["entries"] == len(level.tokens)
        assert order["contexts"] == (level.sizes > 0).sum() > 0
        assert order["longest"] == level.sizes.max()


def test_another_tokenizer_is_refused(folder: Path, file: Path, tmp_path: Path) -> None:
    Tokenizer.train(["quite another text"] * 3, 262).save(tmp_path / "tokenizer.json")
    with pytest.raises(
        UserError, match=r"was counted in the tokens of another tokenizer than .*; build the n-gram from"
    ):
        load(file, tmp_path / "tokenizer.json")


def rewrite(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    arrays = load_file(file)
    with safe_open(file, framework="numpy") as opened:
        about = json.loads(opened.metadata()["about"])
    change(arrays, about)
    save_file(arrays, file, {"about": json.dumps(about)})


def test_a_newer_version_is_refused(folder: Path, file: Path) -> None:
    rewrite(file, lambda _, about: about.update(format_version=2))
    with pytest.raises(UserError, match="has format version 2, newer than 1, the newest that is read here; upgrade"):
        load(file, folder / "tokenizer.json")


def put(name: str, place: int, value: float) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda arrays, _: arrays[name].__setitem__(place, value)


DAMAGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "no description": lambda _, about: about.clear(),
    "no version": lambda _, about: about.pop("format_version"),
    "a version in words": lambda _, about: about.update(format_version="first"),
    "no tokenizer": lambda _, about: about.pop("tokenizer_sha256"),
    "an order too many": lambda _, about: about.update(order=5),
    "another vocabulary": lambda _, about: about.update(vocab_size=263),
    "no single tokens": lambda arrays, _: arrays.pop("unigram"),
    "single tokens above one": put("unigram", 5, 0.7),
    "not a number": put("unigram", 5, float("nan")),
    "a level gone": lambda arrays, _: arrays.pop("codes.3"),
    "a row too long": put("sizes.2", 1, 200),
    "a token beyond the vocabulary": put("tokens.3", 0, 60_000),
    "a token twice": lambda arrays, _: arrays["tokens.2"].__setitem__(1, arrays["tokens.2"][0]),
    "a share above one": put("values.4", 0, 1.5),
    "shares that are too much": lambda arrays, _: arrays["values.2"].fill(0.9),
    "a share that is no number": put("values.4", 255, float("nan")),
    "another type": lambda arrays, _: arrays.update({"codes.2": arrays["codes.2"].astype(np.int64)}),
    "another shape": lambda arrays, _: arrays.update({"codes.2": arrays["codes.2"][None]}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(folder: Path, file: Path, damage: str) -> None:
    rewrite(file, DAMAGES[damage])
    with pytest.raises(UserError, match=r"`.*ngram.safetensors` is no readable n-gram \(.*\); copy it again or build"):
        load(file, folder / "tokenizer.json")


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_another_file_and_half_a_file_are_refused(folder: Path, file: Path, content: bytes | None) -> None:
    file.write_bytes(file.read_bytes()[:-10] if content is None else content)
    with pytest.raises(UserError, match="is no readable n-gram"):
        load(file, folder / "tokenizer.json")
    with pytest.raises(UserError, match="is no readable n-gram"):
        load(file.with_name("none"), folder / "tokenizer.json")
