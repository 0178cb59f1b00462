"""The part of a model repository that is peculiar to engines: the TensorRT backend's two models, and what calls them.

REPOSITORY/suggest/1/model.py                 for the Python backend: texts to tensors and back; calls the other two
REPOSITORY/suggest/1/engines/                 tokenizer, lists, block list, and a manifest of the kind `engines`
REPOSITORY/suggest-encoder/config.pbtxt       backend: "tensorrt"
REPOSITORY/suggest-encoder/1/model.plan       the encoder engine
REPOSITORY/suggest-search/...                 the search engine
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from export.tensorrt.sizes import Port, Sizes
from mtn_edge import folders
from mtn_edge.errors import UserError

PARTS = ("encoder", "search")
INSIDE = "engines"
"""Folder of the front model's files."""
_LEFT_OUT = (".engine", ".onnx", ".cache")
"""What the front model does not need of a folder of engines."""
_OWN = ("kind", "format_version", "mtn_edge_version", "files", "manifest_sha256")
_ELEMENTS = {"int64": "INT64", "uint8": "UINT8", "float32": "FP32"}
_REAL = {"fp32": "FP32", "fp16": "FP16", "int8": "FP32"}


def checked(source: Path) -> dict[str, Any]:
    """The manifest of engines that Triton can load.

    Raises:
        UserError: a file is missing, damaged or changed, or the engines are for TensorRT for RTX.
    """
    manifest = folders.read_manifest(source, "engines")
    folders.check_files(source, manifest)
    runtime = manifest["builder"]["runtime"]
    if runtime != "tensorrt":
        raise UserError(
            f"the engines in `{source}` are for `{runtime}`, and Triton's backend loads those for `tensorrt`",
            code="unsupported-engines",
            hint="build them on the server with `--builder tensorrt` or `--builder torch-tensorrt`",
        )
    return manifest


def write(source: Path, manifest: dict[str, Any], repository: Path, model_name: str) -> None:
    """Writes the two models of the TensorRT backend and the files of the one that calls them.

    Args:
        source: the engines.
        manifest: theirs.
        repository: where to; the folder of the front model's version is there.
        model_name: of the front model.
    """
    sizes = Sizes(**manifest["sizes"])
    real = _REAL[manifest["precision"]]
    for part in PARTS:
        model = repository / backend_name(model_name, part)
        (model / "1").mkdir(parents=True)
        shutil.copyfile(source / f"{part}.engine", model / "1" / "model.plan")
        (model / "config.pbtxt").write_text(config(model.name, part, sizes, real), encoding="utf-8")
    front = repository / model_name / "1"
    (front / INSIDE).mkdir()
    for name in manifest["files"]:
        if not name.endswith(_LEFT_OUT):
            shutil.copyfile(source / name, front / INSIDE / name)
    content = {key: value for key, value in manifest.items() if key not in _OWN}
    content["lineage"] = content["lineage"] | {"engines": manifest["manifest_sha256"]}
    folders.write_manifest(front / INSIDE, "engines", content)
    shutil.copyfile(Path(__file__).parent / "engines_model.py", front / "model.py")


def backend_name(model_name: str, part: str) -> str:
    """What the model of an engine is called beside the front model."""
    return f"{model_name}-{part}"


def config(name: str, part: str, sizes: Sizes, real: str) -> str:
    """The text of an engine's `config.pbtxt` (the message `ModelConfig` of Triton's `model_config.proto`).

    Triton leaves the batch out of all shapes; what is one number a key press is [1] to clients and nothing to the
    engine.

    Args:
        name: of the model.
        part: `encoder` or `search`.
        sizes: of the engines.
        real: element type of activations, as Triton names it.
    """
    memory = {name: port for name, port in sizes.search.items() if name.startswith("memory_")}
    found = {
        "tokens": Port(("batch", sizes.beam, sizes.steps), "int64"),
        "scores": Port(("batch", sizes.beam), "float32"),
        "mass": Port(("batch",), "float32"),
    }
    inputs, outputs = (sizes.encoder, memory) if part == "encoder" else (sizes.search, found)
    return f"""\
name: "{name}"
backend: "tensorrt"
max_batch_size: {sizes.max_batch}
input [{_ports(inputs, real)}
]
output [{_ports(outputs, real)}
]
instance_group [
  {{ kind: KIND_GPU count: 1 }}
]
dynamic_batching {{ }}
model_warmup [
  {{
    name: "the usual lengths"
    batch_size: 1
{_warm_up(inputs, sizes, real)}
  }}
]
"""


def _ports(ports: dict[str, Port], real: str) -> str:
    return ",".join(
        f'\n  {{ name: "{name}" data_type: TYPE_{_element(port, real)} {_dims(port)} }}' for name, port in ports.items()
    )


def _dims(port: Port) -> str:
    sides = [side if isinstance(side, int) else -1 for side in port.shape[1:]]
    return f"dims: {_listed(sides)}" if sides else "dims: [ 1 ] reshape { shape: [ ] }"


def _warm_up(ports: dict[str, Port], sizes: Sizes, real: str) -> str:
    """Zeros of the usual lengths: no state allows anything, and the engine runs all its steps all the same."""
    lines = []
    for name, port in ports.items():
        sides = [side if isinstance(side, int) else sizes.axes[side].usual for side in port.shape[1:]] or [1]
        value = f"data_type: TYPE_{_element(port, real)} dims: {_listed(sides)} zero_data: true"
        lines.append(f'    inputs {{ key: "{name}" value: {{ {value} }} }}')
    return "\n".join(lines)


def _element(port: Port, real: str) -> str:
    return real if port.element == "real" else _ELEMENTS[port.element]


def _listed(sides: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, sides))} ]"
