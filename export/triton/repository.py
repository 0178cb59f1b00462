"""`export triton`: a model repository for NVIDIA's Triton Inference Server, with a bundle or engines in it.

REPOSITORY/manifest.json            of all files
REPOSITORY/client_example.py
REPOSITORY/suggest/config.pbtxt     inputs, outputs, instances, warm-up
REPOSITORY/suggest/warmup/          the warm-up's texts
REPOSITORY/suggest/1/model.py       for the Python backend
REPOSITORY/suggest/1/bundle/        as it was, byte for byte, its signature too

Of engines there are two models more, see `export.triton.engines`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from export.checks import require
from export.triton import engines
from export.verify import verify_bundle
from mtn_edge import folders
from mtn_edge.errors import UserError
from mtn_edge.runtime.bundle import Bundle

MODEL_NAME = "suggest"
VERSION = "1"
MAX_BATCH = 64
"""Rows of one request, and requests that are handed to an instance at once."""
_HERE = Path(__file__).parent
_NAME = re.compile("[A-Za-z0-9_][A-Za-z0-9_-]*")
_MAY_LACK = " optional: true allow_ragged_batch: true"
_WARM_UP = {"session": "weather", "typed": "w"}
"""Texts of the request that each instance answers before it is ready."""


def export_triton(
    source: Path, out: Path, *, model_name: str = MODEL_NAME, instances: int = 1, force: bool = False
) -> dict[str, Any]:
    """Writes a model repository.

    Args:
        source: a bundle, or engines that TensorRT built.
        out: folder to write.
        model_name: what clients call the model.
        instances: processes that answer; each holds the bundle (of engines the lists) and uses one core.
        force: replace a repository that stands at `out`.

    Returns:
        The manifest of the repository.

    Raises:
        UserError: `source` is neither or is damaged; Triton cannot load such engines; `model_name` is no name; `out`
            exists.
        GateError: the bundle does not pass `verify`.
    """
    folders.refuse_overwrite(out, force=force, inputs=(source,))
    if _NAME.fullmatch(model_name) is None:
        raise UserError(
            f"`--model-name {model_name}` is no name: letters, digits, `_` and `-` make one",
            code="bad-setting",
            hint="give another",
        )
    match folders.read_manifest(source)["kind"]:
        case "bundle":
            bundle = Bundle.open(source)
            require(verify_bundle(source), "the bundle does not pass `verify`")
            manifest, most = bundle.manifest, MAX_BATCH
        case "engines":
            manifest = engines.checked(source)
            most = manifest["sizes"]["max_batch"]
        case kind:
            raise UserError(
                f"`{source}` is of the kind `{kind}`, and a model repository is made from a bundle or from engines",
                code="wrong-kind",
                hint="make one with `mtn-edge quantize` or `mtn-edge export tensorrt`",
            )
    with folders.new_folder(out, "repository", force=force) as folder:
        model = folder / model_name
        (model / VERSION).mkdir(parents=True)
        if manifest["kind"] == "bundle":
            _copy_bundle(bundle, model / VERSION / "bundle")
            shutil.copyfile(_HERE / "model.py", model / VERSION / "model.py")
        else:
            engines.write(source, manifest, folder, model_name)
        text = config(model_name, instances, most)
        if manifest["kind"] == "bundle":  # a model in front of others must not call them before all are loaded
            text += _warm_up(model)
        (model / "config.pbtxt").write_text(text, encoding="utf-8")
        example = (_HERE / "client_example.py").read_text(encoding="utf-8")
        named = example.replace(f'MODEL = "{MODEL_NAME}"', f'MODEL = "{model_name}"')
        (folder / "client_example.py").write_text(named, encoding="utf-8")
        content = {
            "model_name": model_name,
            "instances": instances,
            "max_batch_size": most,
            "lineage": {manifest["kind"]: manifest["manifest_sha256"]},
        }
        folders.write_manifest(folder, "repository", content)
        return folders.read_manifest(folder, "repository")


def _copy_bundle(bundle: Bundle, folder: Path) -> None:
    names = [*bundle.manifest["files"], folders.MANIFEST]
    if (bundle.path / folders.SIGNATURE).is_file():
        names.append(folders.SIGNATURE)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundle.path / name, folder / name)


def config(model_name: str, instances: int, max_batch: int = MAX_BATCH) -> str:
    """The text of `config.pbtxt` without the warm-up (the message `ModelConfig` of Triton's `model_config.proto`).

    Requests with sessions of different lengths are handed over together: the model reads each by itself.
    """
    inputs = [
        *(_port("TYPED", "STRING", 1), _port("SESSION", "STRING", -1, _MAY_LACK)),
        *(_port("COUNT", "INT32", 1, _MAY_LACK), _port("DEADLINE_MS", "FP32", 1, _MAY_LACK)),
    ]
    outputs = [
        *(_port("TEXTS", "STRING", -1), _port("SCORES", "FP64", -1)),
        *(_port("SOURCES", "STRING", -1), _port("REASON", "STRING", 1)),
    ]
    return f"""\
name: "{model_name}"
backend: "python"
max_batch_size: {max_batch}
input [{", ".join(inputs)}
]
output [{", ".join(outputs)}
]
instance_group [
  {{ kind: KIND_CPU count: {instances} }}
]
dynamic_batching {{ }}
"""


def _warm_up(model: Path) -> str:
    """Writes the texts of the warm-up beside the configuration, of which it returns the last part."""
    (model / "warmup").mkdir()
    for name, text in _WARM_UP.items():
        (model / "warmup" / name).write_bytes(len(text).to_bytes(4, "little") + text.encode())
    return """\
model_warmup [
  {
    name: "a key press"
    batch_size: 1
    inputs { key: "TYPED" value: { data_type: TYPE_STRING dims: [1] input_data_file: "typed" } }
    inputs { key: "SESSION" value: { data_type: TYPE_STRING dims: [1] input_data_file: "session" } }
  }
]
"""


def _port(name: str, element: str, size: int, more: str = "") -> str:
    return f'\n  {{ name: "{name}" data_type: TYPE_{element} dims: [{size}]{more} }}'
