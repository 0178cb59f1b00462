"""Trained weights as users have them: a checkpoint in PyTorch and its int8 bundle, which must be whole to be opened."""

import itertools
import json
import math
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from mtn_edge.decoding.open import open_suggester
from mtn_edge.errors import UserError
from mtn_edge.folders import write_manifest
from mtn_edge.runtime.blocklist import fold
from mtn_edge.runtime.bundle import Bundle
from mtn_edge.runtime.lists import NO_MIXING, Mixing
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import DENIED, DOUBTFUL, Suggester
from mtn_edge.text import normalize


@pytest.fixture(scope="module", params=["bundle", "checkpoint"])
def opened(request: pytest.FixtureRequest) -> Suggester:
    return open_suggester(request.getfixturevalue(f"tiny_{request.param}"))


@pytest.mark.parametrize("earlier", [[], ["paris hotels", "paris weather", "paris news today"]])
@pytest.mark.parametrize(
    ("typed", "end"), [("restau", "restaurants near me"), ("RESTAURANTS n", "RESTAURANTS near me")]
)
def test_a_prefix_may_end_inside_a_token(opened: Suggester, earlier: list[str], typed: str, end: str) -> None:
    texts = [found.text for found in opened.session(earlier).suggest(typed).suggestions]
    assert end in texts
    assert all(text.startswith(typed) for text in texts)


def test_the_session_counts_beyond_its_last_query(opened: Suggester) -> None:
    car, animal = (
        [found.text for found in opened.session(earlier).suggest("ja").suggestions]
        for earlier in (
            ["jaguar price", "jaguar dealer", "near me"],
            ["jaguar habitat", "jaguar food", "near me"],
        )
    )
    assert car[0] == "jaguar test drive"
    assert animal[0] == "jaguar pictures"


def test_every_key_press_of_real_queries_keeps_the_rules(opened: Suggester) -> None:
    session = opened.session(["new york hotels"])
    for query in ("Naïve Café", "new york jobs 🎉", "東京 weather", "москва hotels", "jaguar test  drive", "приве́т"):
        for end in range(len(query) + 1):
            typed = query[:end]
            result = session.suggest(typed, 8)
            texts = [found.text for found in result.suggestions]
            assert all(text.startswith(typed) for text in texts)
            assert len({fold(text) for text in (*texts, typed)}) == len(texts) + 1
            assert all(normalize(text)[-1:] == text[-1:] for text in texts)
            assert result.reason is not None or len(texts) == 8
            assert result.reason is None or sum(found.source == "model" for found in result.suggestions) < 8


def test_a_bundle_fills_up_from_its_popular_queries(tiny_bundle: Path) -> None:
    result = open_suggester(tiny_bundle).session().suggest("jaguar ", 100)
    popular = {found.text for found in result.suggestions if found.source == "completions"}
    everything = {found.text for found in result.suggestions}
    assert result.reason is not None
    assert {"jaguar price", "jaguar habitat", "jaguar pictures"} <= everything
    assert not popular - {"jaguar " + word for word in ("price", "dealer", "test drive", "habitat", "food", "pictures")}


def test_bundle_and_checkpoint_give_like_lists(tiny_bundle: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    alone = with_decoding(tiny_bundle, tmp_path / "alone", **NO_LISTS)  # a checkpoint has no lists
    for earlier, typed in ([], "new y"), (["paris hotels"], "par"), (["jaguar price"], "jaguar d"):
        int8, fp32 = (
            {
                found.text: found.score
                for found in suggester.session(earlier).suggest(typed, 5, min_probability=0).suggestions
            }
            for suggester in (alone, open_suggester(tiny_checkpoint))
        )
        first = next(iter(int8))
        assert first == next(iter(fp32))
        assert int8[first] == pytest.approx(fp32[first], abs=0.2)


def test_eight_threads_on_one_bundle_get_what_one_gets_again_and_again(tiny_bundle: Path) -> None:
    suggester = Suggester.open(tiny_bundle)
    sessions = ([], ["paris hotels"], ["jaguar price", "near me"])
    asked = list(itertools.product(range(3), ("", "n", "new y", "par", "PARIS ", "jag", "東", "москва h", "zz")))
    opened = [suggester.session(queries) for queries in sessions]
    right = {(place, typed): opened[place].suggest(typed, 6).suggestions for place, typed in asked}
    wrong: list[tuple[int, str]] = []

    def work(seed: int) -> None:
        own = [suggester.session(queries) for queries in sessions]
        for place, typed in random.Random(seed).sample(asked * 4, 4 * len(asked)):
            if own[place].suggest(typed, 6, deadline_ms=60_000).suggestions != right[place, typed]:
                wrong.append((place, typed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []


def test_a_flipped_byte_or_a_missing_file_is_named(tiny_bundle: Path, tmp_path: Path) -> None:
    names = [file.name for file in tiny_bundle.iterdir()]
    assert len(names) >= 8
    for name in names:
        broken = tmp_path / "broken"
        shutil.copytree(tiny_bundle, broken)
        file = broken / name
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2 : len(raw) // 2 + 1] = bytes([raw[len(raw) // 2] ^ 1]) if raw else b"x"
        file.write_bytes(raw)
        with pytest.raises(UserError, match=f"`{file}`"):
            Suggester.open(broken)
        file.unlink()
        with pytest.raises(UserError, match=name):
            Suggester.open(broken)
        shutil.rmtree(broken)


def test_what_is_no_bundle_is_refused(
    tiny_dataset: Path, tiny_checkpoint: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"is a dataset, not a bundle or checkpoint; make a checkpoint of it"):
        open_suggester(tiny_dataset)
    with pytest.raises(UserError, match="is a checkpoint, not a bundle"):
        Suggester.open(tiny_checkpoint)
    with pytest.raises(UserError, match="does not exist"):
        open_suggester(tmp_path / "none")
    shutil.copytree(tiny_bundle, tmp_path / "less")
    manifest = json.loads((tmp_path / "less" / "manifest.json").read_text())
    (tmp_path / "less" / "suggest.onnx").unlink()
    write_manifest(tmp_path / "less", "bundle", {"model": manifest["model"], "decoding": manifest["decoding"]})
    with pytest.raises(UserError, match=r"less` holds no `suggest.onnx`"):
        Bundle.open(tmp_path / "less")
    (tmp_path / "less" / "suggest.onnx").write_bytes(b"no graph")
    write_manifest(tmp_path / "less", "bundle", {"model": manifest["model"], "decoding": manifest["decoding"]})
    with pytest.raises(UserError, match=r"suggest.onnx` cannot be loaded by ONNX Runtime"):
        Suggester.open(tmp_path / "less")


@pytest.mark.parametrize("planted", ["encode.ort", "suggest.ort", "history.ort", "history.onnx"])
def test_a_graph_that_the_manifest_does_not_know_is_never_opened(
    planted: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    """A file in ONNX Runtime's own format would be preferred, and a model of three levels has one graph more."""
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    manifest = json.loads((copy / "manifest.json").read_text())
    model = manifest["model"] | ({"levels": 3} if planted.startswith("history") else {})
    write_manifest(copy, "bundle", {"model": model, "decoding": manifest["decoding"]})
    shutil.copy(copy / "encode.onnx", copy / planted)
    with pytest.raises(UserError, match=rf"bundle` holds no `{planted}`"):
        Bundle.open(copy)


NO_LISTS = {"mix_complete": list(NO_MIXING), "mix_suggest": list(NO_MIXING)}


def with_decoding(bundle: Path, copy: Path, **changed: Any) -> Suggester:
    """`bundle` with other settings in its manifest."""
    shutil.copytree(bundle, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    decoding = {**manifest["decoding"], **changed}
    write_manifest(copy, "bundle", {"model": manifest["model"], "decoding": decoding})
    return Suggester.open(copy)


def test_the_settings_of_the_search_are_those_of_the_manifest(tiny_bundle: Path, tmp_path: Path) -> None:
    written = json.loads((tiny_bundle / "manifest.json").read_text())["decoding"]
    mixing = {name: Mixing(*written.pop(name)) for name in ("mix_complete", "mix_suggest")}
    assert Suggester.open(tiny_bundle).search.decoding == Decoding(**written, **mixing)
    other = with_decoding(
        tiny_bundle,
        tmp_path / "other",
        beam=3,
        max_steps=6,
        min_probability_complete=0.25,
        min_probability_suggest=0.125,
        length_normalization=0.5,
        mix_complete=[0.1, 0.2, 3.0],
        mix_suggest=[0.0, 0.4, 5.0],
    )
    mixing = Mixing(0.1, 0.2, 3.0), Mixing(0.0, 0.4, 5.0)
    assert other.search.decoding == Decoding(3, 6, 0.25, 0.125, 0.5, *mixing)


def test_the_floor_of_a_bundle_leaves_out_what_is_doubtful(tiny_bundle: Path, tmp_path: Path) -> None:
    floors = {"min_probability_complete": 0.2, "min_probability_suggest": 0.1, **NO_LISTS}
    session = with_decoding(tiny_bundle, tmp_path / "floor", **floors).session(["paris weather"])
    for typed, least in (("", 0.1), ("paris ", 0.2), ("ja", 0.2), ("b", 0.2)):
        result = session.suggest(typed, 8)
        own = [found for found in result.suggestions if found.source == "model"]
        assert all(found.score > math.log(least) for found in own)
        assert result.reason == DOUBTFUL
        free = session.suggest(typed, 8, min_probability=0).suggestions
        likely = [found for found in free if found.source == "model" and found.score > math.log(least) + 0.1]
        assert {found.text for found in likely} <= {found.text for found in own}
        assert len([found for found in free if found.source == "model"]) > len(own)


def test_the_length_normalization_of_a_bundle_ranks_longer_texts_higher(tiny_bundle: Path, tmp_path: Path) -> None:
    settings = {"min_probability_complete": 0.0, "length_normalization": 0.0, **NO_LISTS}
    plain = with_decoding(tiny_bundle, tmp_path / "plain", **settings)
    ranked = with_decoding(tiny_bundle, tmp_path / "ranked", **{**settings, "length_normalization": 3.0})
    moved = 0
    for typed in ("n", "paris ", "jaguar ", "new york "):
        before, after = (opened.session(["paris weather"]).suggest(typed, 8).suggestions for opened in (plain, ranked))
        before, after = ([found for found in x if found.source == "model"] for x in (before, after))
        assert {found.text: found.score for found in before} == {found.text: found.score for found in after}
        assert [found.score for found in before] == sorted((found.score for found in before), reverse=True)
        moved += [found.text for found in before] != [found.text for found in after]
    assert moved


def test_the_block_list_of_a_bundle_is_obeyed(tiny_bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "denied"
    shutil.copytree(tiny_bundle, copy)
    (copy / "blocklist.txt").write_text("jaguar\n", encoding="utf-8")
    manifest = json.loads((copy / "manifest.json").read_text())
    write_manifest(copy, "bundle", {"model": manifest["model"], "decoding": manifest["decoding"]})
    session = Suggester.open(copy).session()
    assert not any("jaguar" in found.text.split() for found in session.suggest("ja", 50).suggestions)
    assert session.suggest("JAGUAR ").reason == DENIED


def test_a_block_list_beside_the_bundle_is_edited_while_it_is_open(tiny_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("")
    with Suggester.open(tiny_bundle, blocklist=file) as suggester:
        session = suggester.session(["paris hotels"])
        before = session.suggest("ja", 5)
        assert any("jaguar" in found.text.split() for found in before.suggestions)
        file.write_text("Jaguar\n")
        after = session.suggest("ja", 5)
        assert not any("jaguar" in found.text.split() for found in after.suggestions)
        assert session.suggest("jaguar p").reason == DENIED
        file.write_text("jaguar price\n")
        texts = [found.text for found in session.suggest("jaguar p", 5).suggestions]
        assert "jaguar pictures" in texts
        assert "jaguar price" not in texts
    with pytest.raises(UserError, match=r"the block list `.*none` cannot be read"):
        Suggester.open(tiny_bundle, blocklist=tmp_path / "none")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        *(("decoding", key, value) for key in ("beam", "max_steps") for value in (None, 0, -1, "eight", [8])),
        *(("decoding", "min_probability_complete", value) for value in (None, -0.1, 1, 2, "x")),
        *(("decoding", "length_normalization", value) for value in (None, -1, 1e9)),
        *(("model", key, value) for key in ("vocab_size", "heads", "max_tokens") for value in (None, 0, "x")),
        *(("model", "max_queries", 1), ("model", "heads", 5), ("model", "memory", "odd")),
        *((section, None, value) for section in ("model", "decoding") for value in (None, [1])),
    ],
)
def test_a_manifest_without_sound_settings_is_refused(
    tiny_bundle: Path, tmp_path: Path, section: str, key: str | None, value: object
) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    content = {name: manifest[name] for name in ("model", "decoding")}
    changed = content if key is None else content[section]
    changed[key or section] = value
    write_manifest(copy, "bundle", content)
    with pytest.raises(UserError, match=rf"`{section}` section of .* lacks a setting, or one is out of range"):
        Suggester.open(copy)
    del changed[key or section]
    write_manifest(copy, "bundle", content)
    with pytest.raises(UserError, match=rf"`{section}` section of .* lacks a setting, or one is out of range"):
        Suggester.open(copy)


def test_settings_of_the_search_that_are_not_known_yet_are_left_alone(tiny_bundle: Path, tmp_path: Path) -> None:
    opened = with_decoding(tiny_bundle, tmp_path / "newer", something_new=3)
    assert opened.search.decoding == Suggester.open(tiny_bundle).search.decoding
