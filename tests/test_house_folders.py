"""Folders appear whole or not at all, are never overwritten unasked, and notice every changed byte."""

import json
from pathlib import Path

import pytest

from mtn_edge import folders
from mtn_edge.errors import UserError


def make(path: Path, *, force: bool = False, text: str = "hello") -> Path:
    with folders.new_folder(path, "dataset", force=force) as work:
        (work / "train").mkdir()
        (work / "train" / "a.txt").write_text(text)
        folders.write_manifest(work, "dataset", {"seed": 7})
    return path


def test_folder_appears_whole(tmp_path: Path) -> None:
    manifest = folders.read_manifest(make(tmp_path / "new"), "dataset")
    assert manifest["seed"] == 7
    assert manifest["files"]["train/a.txt"]["bytes"] == 5
    folders.check_files(tmp_path / "new", manifest)
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


def test_nothing_is_left_when_the_work_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with folders.new_folder(tmp_path / "new", "dataset") as work:
            (work / "half").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_is_refused_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    make(tmp_path / "new")
    with pytest.raises(UserError, match=r"exists already and nothing is overwritten"):
        make(tmp_path / "new", text="other")
    assert (tmp_path / "new/train/a.txt").read_text() == "hello"
    make(tmp_path / "new", text="other", force=True)
    assert (tmp_path / "new/train/a.txt").read_text() == "other"
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("stranger", ["notes.txt", "train/notes.txt"])
def test_force_never_removes_what_the_tool_did_not_write(tmp_path: Path, stranger: str) -> None:
    make(tmp_path / "new")
    (tmp_path / "new" / stranger).write_text("mine")
    with pytest.raises(UserError, match=r"which mtn-edge did not write"):
        make(tmp_path / "new", force=True)
    assert (tmp_path / "new" / stranger).read_text() == "mine"


def test_force_refuses_a_foreign_folder_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("home", "file"):
        with pytest.raises(UserError, match="did not write"):
            make(tmp_path / name, force=True)
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_every_byte_of_the_manifest_and_of_the_files_counts(tmp_path: Path) -> None:
    folder = make(tmp_path / "new")
    for name in ("manifest.json", "train/a.txt"):
        good = (folder / name).read_bytes()
        for place in range(len(good)):
            (folder / name).write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            with pytest.raises(UserError, match=name.split("/")[-1]):
                folders.check_files(folder, folders.read_manifest(folder, "dataset"))
        (folder / name).write_bytes(good)
    folders.check_files(folder, folders.read_manifest(folder, "dataset"))


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: path.parent, "does not exist"),
        (lambda path: path.write_text("x"), "is a file, not a"),
        (lambda path: path.mkdir(), "only half written"),
    ],
)
def test_what_is_not_a_folder_of_ours_is_said(tmp_path: Path, prepare: object, sentence: str) -> None:
    prepare(tmp_path / "it")  # type: ignore[operator]
    with pytest.raises(UserError, match=sentence):
        folders.read_manifest(tmp_path / "it", "bundle")


def test_wrong_kind_and_newer_version_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is a dataset, not a bundle; make one with `mtn-edge quantize`"):
        folders.read_manifest(make(tmp_path / "old"), "bundle")
    monkeypatch.setattr(folders, "FORMAT_VERSION", 2)
    newer = make(tmp_path / "newer")
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"format version 2, newer than 1.*upgrade mtn-edge"):
        folders.read_manifest(newer)


def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "new")
    (tmp_path / "secret").write_text("hello")
    entry = json.loads((folder / "manifest.json").read_text())["files"]["train/a.txt"]
    for name in ("../secret", str(tmp_path / "secret")):
        with pytest.raises(UserError, match="missing, damaged or changed"):
            folders.check_files(folder, {"files": {name: entry}})
