"""What a dataset, checkpoint, bundle, model repository or set of engines says about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtn_edge.folders import MANIFEST, called, check_files, read_manifest
from mtn_edge.tokenizer import Tokenizer

_SHOWN_APART = ("path", "bytes", "kind", "format_version", "mtn_edge_version", "files", "manifest_sha256")


def inspect_folder(path: Path) -> dict[str, Any]:
    """The manifest of a folder whose files are all as it says, with sums.

    Raises:
        UserError: `path` is none of ours, or a file of it is damaged.
    """
    manifest = read_manifest(path)
    check_files(path, manifest)
    return {
        "path": str(path),
        **manifest,
        "bytes": sum(entry["bytes"] for entry in manifest["files"].values()) + (path / MANIFEST).stat().st_size,
        **({} if manifest["kind"] == "repository" else {"vocabulary": _vocabulary(path / "tokenizer.json")}),
    }


def _vocabulary(file: Path) -> dict[str, int]:
    spelt = Tokenizer.load(file).token_bytes
    return {"tokens": len(spelt), "longest_token_bytes": max(map(len, spelt))}


def words(document: dict[str, Any]) -> str:
    """`inspect_folder`'s document for people."""
    title = f"{document['path']}: a {called(document['kind'])} of {_size(document['bytes'])}"
    versions = f"format version {document['format_version']}, written by mtn-edge {document['mtn_edge_version']}"
    lines = [f"{title}, {versions}", f"manifest sha256 {document['manifest_sha256']}", ""]
    shown = {name: value for name, value in document.items() if name not in _SHOWN_APART}
    facts = list(_flat("", shown))
    width = max((len(name) for name, _ in facts), default=0)
    lines += [f"{name:<{width}}  {value}" for name, value in facts]
    lines.append("")
    width = max(map(len, document["files"]), default=0)
    lines += [
        f"{name:<{width}}  {_size(entry['bytes']):>9}  {entry['sha256'][:16]}"
        for name, entry in document["files"].items()
    ]
    return "\n".join(lines)


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Nested settings as lines `section.key`."""
    if isinstance(value, dict):
        prefix = f"{name}." if name else ""
        return [line for key, inner in value.items() for line in _flat(f"{prefix}{key}", inner)]
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return [(name, _entry(item)) for item in value]
    if isinstance(value, list):
        return [(name, ", ".join(map(str, value)))]
    return [(name, "none" if value is None else str(value))]


def _entry(item: dict[str, Any]) -> str:
    """One dictionary of a list on one line; a gate as `verify` shows it."""
    if item.keys() == {"name", "ok", "value", "bound"}:
        return f"{'ok' if item['ok'] else 'FAILED'}: {item['name']}, {item['value']} ({item['bound']})"
    return ", ".join(f"{key} {inner}" for key, inner in item.items())


def _size(count: int) -> str:
    """Bytes for people, in powers of ten."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} B"
