"""A bundle on disk: opened only when every file is the one that its manifest describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtn_edge.errors import UserError
from mtn_edge.folders import MANIFEST, check_files, read_manifest
from mtn_edge.runtime import completions
from mtn_edge.runtime.engine import graph_file
from mtn_edge.runtime.lists import FOLLOWERS
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.signature import check_signature, load_public_key

GRAPHS = ("encode", "suggest")
NEEDED = ("tokenizer.json", completions.FILE, FOLLOWERS, "blocklist.txt")
"""What every bundle must hold to be run, beside its graphs."""
_LARGEST_SIZE = 1 << 20
_SIZES = ("vocab_size", "d_model", "heads", "session_layers", "decoder_layers", "max_tokens", "max_queries")


@dataclass(frozen=True)
class Bundle:
    """A checked bundle."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path, *, key: Path | None = None) -> Bundle:
        """Checks the signature when there is a `key`, the manifest, and size and sha256 of every file.

        Args:
            path: the folder.
            key: file of the public key of whoever must have signed the bundle.

        Raises:
            UserError: `path` is no bundle, is of a newer version, a file is missing or damaged (it is named), or it is
                not signed with the key.
        """
        if key is not None:
            check_signature(path, load_public_key(key))
        manifest = read_manifest(path, "bundle")
        if not _is_model(manifest.get("model")):
            raise UserError(
                f"the `model` section of `{path / MANIFEST}` lacks a setting, or one is out of range",
                code="bad-manifest",
                hint="make the bundle again",
            )
        check_files(path, manifest)
        graphs = (*GRAPHS, "history") if manifest["model"]["levels"] == 3 else GRAPHS
        for name in (*NEEDED, *(graph_file(path, graph).name for graph in graphs)):
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
        graphs = {name: entry for name, entry in self.manifest["files"].items() if name.endswith((".onnx", ".ort"))}
        check_files(self.path, {"files": graphs})

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
    if not all(isinstance(size, int) and 1 <= size <= _LARGEST_SIZE for size in sizes):
        return False
    fits = section["d_model"] % section["heads"] == 0 and section["max_queries"] >= 2
    return fits and section.get("memory") in ("all", "last") and section.get("levels") in (2, 3)
