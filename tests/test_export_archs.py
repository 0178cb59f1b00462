"""Every network through the whole line: trained, quantized to int8, verified, asked."""

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("lightning", reason="networks are trained with the extra [train]")

from export.bundle import write_bundle
from export.verify import verify_bundle
from mtn_edge.config import override, preset
from mtn_edge.decoding.open import open_suggester
from mtn_edge.runtime.lists import NO_MIXING
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.training.run import train_model

NETWORKS = {
    "transformer": ["model.arch=transformer"],
    "seq2seq": ["model.arch=seq2seq", "model.units=48"],
    "hred": ["model.arch=hred", "model.units=48"],
    "tail-lstm": ["model.arch=tail-lstm", "model.units=64"],
    "three levels": ["model.levels=3"],
    "fusion": ["model.fusion=all", "train.ngram_mb=0.05"],
    "flat transformer with an n-gram": ["model.arch=transformer", "model.fusion=ngram"],
    "three levels that copy": ["model.levels=3", "model.fusion=copy"],
    "cheap decoder": ["model.mixer=ssru", "model.share_decoder=true", "model.decoder_layers=2"],
}


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_a_network_becomes_a_bundle_that_suggests_what_it_learnt(
    settings: list[str], tiny_dataset: Path, tiny_settings: list[str], tmp_path: Path
) -> None:
    config = override(preset("tiny"), [*tiny_settings, *settings, "train.epochs=8"])
    train_model(tiny_dataset, tmp_path / "checkpoint", config=config, device="cpu")
    write_bundle(
        tmp_path / "checkpoint", tmp_path / "bundle", precision="int8", dataset=tiny_dataset, force=False, seed=1
    )
    failed = [check for check in verify_bundle(tmp_path / "bundle") if not check.ok]
    assert not failed

    bundle, checkpoint = Suggester.open(tmp_path / "bundle"), open_suggester(tmp_path / "checkpoint")
    alone = {"mix_complete": NO_MIXING, "mix_suggest": NO_MIXING}  # a checkpoint has no lists
    bundle.search.decoding = dataclasses.replace(bundle.search.decoding, **alone)
    asked = (["new york hotels"], "new"), (["jaguar price", "jaguar dealer"], "n"), ([], "東")
    for session, typed in asked:
        found, wanted = (
            {s.text: s.score for s in one.session(session).suggest(typed, 8, min_probability=0).suggestions}
            for one in (bundle, checkpoint)
        )
        assert wanted[max(found, key=found.get)] > max(wanted.values()) - 0.3  # type: ignore[arg-type]
        assert all(text.startswith(typed) for text in found)
