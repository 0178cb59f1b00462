"""Datasets, checkpoints, bundles and the like: folders that appear whole or not at all, and know when they were hurt.

Each holds a `manifest.json` with its kind, its format version, and size and sha256 of every other file. The
manifest ends with a digest of its own bytes (computed with the digest's place filled with zeros).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, Literal, cast

from mtn_edge import __version__
from mtn_edge.errors import UserError

Kind = Literal["dataset", "checkpoint", "bundle", "repository", "engines"]
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
"""Of the manifest, in a signed bundle (see `runtime.signature`)."""
_ZEROS = "0" * 64
_MAX_MANIFEST_BYTES = 4 << 20


@contextmanager
def new_folder(path: Path, kind: Kind, *, force: bool = False) -> Iterator[Path]:
    """Yields an empty folder beside `path`; when the block ends well it becomes `path`, otherwise it is removed.

    The block must call `write_manifest` last. An existing folder is refused without `force`; with it, only a folder
    whose manifest says that this tool wrote it is replaced, and only when it holds nothing else.

    Raises:
        UserError: `path` exists and may not be replaced, or its parent cannot be written.
    """
    refuse_overwrite(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise UserError(
            f"`{path}` cannot be written ({error.strerror})", code="not-writable", hint="choose another folder with -o"
        ) from error
    work.chmod(0o755)
    try:
        yield work
        if read_manifest(work, kind) is None:
            raise RuntimeError("a folder must get its manifest before it is published")
        publish(work, path, force=force)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def refuse_overwrite(path: Path, *, force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Says early, before any work, that `path` is taken.

    Args:
        path: what is to be written.
        force: an existing folder may be replaced.
        inputs: what the command reads; it is never replaced, as it could not be made again from what comes of it.

    Raises:
        UserError: `path` exists and `force` is not given, or it is an input, or no folder that this tool wrote whole.
    """
    if not path.exists() and not path.is_symlink():
        return
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        return
    if not force:
        raise UserError(
            f"`{path}` exists already and nothing is overwritten",
            code="exists",
            hint="choose another name with -o, or replace it with --force",
        )
    if any(path.resolve() == each.resolve() for each in inputs if each is not None):
        raise UserError(
            f"`{path}` is what the command reads, so --force does not replace it",
            code="exists",
            hint="choose another name with -o",
        )
    strangers = _strangers(path)
    if strangers:
        raise UserError(
            f"`{path}` holds `{strangers[0]}`, which mtn-edge did not write, so --force does not remove it",
            code="not-ours",
            hint="choose another name with -o, or remove it yourself",
        )


def refuse_unwritable(path: Path, *, hint: str) -> None:
    """Says early, before any work, that nothing can be made at `path`, which does not exist.

    Raises:
        UserError: the nearest folder above that exists is none, or may not be written in.
    """
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"`{path}` cannot be written: nothing can be made in `{above}`", code="not-writable", hint=hint)


def publish(work: Path, path: Path, *, force: bool) -> None:
    """Moves a finished folder into place; a replaced one is removed only after the new one stands."""
    refuse_overwrite(path, force=force)
    for file in work.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
    old: Path | None = None
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
        path.rename(old / "folder")
    try:
        work.rename(path)
    except OSError:
        if old is not None:
            (old / "folder").rename(path)
        raise
    finally:
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


def write_manifest(folder: Path, kind: Kind, content: dict[str, Any]) -> None:
    """Writes `manifest.json`: `content`, the kind and versions, and size and sha256 of every file in `folder`."""
    files = {
        name: {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and (name := file.relative_to(folder).as_posix()) not in (MANIFEST, SIGNATURE)
    }
    document = {
        "kind": kind,
        "format_version": FORMAT_VERSION,
        "mtn_edge_version": __version__,
        **content,
        "files": files,
        "manifest_sha256": _ZEROS,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(text.replace(_ZEROS, digest), encoding="utf-8")


def read_manifest(folder: Path, kind: Kind | None = None) -> dict[str, Any]:
    """Reads and checks the manifest of `folder` (not its other files: `check_files`).

    Args:
        folder: a dataset, checkpoint, bundle or set of engines.
        kind: the kind that is wanted; None takes any.

    Raises:
        UserError: no such folder, no manifest (half-written or foreign), damaged, of a newer version, of another kind.
    """
    wanted = called(kind) if kind else "dataset, checkpoint or bundle"
    if not folder.exists():
        raise UserError(f"`{folder}` does not exist", code="missing", hint=f"name the folder of a {wanted}")
    if not folder.is_dir():
        raise UserError(
            f"`{folder}` is a file, not a {wanted}", code="wrong-kind", hint=f"name the folder of a {wanted}"
        )
    file = folder / MANIFEST
    if not file.is_file():
        raise UserError(
            f"`{folder}` has no {MANIFEST}: it is not a {wanted}, or it was only half written",
            code="no-manifest",
            hint="name another folder or make it again",
        )
    manifest = _parse(file)
    version, found = manifest["format_version"], manifest["kind"]
    if version > FORMAT_VERSION:
        raise UserError(
            f"`{folder}` has format version {version}, newer than {FORMAT_VERSION}, the newest that is read here",
            code="newer-version",
            hint="upgrade mtn-edge",
        )
    if kind is not None and found != kind:
        raise UserError(f"`{folder}` is a {called(found)}, not a {called(kind)}", code="wrong-kind", hint=_HINTS[kind])
    return manifest


def _parse(file: Path) -> dict[str, Any]:
    """Reads a manifest in which everything that other code relies on is of its type.

    Raises:
        UserError: it is no manifest, or not as it was written.
    """
    try:
        if file.is_symlink() or file.stat().st_size > _MAX_MANIFEST_BYTES:
            raise _damaged(file)
        raw = file.read_bytes()
        manifest = json.loads(raw)
        json.dumps(manifest, ensure_ascii=False, allow_nan=False).encode()  # lone surrogates and NaN are in none
        digest = manifest["manifest_sha256"]
        sound = (
            isinstance(manifest, dict)
            and _is_digest(digest)
            and type(manifest["format_version"]) is int
            and isinstance(manifest["kind"], str)
            and isinstance(manifest["mtn_edge_version"], str)
            and all(type(entry["bytes"]) is int and _is_digest(entry["sha256"]) for entry in manifest["files"].values())
            and hashlib.sha256(raw.replace(digest.encode(), _ZEROS.encode())).hexdigest() == digest
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file) from error
    if not sound:
        raise _damaged(file)
    return cast("dict[str, Any]", manifest)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Compares every file with its size and sha256 in the manifest.

    Raises:
        UserError: a file is missing, cut, changed or a link that leaves the folder; the sentence names it.
    """
    for name, entry in manifest["files"].items():
        parts = PurePath(name).parts
        file = folder / name
        try:
            whole = (
                not PurePath(name).is_absolute()
                and ".." not in parts
                and not _crosses_link(folder, parts)
                and file.is_file()
                and file.stat().st_size == entry["bytes"]
                and sha256_file(file) == entry["sha256"]
            )
        except OSError as error:  # a name that is too long, a file that may not be read
            raise _damaged(file) from error
        if not whole:
            raise _damaged(file)


def _crosses_link(folder: Path, parts: Sequence[str]) -> bool:
    """Whether the way from `folder` to a file in it, or the file itself, is a link."""
    return any(folder.joinpath(*parts[: depth + 1]).is_symlink() for depth in range(len(parts)))


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


_HINTS: dict[Kind, str] = {
    "dataset": "make one with `mtn-edge data prepare`",
    "checkpoint": "make one with `mtn-edge train`",
    "bundle": "make one with `mtn-edge quantize`",
    "repository": "make one with `mtn-edge export triton`",
    "engines": "make one with `mtn-edge export tensorrt`",
}


def called(kind: str) -> str:
    """What a kind of folder is called in a sentence, after `a`."""
    return "set of engines" if kind == "engines" else kind


def _damaged(file: Path) -> UserError:
    return UserError(
        f"`{file}` is missing, damaged or changed: it is not the file that the manifest describes",
        code="damaged",
        hint="copy the folder again or make it again",
    )


def _strangers(path: Path) -> list[str]:
    """What `path` holds that this tool did not write; the path's own name when it is no folder of ours."""
    if path.is_symlink() or not path.is_dir():
        return [path.name]
    try:
        listed = read_manifest(path)["files"]
    except UserError:
        return [sorted(entry.name for entry in path.iterdir())[0]]
    ours = {*listed, MANIFEST, SIGNATURE}
    return sorted(
        name
        for entry in path.rglob("*")
        if (entry.is_symlink() or not entry.is_dir())
        and (name := entry.relative_to(path).as_posix()) not in ours
        and _source_of(entry.relative_to(path)) not in ours
    )


def _source_of(file: PurePath) -> str:
    """The module that Python compiled into `file`; for any other file its own name."""
    if file.parent.name != "__pycache__" or file.suffix != ".pyc":
        return file.as_posix()
    return (file.parent.parent / f"{file.name.split('.')[0]}.py").as_posix()
