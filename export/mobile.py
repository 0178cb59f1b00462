"""A bundle for a device: in ONNX Runtime's own format for a reduced runtime, and signed where it must be trusted.

The `.ort` format is what reduced builds of ONNX Runtime read. The table is not folded into a second, transposed copy,
as the optimizer would: the file stays as small as the graph, and the runtime transposes it at each key press.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from export.checks import require
from export.contract import contract
from export.verify import verify_bundle
from mtn_edge import folders
from mtn_edge.errors import UserError
from mtn_edge.runtime.bundle import Bundle
from mtn_edge.runtime.signature import load_private_key, sign

OPERATORS = "required_operators.config"
OPERATORS_AND_TYPES = "required_operators_and_types.config"
_OWN = ("kind", "format_version", "mtn_edge_version", "files", "manifest_sha256")


def export_mobile(
    source: Path,
    out: Path,
    *,
    ort_format: bool,
    dataset: Path | None = None,
    sign_with: Path | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Copies a bundle, converted and signed as asked, and verifies the copy.

    Args:
        source: a bundle; of a checkpoint an int8 bundle is made first.
        out: folder to write.
        dataset: for the bundle of a checkpoint, see `export.bundle.write_bundle`.
        ort_format: write `.ort` graphs in place of `.onnx`.
        sign_with: file of a private key to sign the manifest with; a signature of the source is never kept.
        force: replace a bundle that stands at `out`.

    Returns:
        The manifest of the copy.

    Raises:
        UserError: `source` is neither, is damaged, or is in that format already; `out` exists; the key is none.
        GateError: the copy does not pass `verify`.
    """
    folders.refuse_overwrite(out, force=force, inputs=(source, dataset))
    key = load_private_key(sign_with) if sign_with is not None else None
    if folders.read_manifest(source)["kind"] == "checkpoint":
        from export.bundle import write_bundle

        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / "bundle"
            write_bundle(source, made, precision="int8", dataset=dataset, force=False, seed=1)
            return export_mobile(made, out, ort_format=ort_format, sign_with=sign_with, force=force)
    bundle = Bundle.open(source)
    graphs = [name.removesuffix(".onnx") for name in contract(bundle.model)]
    if ort_format and f"{graphs[0]}.ort" in bundle.manifest["files"]:
        raise UserError(
            f"the graphs of `{source}` are in ONNX Runtime's format already",
            code="already-ort",
            hint="leave --ort-format out",
        )
    with folders.new_folder(out, "bundle", force=force) as folder:
        content = copied(source, folder, but=[f"{name}.onnx" for name in graphs] if ort_format else ())
        if ort_format:
            for name in graphs:
                _convert(bundle.path / f"{name}.onnx", folder / f"{name}.ort")
            _write_operators_and_types(folder)
            content["sizes"] = content["sizes"] | {"graphs": sum(_bytes(folder / f"{name}.ort") for name in graphs)}
        content["lineage"] = content["lineage"] | {"bundle": bundle.manifest["manifest_sha256"]}
        folders.write_manifest(folder, "bundle", content)
        require(verify_bundle(folder), "the exported bundle does not pass `verify`")
        if key is not None:
            sign(folder, key)
        return folders.read_manifest(folder, "bundle")


def copied(source: Path, folder: Path, *, but: Collection[str] = ()) -> dict[str, Any]:
    """Copies the files of a bundle, all but some.

    Returns:
        What its manifest says, for `folders.write_manifest`.
    """
    manifest = folders.read_manifest(source, "bundle")
    for name in manifest["files"]:
        if name not in but:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / name)
    return {key: value for key, value in manifest.items() if key not in _OWN}


def _convert(onnx: Path, ort: Path) -> None:
    """Writes a graph in ONNX Runtime's format, with the optimizations that hold on any processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(ort)
    options.add_session_config_entry("session.save_model_format", "ORT")
    # Folding would store the embedding table twice, as it is and transposed.
    onnxruntime.InferenceSession(
        str(onnx), options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )


def _write_operators_and_types(folder: Path) -> None:
    """What a reduced build must contain, with the element types of each operator, from the converted graphs."""
    from onnxruntime.tools.ort_format_model import create_config_from_models

    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "config"
        logging.getLogger("ort_format_model.utils").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the library leaves closing its files to the collector
            create_config_from_models(sorted(folder.glob("*.ort")), config, True)
        lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#"))  # comments that name files of this machine
    (folder / OPERATORS_AND_TYPES).write_text(text, encoding="utf-8")


def _bytes(file: Path) -> int:
    return file.stat().st_size
