"""Every kind of network through every precision and method that it can have: minutes, so run with `-m slow`."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")

from export.bundle import write_bundle
from export.verify import verify_bundle
from mtn_edge.config import override, preset
from mtn_edge.training.run import train_model
from quantize import inc

NETWORKS = {
    "three levels": ["model.levels=3"],
    "cheap decoder": ["model.mixer=ssru", "model.share_decoder=true", "model.decoder_layers=2"],
    "full projection": ["model.projection=full", "model.norm=post"],
    "flat transformer with an n-gram": ["model.arch=transformer", "model.fusion=ngram"],
    "hred": ["model.arch=hred", "model.units=48"],
    "tail-lstm": ["model.arch=tail-lstm", "model.units=64"],
}
WAYS: list[dict[str, Any]] = [
    {"precision": "int4"},
    {"precision": "int8", "method": "static"},
    {"precision": "int8", "method": "qat"},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_in_every_way(
    name: str, tiny_dataset: Path, tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inc, "is_installed", lambda: False)
    config = override(preset("tiny"), [*tiny_settings, *NETWORKS[name], "train.epochs=5"])
    train_model(tiny_dataset, tmp_path / "checkpoint", config=config, device="cpu")
    recurrent = config.model.arch not in ("mtn", "transformer")
    for way in WAYS[:1] if recurrent else WAYS:
        manifest = write_bundle(
            tmp_path / "checkpoint", tmp_path / "bundle", **way, dataset=tiny_dataset, force=True, seed=1
        )
        assert manifest["quantization"]["mixed"] is False
        assert 0 < manifest["quantization"]["kl"] < 0.05
        assert all(check.ok for check in verify_bundle(tmp_path / "bundle"))
