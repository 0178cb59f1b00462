"""Counting the operators of a graph on disk with the base install alone, whichever of two formats it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any


def operator_counter(file: Path) -> Callable[[str], int]:
    """From an operator to how many nodes of a graph are that, those inside loops included.

    Args:
        file: the graph, `.onnx` or `.ort`.
    """
    raw = file.read_bytes()
    if file.suffix == ".onnx":
        # The field of a node (number 4, text), its length and its text: parsing it needs the package `onnx`.
        return lambda operator: raw.count(bytes([4 << 3 | 2, len(operator)]) + operator.encode())
    return _ort_operators(raw).__getitem__


def _ort_operators(raw: bytes) -> Counter[str]:
    """Of a file in ONNX Runtime's format, read by the classes that the runtime's own tools read it with."""
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py import fbs

    session = fbs.InferenceSession.InferenceSession.GetRootAsInferenceSession(raw, 0)
    counts: Counter[str] = Counter()
    graphs: list[Any] = [session.Model().Graph()]
    while graphs:
        graph = graphs.pop()
        for place in range(graph.NodesLength()):
            node = graph.Nodes(place)
            counts[node.OpType().decode()] += 1
            inner = [node.Attributes(number).G() for number in range(node.AttributesLength())]
            graphs += [each for each in inner if each is not None]
    return counts
