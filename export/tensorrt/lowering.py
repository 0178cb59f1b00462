"""From a network to an exported program and to ONNX, with the batch and all that grows with a request left open."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from export.tensorrt.networks import Lowered
from export.tensorrt.sizes import Sizes
from mtn_edge.errors import missing_extra

OPSET = 20
_ELEMENTS = {"int64": torch.int64, "uint8": torch.uint8, "float32": torch.float32}
_EXAMPLE = {"batch": 2, "queries": 3, "settled": 3, "states": 12}
"""Lengths of the dynamic axes in the inputs that a network is traced with; neither 0 nor 1, which tracing takes for
constants."""


def require_onnxscript() -> None:
    """Says early that ONNX cannot be written.

    Raises:
        UserError: the package that PyTorch writes it with is missing.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "tensorrt", "writing the engines' ONNX")


def example(lowered: Lowered, sizes: Sizes, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Inputs of a network, of ones."""
    real = next(part.dtype for part in lowered.network.parameters() if part.is_floating_point())
    lengths = {name: min(_EXAMPLE.get(name, 3 * sizes.max_tokens), axis.most) for name, axis in sizes.axes.items()}
    return tuple(
        torch.ones(
            [lengths[side] if isinstance(side, str) else side for side in port.shape],
            dtype=_ELEMENTS.get(port.element, real),
            device=device,
        )
        for port in lowered.ports.values()
    )


def exported(lowered: Lowered, sizes: Sizes, device: str = "cpu") -> torch.export.ExportedProgram:
    """The network as a program of PyTorch's own operators."""
    open_axes = {
        name: torch.export.Dim(name, min=axis.least, max=axis.most)
        for name, axis in sizes.axes.items()
        if axis.least < axis.most
    }
    shapes = tuple(
        {place: open_axes[side] for place, side in enumerate(port.shape) if side in open_axes}
        for port in lowered.ports.values()
    )
    with torch.no_grad():
        return torch.export.export(lowered.network, example(lowered, sizes, device), dynamic_shapes=shapes)


def write_onnx(program: torch.export.ExportedProgram, lowered: Lowered, path: Path) -> None:
    """Writes a program as ONNX, weights inside.

    Args:
        program: of `lowered`.
        lowered: the network.
        path: the file.

    Raises:
        UserError: a package is missing.
    """
    require_onnxscript()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
        made: Any = torch.onnx.export(
            program,
            input_names=list(lowered.ports),
            output_names=list(lowered.outputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    made.save(str(path), external_data=False)


def check_onnx(path: Path, lowered: Lowered) -> list[str]:
    """What an ONNX file has otherwise than its network: a name, or an axis that was frozen or opened."""
    import onnx

    graph = onnx.load(str(path)).graph
    found = {entry.name: _sides(entry) for entry in graph.input}
    wanted = {
        name: [side if isinstance(side, int) else None for side in port.shape] for name, port in lowered.ports.items()
    }
    wrong = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    outputs: Sequence[str] = [entry.name for entry in graph.output]
    return wrong + sorted(set(outputs) ^ set(lowered.outputs))


def _sides(entry: Any) -> list[int | None]:
    """The sides of an input; None for a dynamic one."""
    return [None if side.dim_param else side.dim_value for side in entry.type.tensor_type.shape.dim]
