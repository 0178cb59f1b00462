"""A bundle on disk: opened only when every file is the one that its manifest describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtn_edge.errors import UserError
from mtn_edge.folders import MANIFEST, check_files, read_manifest
from mtn_edge.runtime import completions
from mtn_edge.runtime.lists import FOLLOWERS
from mtn_edge.runtime.search import Decoding

GRAPHS = ("encode.onnx", "suggest.onnx")
NEEDED = (*GRAPHS, "tokenizer.json", completions.FILE, FOLLOWERS, "blocklist.txt")
"""What every bundle must hold to be run."""
_SIZES = ("vocab_size", "d_model", "heads", "session_layers", "decoder_layers", "max_tokens", "max_queries")


@dataclass(frozen=True)
class Bundle:
    """A checked bundle."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Checks the manifest and size and sha256 of every file.

        Raises:
            UserError: `path` is no bundle, is of a newer version, or a file is missing or damaged (it is named).
        """
        manifest = read_manifest(path, "bundle")
        if not _is_model(manifest.get("model")):
            raise UserError(
                f"the `model` section of `{path / MANIFEST}` lacks a setting, or one is out of range",
                code="bad-manifest",
                hint="make the bundle again",
            )
        check_files(path, manifest)
        for name in NEEDED:
            if name not in manifest["files"]:
                raise UserError(f"`{path}` holds no `{name}`", code="incomplete", hint="make the bundle again")
        return cls(path.absolute(), manifest)

    def check_unchanged(self) -> None:
        """Compares the manifest and the graphs with what was opened.

        Raises:
            UserError: another bundle has taken the place of this one, or a graph is missing, damaged or changed.
        """
        if read_manifest(self.path, "bundle")["manifest_sha256"] != self.manifest["manifest_sha256"]:
            raise UserError(
                f"`{self.path}` has been replaced by another bundle since it was opened",
                code="changed",
                hint="open it again",
            )
        check_files(self.path, {"files": {name: self.manifest["files"][name] for name in GRAPHS}})

    @property
    def model(self) -> dict[str, Any]:
        """The settings of the network."""
        section: dict[str, Any] = self.manifest["model"]
        return section

    @property
    def decoding(self) -> Decoding:
        """How the bundle searches."""
        return Decoding.from_manifest(self.manifest.get("decoding"))


def _is_model(section: Any) -> bool:
    """Whether a `model` section holds what the engine reads."""
    if not isinstance(section, dict):
        return False
    sizes = [section.get(name) for name in _SIZES]
    if not all(isinstance(size, int) and size >= 1 for size in sizes):
        return False
    fits = section["d_model"] % section["heads"] == 0 and section["max_queries"] >= 2
    return fits and section.get("memory") in ("all", "last")
