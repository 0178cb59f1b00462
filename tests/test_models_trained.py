"""Every network through the product's own path: settings, training, checkpoint, suggestions."""

import math
from pathlib import Path

import pytest

from mtn_edge.config import override, preset
from mtn_edge.decoding.open import open_suggester
from mtn_edge.training.run import train_model

SMALL = [
    *("model.d_model=32", "model.heads=2", "model.ffn=48", "model.units=48", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=6", "model.dropout=0.0", "train.label_smoothing=0.0"),
    *("train.epochs=3", "train.batch_queries=64", "train.learning_rate=1e-2", "train.warmup_steps=10"),
]


@pytest.mark.parametrize(
    ("arch", "levels"),
    [("mtn", 3), ("transformer", 2), ("seq2seq", 2), ("hred", 2), ("tail-lstm", 2)],
)
def test_it_trains_and_suggests(arch: str, levels: int, tiny_dataset: Path, tmp_path: Path) -> None:
    config = override(preset("tiny", arch), [*SMALL, f"model.levels={levels}"])
    result = train_model(tiny_dataset, tmp_path / "checkpoint", config=config, device="cpu")
    assert result["valid_loss"] < 0.5 * math.log(400), "half of what knowing nothing costs"
    with open_suggester(tmp_path / "checkpoint") as suggester:
        session = suggester.session(["new york hotels"])
        for prefix in ("", "new yo", "jaguar "):
            suggestions = session.suggest(prefix, min_probability=0).suggestions
            assert suggestions
            assert all(suggestion.text.startswith(prefix) for suggestion in suggestions)
        session.begin()
        assert session.suggest("p").suggestions
