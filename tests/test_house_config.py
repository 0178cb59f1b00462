"""Settings: TOML in and out, `--set`, and a sentence for every wrong one."""

import dataclasses
from pathlib import Path

import pytest

from mtn_edge.config import Config, check, load_config, override, preset, to_toml
from mtn_edge.errors import UserError


@pytest.mark.parametrize("name", ["tiny", "small", "base"])
def test_presets_fit_together_and_survive_toml(tmp_path: Path, name: str) -> None:
    config = check(preset(name))
    (tmp_path / "config.toml").write_text(to_toml(config))
    other = Config(model=dataclasses.replace(config.model, d_model=8, dropout=0.9))
    assert load_config(tmp_path / "config.toml", other) == config


def test_settings_of_the_command_line_win() -> None:
    config = override(preset("tiny"), ["model.d_model=64", "train.learning_rate=1e-4", "model.memory=last"])
    assert (config.model.d_model, config.train.learning_rate, config.model.memory) == (64, 1e-4, "last")
    assert config.model.ffn == preset("tiny").model.ffn


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.d_modle=1", "`model.d_modle` is not a setting; the nearest is `model.d_model`."),
        ("d_model=1", "`d_model` is not a setting; the nearest is `model.d_model`."),
        ("model.d_model", "`--set model.d_model` has no `=`"),
        ("model.d_model=many", "`model.d_model` is 'many', and it must be a whole number"),
        ("model.d_model=1.5", "must be a whole number"),
        ("model.memory=some", "`model.memory` is 'some', and it must be one of all, last"),
        ("model.heads=3", "`model.d_model` is 128, and it must be a multiple of model.heads (3)"),
        ("model.heads=0", "`model.heads` is 0, and it must be at least 1"),
        ("model.dropout=1", "`model.dropout` is 1.0, and it must be at least 0 and below 1"),
        ("train.learning_rate=0", "must be above 0"),
        ("train.learning_rate=nan", "must be above 0"),
    ],
)
def test_wrong_settings_get_one_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        check(override(preset("tiny"), [setting]))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[model", "is not valid TOML"),
        ("d_model = 3", "`d_model` in `.*` stands outside a section"),
        ("[model]\nd_model = true", "`model.d_model` is True, and it must be a whole number"),
        ("[optimizer]\nx = 1", "`optimizer.x` is not a setting"),
    ],
)
def test_wrong_files_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(UserError, match=sentence):
        load_config(tmp_path / "my.toml", preset("tiny"))
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path / "none.toml", preset("tiny"))


def test_unknown_preset() -> None:
    with pytest.raises(UserError, match=r"`--preset huge` is unknown; take one of tiny, small, base"):
        preset("huge")
