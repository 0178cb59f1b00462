"""A bundle on disk: opened only when every file is the one that its manifest describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtn_edge.errors import UserError
from mtn_edge.folders import check_files, read_manifest
from mtn_edge.runtime.search import Decoding

NEEDED = ("encode.onnx", "suggest.onnx", "tokenizer.json", "completions.tsv", "blocklist.txt")
"""What every bundle must hold to be run."""


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
        check_files(path, manifest)
        for name in NEEDED:
            if name not in manifest["files"]:
                raise UserError(f"`{path}` holds no `{name}`", code="incomplete", hint="make the bundle again")
        return cls(path, manifest)

    @property
    def model(self) -> dict[str, Any]:
        """The settings of the network."""
        section: dict[str, Any] = self.manifest["model"]
        return section

    @property
    def decoding(self) -> Decoding:
        """How the bundle searches."""
        return Decoding.from_manifest(self.manifest["decoding"])
