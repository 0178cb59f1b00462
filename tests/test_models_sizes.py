"""Networks of equal size: the presets, and the helper that finds sizes for other vocabularies."""

import dataclasses

import pytest

from mtn_edge.config import preset
from mtn_edge.models.build import build, count_parameters, match_parameters

RIVALS = ("transformer", "seq2seq", "hred", "tail-lstm")


@pytest.mark.parametrize("arch", RIVALS)
@pytest.mark.parametrize("name", ["tiny", "small", "base"])
def test_a_rival_has_as_many_parameters_as_the_mtn(name: str, arch: str) -> None:
    config = preset(name, arch).model
    assert config.arch == arch
    assert count_parameters(config) == pytest.approx(count_parameters(preset(name).model), rel=0.02)


@pytest.mark.parametrize("arch", ["mtn", *RIVALS])
def test_counting_is_what_building_gives(arch: str) -> None:
    config = dataclasses.replace(preset("tiny", arch).model, vocab_size=300)
    assert count_parameters(config) == sum(parameter.numel() for parameter in build(config).parameters())


@pytest.mark.parametrize("arch", RIVALS)
@pytest.mark.parametrize("vocab_size", [500, 2_000, 16_384])
def test_sizes_are_found_for_other_vocabularies(arch: str, vocab_size: int) -> None:
    wanted = count_parameters(dataclasses.replace(preset("tiny").model, vocab_size=vocab_size))
    config = dataclasses.replace(preset("tiny", arch).model, vocab_size=vocab_size)
    matched = match_parameters(config, wanted)
    assert count_parameters(matched) == pytest.approx(wanted, rel=0.01)
    smaller, larger = (
        dataclasses.replace(matched, ffn=matched.ffn + step, units=matched.units + step) for step in (-1, 1)
    )
    assert count_parameters(smaller) < wanted < count_parameters(larger)


def test_what_is_out_of_reach_gets_the_smallest_size() -> None:
    assert match_parameters(preset("tiny", "hred").model, 10).units == 1
