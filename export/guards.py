"""Guards of quantization: faults that pass unseen, because a model that was quantized wrongly still answers.

They look at the numbers that go into the graphs (scales, integers) and at the graphs themselves (which operator reads
which matrix), never at what was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from export.checks import Check, at_most, equal
from export.graphs import Graphs, nodes_of
from quantize.int4 import CENTRE, Int4Weight
from quantize.int8 import PAIR, Int8Weight, reach
from quantize.plan import Plan, Weights, can_be_quantized, group_of, shape_of

INTEGER_OPERATORS = {"DynamicQuantizeMatMul": "int8", "MatMulIntegerToFloat": "int8", "MatMulNBits": "int4"}
"""Operators that multiply by a quantized matrix, and its precision."""
_FLOAT = "MatMul"
_TABLE_TYPES = (onnx.TensorProto.INT8, onnx.TensorProto.FLOAT)
"""What a copy of the table can be made of; codes of four bits are unsigned bytes."""


class Product(NamedTuple):
    """A node that multiplies by a matrix of the model."""

    operator: str
    tensor: str
    """The matrix, as `export.weights.graph_tensors` names it."""


def check_quantization(graphs: Graphs, plan: Plan) -> list[Check]:
    """All guards of a quantized model.

    Args:
        graphs: what was built.
        plan: the precision that was asked for each group.
    """
    return [*_check_numbers(graphs.weights), *_check_products(graphs, plan), _check_table(graphs)]


def count_products(graphs: Graphs) -> dict[str, dict[str, int]]:
    """How many nodes multiply by matrices of each group, by operator."""
    table: dict[str, dict[str, int]] = {}
    for operator, tensor in _products(graphs):
        row = table.setdefault(group_of(tensor), {})
        row[operator] = row.get(operator, 0) + 1
    return table


def _check_numbers(weights: Weights) -> list[Check]:
    quantized = {name: weight for name, weight in weights.items() if not isinstance(weight, np.ndarray)}
    bad = [name for name, weight in quantized.items() if any(map(_is_bad, _scales(weight)))]
    dead = [name for name, weight in quantized.items() if _is_zero(weight)]
    integers = {name: weight.values for name, weight in quantized.items() if isinstance(weight, Int8Weight)}
    wide = [name for name, values in integers.items() if reach(values.astype(np.int16)).max() > PAIR]
    return [
        equal("quantized: scales that are 1 everywhere, 0 or no number", _listed(bad), "none"),
        equal("quantized: matrices that are zero everywhere", _listed(dead), "none"),
        equal("quantized: matrices whose products leave 16 bits on processors without VNNI", _listed(wide), "none"),
    ]


def _check_products(graphs: Graphs, plan: Plan) -> list[Check]:
    """Every matrix of a group is multiplied in the precision asked for the group, and in no other way."""
    only_read = {"embedding.weight"} if "scores.weight" in graphs.weights else set()  # no tied table
    asked = {
        name: plan[group_of(name)]
        for name, weight in graphs.weights.items()
        if plan[group_of(name)] != "fp32" and can_be_quantized(shape_of(weight)) and name not in only_read
    }
    found: dict[str, set[str]] = {}
    for operator, tensor in _products(graphs):
        found.setdefault(tensor, set()).add(INTEGER_OPERATORS.get(operator, "fp32"))
    wrong = sorted(name for name, precision in asked.items() if found.get(name) != {precision})
    return [equal("quantized: matrices left in another precision than asked", _listed(wrong), "none")]


def _check_table(graphs: Graphs) -> Check:
    """The embedding table lies in the graphs once, however it is laid out."""
    size = int(np.prod(shape_of(graphs.weights["embedding.weight"])))
    as_large = sum(
        int(np.prod(shape_of(weight))) == size
        for weight in graphs.weights.values()
        if not isinstance(weight, Int4Weight)
    )
    stored = sum(
        tensor.data_type in _TABLE_TYPES and int(np.prod(tensor.dims)) == size
        for model in graphs.models.values()
        for tensor in _initializers(model.graph).values()
    )
    return at_most("quantized: copies of the embedding table beside the one", stored - as_large, 0)


def _products(graphs: Graphs) -> list[Product]:
    found = []
    for model in graphs.models.values():
        stored = _initializers(model.graph)
        made_by = {output: node for node in nodes_of(model.graph) for output in node.output}
        for node in nodes_of(model.graph):
            if node.op_type not in INTEGER_OPERATORS and node.op_type != _FLOAT:
                continue
            source = node.input[1]
            while source in made_by and made_by[source].op_type in ("Transpose", "DequantizeLinear"):
                source = made_by[source].input[0]
            tensor = f"{source.rpartition('.')[0]}.weight"
            if source in stored and tensor in graphs.weights:
                found.append(Product(node.op_type, tensor))
    return found


def _initializers(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Constants of `graph` and of the graphs inside its nodes."""
    return {tensor.name: tensor for part in _graphs(graph) for tensor in part.initializer}


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _scales(weight: Int8Weight | Int4Weight) -> list[NDArray[np.float32]]:
    scales = [weight.scale]
    if isinstance(weight, Int8Weight) and weight.activation is not None:
        scales.append(np.array([weight.activation.scale], dtype=np.float32))
    return scales


def _is_bad(scale: NDArray[np.float32]) -> bool:
    return not np.isfinite(scale).all() or bool((scale <= 0).any()) or bool((scale == 1).all())


def _is_zero(weight: Int8Weight | Int4Weight) -> bool:
    if isinstance(weight, Int8Weight):
        return not weight.values.any()
    zero = CENTRE if weight.zero_point is None else weight.zero_point[..., None]
    return not (weight.codes != zero).any()


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
