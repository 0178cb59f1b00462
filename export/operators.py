"""What a graph on disk holds, read with the base install alone, whichever of two formats it has.

Of `.onnx` the few fields that matter are read here (protocol buffers, `onnx.proto`); of `.ort` by the classes that
ONNX Runtime's own tools read it with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SMALL_BYTES = 1024
"""Tensors below this may be alike by chance or be written twice with no harm."""
_MODEL_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_OPERATOR, _ATTRIBUTE = 4, 5
_TENSOR, _GRAPH = 5, 6
_RAW = 9


@dataclass
class Contents:
    """Of one graph, those inside loops included.

    Attributes:
        operators: how many nodes there are of each kind.
        tensors: the bytes of each constant that holds any.
    """

    operators: Counter[str] = field(default_factory=Counter)
    tensors: list[bytes] = field(default_factory=list)


def read_graph(file: Path) -> Contents:
    """Reads a graph, `.onnx` or `.ort`, that ONNX Runtime has opened."""
    raw, found = file.read_bytes(), Contents()
    if file.suffix == ".onnx":
        for number, value in _fields(raw):
            if number == _MODEL_GRAPH:
                _read_onnx(value, found)
    else:
        from onnxruntime.tools.ort_format_model.ort_flatbuffers_py import fbs

        _read_ort(fbs.InferenceSession.InferenceSession.GetRootAsInferenceSession(raw, 0).Model().Graph(), found)
    return found


def bytes_stored_twice(graphs: list[Contents]) -> int:
    """Bytes of large constants that hold the numbers of another one, in whatever order: a transposed copy is one."""
    seen: set[bytes] = set()
    twice = 0
    for tensor in (tensor for graph in graphs for tensor in graph.tensors):
        if len(tensor) < SMALL_BYTES or tensor == tensor[:4] * (len(tensor) // 4):  # one number again and again
            continue
        numbers = np.bincount(np.frombuffer(tensor, dtype=np.uint8), minlength=256).tobytes()
        twice += len(tensor) * (numbers in seen)
        seen.add(numbers)
    return twice


def _read_onnx(graph: bytes, found: Contents) -> None:
    for number, value in _fields(graph):
        if number == _INITIALIZER:
            _read_tensor(value, found)
        elif number == _NODE:
            for part, content in _fields(value):
                if part == _OPERATOR:
                    found.operators[content.decode()] += 1
                elif part == _ATTRIBUTE:
                    _read_attribute(content, found)


def _read_attribute(attribute: bytes, found: Contents) -> None:
    for number, value in _fields(attribute):
        if number == _GRAPH:
            _read_onnx(value, found)
        elif number == _TENSOR:
            _read_tensor(value, found)


def _read_tensor(tensor: bytes, found: Contents) -> None:
    found.tensors += [value for number, value in _fields(tensor) if number == _RAW]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length: number and content."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        match key & 7:
            case 0:
                _, place = _varint(message, place)
            case 1:
                place += 8
            case 2:
                length, place = _varint(message, place)
                yield key >> 3, message[place : place + length]
                place += length
            case 5:
                place += 4
            case kind:
                raise ValueError(f"a field of kind {kind} is none of a graph's")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value, shift = 0, 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _read_ort(graph: Any, found: Contents) -> None:
    for place in range(graph.InitializersLength()):
        tensor = graph.Initializers(place)
        if tensor.RawDataLength():
            found.tensors.append(tensor.RawDataAsNumpy().tobytes())
    for place in range(graph.NodesLength()):
        node = graph.Nodes(place)
        found.operators[node.OpType().decode()] += 1
        for number in range(node.AttributesLength()):
            inner = node.Attributes(number).G()
            if inner is not None:
                _read_ort(inner, found)
