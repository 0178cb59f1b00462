"""Recipes: what they say, what they refuse, and how the points of a search come out of them."""

import dataclasses
import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.compress.recipe import DEFAULT_SPACE, SHIPPED, Recipe, load_recipe, read_recipe
from mtn_edge.config import override, preset
from mtn_edge.errors import UserError
from quantize.prune_steps import Shares


def read(text: str) -> Recipe:
    return read_recipe(tomllib.loads(text), "test")


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize("name", ["phone", "phone-tiny", "server"])
def test_shipped_recipes_are_read_by_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert len(recipe.points) == 1
    assert recipe.budgets.size_mb
    assert recipe.budgets.max_quality_drop
    assert {file.stem for file in SHIPPED.iterdir()} == {"phone", "phone-tiny", "server"}


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(UserError, match="phone, phone-tiny, server"):
        load_recipe("fone")


def test_a_folder_does_not_hide_a_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`export mobile -o phone` is in the README."""
    monkeypatch.chdir(tmp_path)
    Path("phone").mkdir()
    assert load_recipe("phone").budgets.size_mb == 5


@pytest.mark.parametrize("name", ["", ".", "x" * 5000])
def test_what_is_no_file_is_said(name: str) -> None:
    with pytest.raises(UserError, match="nor a file that can be read"):
        load_recipe(name)


def test_brackets_without_end_are_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 20_000, encoding="utf-8")
    with pytest.raises(UserError, match="not valid TOML"):
        load_recipe(str(file))


def test_tables_become_the_settings_of_a_student() -> None:
    (point,) = read(
        '[student]\npreset = "small"\n[student.model]\ndecoder_layers = 1\nshare_decoder = true\n'
        "[student.distill]\ntruth = 0.25\n"
    ).points
    assert point.student is not None
    config = point.student.config()
    assert (config.model.d_model, config.model.decoder_layers, config.model.share_decoder) == (256, 1, True)
    assert config.distill is not None
    assert config.distill.truth == 0.25
    assert point.prune is None


def test_a_student_is_trained_as_its_teacher_was_unless_the_recipe_says_otherwise() -> None:
    settings = [
        "train.epochs=3",
        "train.learning_rate=0.5",
        "train.average=0.9",
        "model.dropout=0.3",
        "model.d_model=64",
    ]
    teacher = override(preset("small"), [*settings, "model.max_tokens=20", "train.bpe_dropout=0.1"])
    (point,) = read("[student]\npasses = 2\n[student.train]\naverage = 0.8\n").points
    assert point.student is not None
    config = point.student.config(teacher)
    assert (config.train.epochs, config.train.average, config.train.bpe_dropout) == (6, 0.8, 0.0)
    assert config.train.learning_rate == preset("tiny").train.learning_rate
    assert (config.model.dropout, config.model.max_tokens, config.model.d_model) == (0.3, 20, 128)


def test_budgets_alone_search_the_default_space() -> None:
    recipe = read("[budgets]\nsize_mb = 2\n")
    assert len(recipe.points) == math.prod(map(len, DEFAULT_SPACE.values()))
    assert len({point.name for point in recipe.points}) == len(recipe.points)
    for point in recipe.points:
        assert point.student is not None
        assert point.student.config().model.d_model == point.choice["student.model.d_model"]
        assert point.quantize.precision == point.choice["quantize.precision"]


def test_everything_that_prune_removes_can_be_asked_for() -> None:
    (point,) = read('[prune]\nrank = 0.5\nsparsity = "2:4"\n').points
    assert point.prune is not None
    assert (point.prune.rank, point.prune.sparsity) == (0.5, "2:4")
    assert set(Shares._fields) <= {field.name for field in dataclasses.fields(point.prune)}
    assert "must be a number" in refused('[prune]\nsparsity = "1:2"\n')


def test_a_list_of_shares_may_begin_with_nothing() -> None:
    recipe = read('[search.space]\n"prune.ffn" = [0, 0.5]\n"quantize.precision" = ["int8"]\n')
    assert [point.prune and point.prune.ffn for point in recipe.points] == [None, 0.5]
    assert "removes nothing" in refused("[prune]\nffn = 0\n")


def test_with_a_quantize_section_alone_the_teacher_itself_is_quantized() -> None:
    (point,) = read('[quantize]\nprecision = "int4"\n').points
    assert (point.student, point.prune, point.quantize.precision) == (None, None, "int4")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True), st.floats(0, 0.9))
def test_every_combination_is_a_point(layers: list[int], share: float) -> None:
    recipe = read_recipe(
        {
            "student": {"preset": "tiny"},
            "search": {
                "space": {"student.model.decoder_layers": layers, "prune.ffn": [share / 2 + 0.01, share + 0.02]}
            },
        },
        "test",
    )
    found = [(point.student.config().model.decoder_layers, point.prune.ffn) for point in recipe.points]  # type: ignore[union-attr]
    assert found == [(count, ffn) for count in layers for ffn in (share / 2 + 0.01, share + 0.02)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[budget]\nsize_mb = 5\n", "`budget` in the recipe is not a setting; the nearest is `budgets`."),
        ("[budgets]\nsize = 5\n", "the nearest is `budgets.size_mb`"),
        ("[student.model]\ndecoder_layer = 1\n", "the nearest is `student.model.decoder_layers`"),
        ("[student]\ndropout = 1\n", "`student.dropout` in the recipe is not a setting"),
        ('[search.space]\n"student.model.dmodel" = [1]\n', "the nearest is `search.space.student.model.d_model`"),
        ('[search.space]\n"budgets.size_mb" = [1]\n', "`search.space.budgets.size_mb` in the recipe is not a setting"),
        ("[search]\nspace = [1]\n", "`search.space` in the recipe is [1], and it must be a table: [search.space]"),
        ('[search.space]\n"prune.ffn.x" = [1]\n[prune]\nffn = 0.5\n', "the nearest is `search.space.prune.ffn`"),
        ("[search.space]\nprune.ffn = [0.5]\n", "names are quoted there"),
        ("[search]\ntime = 3\n", "the nearest is `search.time_limit`"),
        ("budgets = 3\n", "must be a table: [budgets]"),
        ("[student]\nmodel = 3\n", "must be a table: [student.model]"),
        ('target = "watch"\n', "must be one of phone, server"),
        ('[budgets]\nsize_mb = "5"\n', "`budgets.size_mb` in the recipe is '5', and it must be a number"),
        ("[budgets]\nsize_mb = true\n", "must be a number"),
        ("[budgets]\nsize_mb = -1\n", "must be at least 0"),
        ("[budgets]\nsize_mb = inf\n", "finite"),
        ("[budgets]\nsize_mb = nan\n", "must be a number"),
        ("[budgets]\nmax_quality_drop = 3\n", "a share below 1: 0.03 is 3 %"),
        ("[prune]\nrounds = 1.5\nffn = 0.5\n", "must be a whole number"),
        ("[student]\npasses = 0\n", "`student.passes` in the recipe is 0, and it must be at least 1"),
        ("[prune]\nffn = 1.0\n", "at least 0 and below 1"),
        ('[prune]\nsparsity = "1:4"\n', "must be a number or 2:4"),
        ("[prune]\nrounds = 1\n", "`[prune]` removes nothing"),
        ("[prune]\nffn = 0.5\nrounds = 0\n", "at least 1"),
        ('[quantize]\nprecision = "int2"\n', "must be one of int4, int8, fp32"),
        ('[quantize]\nprecision = "int4"\nmethod = "qat"\n', "dynamic with quantize.precision int4"),
        ('[quantize]\nprecision = "fp32"\nmax_drop = 0.1\n', "with int8 or int4"),
        ("[budgets]\nmax_quality_drop = 0.01\n[quantize]\nmax_drop = 0.05\n", "lets quantization alone lose more"),
        ('[search]\ntime_limit = "soon"\n', "is no time"),
        ('[search.space]\n"prune.ffn" = []\n', "must be a list of values"),
        ("[student.model]\nd_model = 33\n", "a multiple of model.heads"),
        ('[student]\npreset = "huge"\n', "must be one of tiny, small, base"),
    ],
)
def test_what_is_wrong_is_named(text: str, sentence: str) -> None:
    assert sentence in refused(text)
