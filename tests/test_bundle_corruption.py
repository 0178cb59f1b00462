"""Bundles that were damaged on the way, or made to deceive: refused in one sentence, before any model code runs."""

import copy
import dataclasses
import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import export.golden
import mtn_edge.cli
import mtn_edge.profiling.cli
from export.verify import verify_bundle
from mtn_edge import folders
from mtn_edge.errors import UserError
from mtn_edge.folders import MANIFEST
from mtn_edge.runtime.inspection import inspect_folder
from mtn_edge.runtime.suggester import Suggester

Draw = random.Random


class ModelCodeRanError(Exception):
    pass


class PastTheChecksError(Exception):
    pass


def open_bundle(path: Path) -> None:
    Suggester.open(path).close()


def profile(path: Path) -> None:
    mtn_edge.profiling.cli.profile([path])


READERS: list[Callable[[Path], object]] = [open_bundle, verify_bundle, inspect_folder, profile]


@pytest.fixture
def no_model_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever gives a file of the bundle to a library ends in a fault that is none of ours."""

    def run(*_: object, **__: object) -> None:
        raise ModelCodeRanError

    for place in (
        "onnxruntime.InferenceSession",
        "mtn_edge.tokenizer.Tokenizer.load",
        "mtn_edge.runtime.completions.Completions.load",
        "mtn_edge.runtime.blocklist.Blocklist.load",
        "mtn_edge.profiling.cli._profile",
        "export.golden.Golden.load",
    ):
        monkeypatch.setattr(place, run)


@pytest.fixture
def box(tiny_bundle: Path, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Gives fresh copies of the bundle, one at a time."""

    def fresh() -> Path:
        shutil.rmtree(tmp_path / "box", ignore_errors=True)
        return Path(shutil.copytree(tiny_bundle, tmp_path / "box" / "bundle"))

    yield fresh
    shutil.rmtree(tmp_path / "box", ignore_errors=True)


def files(bundle: Path, draw: Draw, count: int = 1, *, at_least: int = 0) -> list[Path]:
    return draw.sample([file for file in sorted(bundle.iterdir()) if file.stat().st_size >= at_least], count)


def flip(bundle: Path, draw: Draw) -> None:
    (file,) = files(bundle, draw, at_least=1)
    raw = bytearray(file.read_bytes())
    for place in draw.sample(range(len(raw)), min(len(raw), draw.choice((1, 1, 2, 50)))):
        raw[place] ^= 1 << draw.randrange(8)
    file.write_bytes(raw)


def cut(bundle: Path, draw: Draw) -> None:
    (file,) = files(bundle, draw, at_least=1)
    raw = file.read_bytes()
    file.write_bytes(raw[: draw.choice((0, len(raw) - 1, draw.randrange(len(raw))))])


def grow(bundle: Path, draw: Draw) -> None:
    (file,) = files(bundle, draw)
    file.write_bytes(file.read_bytes() + draw.choice((b"\0", b"\n", draw.randbytes(100))))


def overwrite(bundle: Path, draw: Draw) -> None:
    (file,) = files(bundle, draw, at_least=1)
    raw = bytearray(file.read_bytes())
    place = draw.randrange(len(raw))
    raw[place : place + 64] = draw.randbytes(len(raw[place : place + 64]))
    file.write_bytes(raw)


def swap(bundle: Path, draw: Draw) -> None:
    one, two = files(bundle, draw, 2)
    (bundle / "third").write_bytes(one.read_bytes())
    one.write_bytes(two.read_bytes())
    (bundle / "third").replace(two)


def remove(bundle: Path, draw: Draw) -> None:
    files(bundle, draw)[0].unlink()


def rename(bundle: Path, draw: Draw) -> None:
    (file,) = files(bundle, draw)
    file.rename(bundle / draw.choice((f"{file.name}.part", file.name.upper() + "_", "x")))


def link(bundle: Path, draw: Draw) -> None:
    """The same bytes, but somewhere else; or nowhere."""
    (file,) = files(bundle, draw)
    outside = bundle.parent / f"outside {file.name}"
    outside.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(draw.choice((outside, Path("..") / outside.name, bundle / "nowhere", file.name)))


def not_a_file(bundle: Path, draw: Draw) -> None:
    (file,) = files(bundle, draw)
    file.unlink()
    if draw.random() < 0.5:
        file.mkdir()
    else:
        os.mkfifo(file)


DAMAGES = [flip, flip, flip, cut, grow, overwrite, swap, remove, rename, link, not_a_file]


def assert_one_sentence(error: UserError) -> None:
    assert str(error) == f"{error.message}; {error.hint}."
    assert len(str(error).splitlines()) == 1
    str(error).encode()
    assert error.code


def assert_refused(bundle: Path, what: str) -> None:
    for reader in READERS:
        with pytest.raises(UserError) as caught:
            reader(bundle)
        assert_one_sentence(caught.value)
        assert str(bundle) in str(caught.value), what


def damage(number: int, box: Callable[[], Path]) -> None:
    draw = Draw(number)
    how = draw.choice(DAMAGES)
    bundle = box()
    before = {file.name: file.read_bytes() for file in bundle.iterdir()}
    how(bundle, draw)
    same = {file.name: file.read_bytes() for file in bundle.iterdir() if file.is_file() and not file.is_symlink()}
    assert same != before or how is swap, f"{how.__name__} {number} did nothing"
    if same != before:
        assert_refused(bundle, f"{how.__name__} {number}")


def test_what_was_damaged_is_refused_before_any_of_it_is_read(box: Callable[[], Path], no_model_code: None) -> None:
    for number in range(60):
        damage(number, box)


@pytest.mark.slow
def test_a_thousand_damages_are_refused(box: Callable[[], Path], no_model_code: None) -> None:
    for number in range(1_000, 2_000):
        damage(number, box)


def resign(bundle: Path, manifest: Any) -> None:
    """Writes a manifest whose own digest is right, as somebody would who means to deceive."""
    if isinstance(manifest, dict):
        manifest = {**manifest, "manifest_sha256": "0" * 64}
    text = json.dumps(manifest).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (bundle / MANIFEST).write_text(text.replace("0" * 64, digest), encoding="utf-8")


def entry_of(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": folders.sha256_file(file)}


def escape(name: str) -> Callable[[Path, Any], None]:
    """Names a file outside the bundle, with its right size and hash."""

    def change(bundle: Path, manifest: Any) -> None:
        outside = bundle.parent / "outside"
        outside.write_bytes(b"secret")
        manifest["files"][name.format(outside=outside)] = entry_of(outside)

    return change


def linked_folder(bundle: Path, manifest: Any) -> None:
    outside = bundle.parent / "elsewhere"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    (bundle / "inner").symlink_to(outside)
    manifest["files"]["inner/file"] = entry_of(outside / "file")


def put(*path: str, value: Any) -> Callable[[Path, Any], None]:
    def change(_: Path, manifest: Any) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    return change


def nested(depth: int) -> list[Any]:
    return json.loads("[" * depth + "]" * depth)  # type: ignore[no-any-return]


LIES = {
    "a path up": escape("../outside"),
    "a path up from below": escape("x/../../outside"),
    "an absolute path": escape("{outside}"),
    "a linked folder": linked_folder,
    "an empty name": put("files", "", value={"bytes": 0, "sha256": "0" * 64}),
    "a name with NUL": put("files", "a\0b", value={"bytes": 0, "sha256": "0" * 64}),
    "a name that is no text": put("files", "\ud800", value={"bytes": 0, "sha256": "0" * 64}),
    "a name too long": put("files", "x" * 5_000, value={"bytes": 0, "sha256": "0" * 64}),
    "no hash": put("files", "encode.onnx", value={"bytes": 5}),
    "a hash that is none": put("files", "encode.onnx", "sha256", value=7),
    "no size": put("files", "encode.onnx", value={"sha256": "0" * 64}),
    "a size that is none": put("files", "encode.onnx", "bytes", value=True),
    "files as a list": put("files", value=["encode.onnx"]),
    "no files": put("files", value={}),
    "a newer version": put("format_version", value=folders.FORMAT_VERSION + 1),
    "a version that is none": put("format_version", value="1"),
    "a version with a fraction": put("format_version", value=1.5),
    "a kind that is none": put("kind", value=["bundle"]),
    "another kind": put("kind", value="checkpoint"),
    "a writer that is none": put("mtn_edge_version", value={}),
    "deep nesting": put("lineage", value="DEEP"),
    "no number": put("decoding", "beam", value=float("nan")),
    "an oversized manifest": put("lineage", value="x" * (5 << 20)),
    "levels missing": put("model", "levels", value=None),
    "a vocabulary of another size": put("model", "vocab_size", value=77),
    "a vast vocabulary": put("model", "vocab_size", value=10**15),
}
OPENED_ONLY = {"no files", "another kind", "levels missing", "a vocabulary of another size", "a vast vocabulary"}
"""Lies about what a bundle holds: `inspect`, which takes folders of any kind, may show them."""


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_refused(lie: str, box: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtn_edge.profiling.cli._profile", past)
    bundle = box()
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    LIES[lie](bundle, manifest)
    resign(bundle, manifest)
    refused = 0
    for reader in READERS:
        try:
            reader(bundle)
        except UserError as error:
            assert_one_sentence(error)
            refused += 1
        except PastTheChecksError:
            assert lie == "a vocabulary of another size"  # the measured process opens the bundle, and is refused
    if lie not in OPENED_ONLY:
        assert refused == len(READERS)
    with pytest.raises(UserError):
        open_bundle(bundle)


def past(*_: object) -> None:
    raise PastTheChecksError


def mutate(value: Any, draw: Draw) -> Any:
    """The document with one value in it changed."""
    if isinstance(value, dict | list) and value and draw.random() < 0.9:
        changed = copy.copy(value)
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if draw.random() < 0.15:
            del changed[key]
        else:
            changed[key] = mutate(value[key], draw)
        return changed
    return draw.choice((None, True, -1, 0, 1.5, 10**30, "", "x", "\ud800", [], [[]], {}, {"x": 1}, nested(50)))


def lie_at_random(number: int, bundle: Path) -> None:
    """One value of the manifest, the golden vectors or the tokenizer is another; all hashes are right."""
    draw = Draw(number)
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    name = draw.choice((MANIFEST, MANIFEST, "golden.json", "tokenizer.json"))
    if name == MANIFEST:
        manifest = mutate(manifest, draw)
    else:
        document = mutate(json.loads((bundle / name).read_bytes()), draw)
        (bundle / name).write_text(json.dumps(document), encoding="utf-8")
        manifest["files"][name] = entry_of(bundle / name)
    resign(bundle, manifest)


def read_or_refuse(number: int, box: Callable[[], Path]) -> int:
    """How many readers refused what `lie_at_random` made; anything but a list, a failed check or a sentence raises."""
    bundle = box()
    lie_at_random(number, bundle)
    refused = 0
    for reader in READERS:
        try:
            reader(bundle)
        except PastTheChecksError:
            pass
        except UserError as error:
            assert_one_sentence(error)
            refused += 1
    return refused


@pytest.fixture
def cheap_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` replays few golden vectors, and `profile` stops before its measured process."""
    monkeypatch.setattr("mtn_edge.profiling.cli._profile", past)
    check_vectors = export.golden.check_vectors

    def few(suggester: Suggester, golden: Any) -> Any:
        return check_vectors(suggester, dataclasses.replace(golden, vectors=golden.vectors[:3]))

    monkeypatch.setattr("export.golden.check_vectors", few)


def test_a_lie_at_random_is_harmless_or_refused(box: Callable[[], Path], cheap_checks: None) -> None:
    refused = [read_or_refuse(number, box) for number in range(8)]
    assert any(refused)


@pytest.mark.slow
def test_three_hundred_lies_at_random_are_harmless_or_refused(box: Callable[[], Path], cheap_checks: None) -> None:
    refused = [read_or_refuse(number, box) for number in range(1_000, 1_300)]
    assert 30 < sum(map(bool, refused)) < 300


@pytest.mark.parametrize("name", ["golden.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe", b"[" * 100_000, b"{}", b"[]", b'"x"', b"7", b"null", b'{"vectors": 3}']
)
def test_json_that_holds_something_else_is_refused(
    name: str, raw: bytes, box: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtn_edge.profiling.cli._profile", past)
    bundle = box()
    (bundle / name).write_bytes(raw)
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    manifest["files"][name] = entry_of(bundle / name)
    resign(bundle, manifest)
    readers = [verify_bundle, profile] if name == "golden.json" else [open_bundle, verify_bundle, inspect_folder]
    for reader in readers:
        with pytest.raises(UserError) as caught:
            reader(bundle)
        assert_one_sentence(caught.value)


@pytest.mark.parametrize("command", ["suggest", "verify", "inspect", "profile"])
def test_the_commands_say_one_sentence_and_no_traceback(
    command: str,
    box: Callable[[], Path],
    no_model_code: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = box()
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    LIES["a name that is no text"](bundle, manifest)
    resign(bundle, manifest)
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["mtn-edge", command, str(bundle), *more])
        with pytest.raises(SystemExit) as caught:
            mtn_edge.cli.main()
        assert caught.value.code == 1
        out, err = capsys.readouterr()
        if more:
            assert json.loads(out)["error"]["code"] == "damaged"
        else:
            assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
            assert "Traceback" not in err


def test_a_sound_bundle_passes_every_reader(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtn_edge.profiling.cli._profile", past)
    open_bundle(tiny_bundle)
    inspect_folder(tiny_bundle)
    with pytest.raises(PastTheChecksError):
        profile(tiny_bundle)
