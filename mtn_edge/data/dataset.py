"""A dataset folder, opened: its sessions, its popular queries and its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mtn_edge.folders import check_files, read_manifest
from mtn_edge.tokenizer import Tokenizer

SplitName = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class Dataset:
    """What `data prepare` wrote, checked against its manifest."""

    path: Path
    """The folder."""
    manifest: dict[str, Any]
    """Settings, counts, lineage, hashes."""
    tokenizer: Tokenizer
    """Trained on the training split."""

    @classmethod
    def open(cls, path: Path) -> Dataset:
        """Opens the dataset folder `path` and checks every file.

        Raises:
            UserError: no dataset there, or a file of it is missing or changed.
        """
        manifest = read_manifest(path, "dataset")
        check_files(path, manifest)
        return cls(path, manifest, Tokenizer.load(path / "tokenizer.json"))

    def files(self, split: SplitName) -> list[Path]:
        """The Parquet files of a split, in order."""
        return sorted((self.path / split).glob("*.parquet"))

    def sessions(self, split: SplitName) -> list[list[str]]:
        """The queries of each session, in normal form, in the order of the files: by user, then by start."""
        return self._column(split, "queries")

    def users(self, split: SplitName) -> list[int]:
        """The user of each session, in the order of `sessions`: a number without meaning outside the dataset.

        In logs without users each session has a user of its own.
        """
        return self._column(split, "user")

    def _column(self, split: SplitName, name: str) -> list[Any]:
        import pyarrow.parquet as pq

        return [value for file in self.files(split) for value in pq.read_table(file, columns=[name])[name].to_pylist()]

    def popularity(self) -> list[tuple[str, int]]:
        """Each query of the training split with its count, the most frequent first."""
        import pyarrow.parquet as pq

        table = pq.read_table(self.path / "popularity.parquet")
        return list(zip(table["query"].to_pylist(), table["count"].to_pylist(), strict=True))
