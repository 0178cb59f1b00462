"""The graphs of a model: built, counted, saved; and what a reduced ONNX Runtime needs to run them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from export.encode_graph import build_encode
from export.history_graph import build_history
from export.suggest_graph import STEP, build_suggest
from export.weights import graph_tensors
from mtn_edge.config import ModelConfig
from mtn_edge.models.fusion import Sources
from mtn_edge.ngram.model import NGram
from quantize.int8 import Activation
from quantize.plan import Plan, Precision, Weights, apply_plan, precision_of


@dataclass(frozen=True)
class Graphs:
    """The graphs of one model in one precision."""

    models: dict[str, onnx.ModelProto]
    """`encode`, `suggest`, and with three levels `history`."""
    weights: Weights
    ngram: NGram | None

    @property
    def precision(self) -> dict[str, Precision]:
        """What each group of tensors is stored as."""
        return precision_of(self.weights)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, the tied table once, and of the n-gram."""
        ngram = self.ngram.nbytes if self.ngram is not None else 0
        return sum(weight.nbytes for weight in self.weights.values()) + ngram

    def save(self, folder: Path) -> None:
        """Writes a file for each; the table is in `suggest.onnx` alone."""
        for name, graph in self.models.items():
            (folder / f"{name}.onnx").write_bytes(graph.SerializeToString(deterministic=True))

    def operators(self) -> dict[str, dict[str, int]]:
        """How often each operator occurs in each graph, loop bodies included."""
        return {
            name: dict(sorted(Counter(node.op_type for node in nodes_of(model.graph)).items()))
            for name, model in self.models.items()
        }

    def step_nodes(self) -> int:
        """Nodes that one step of the search runs."""
        loops = [node.attribute[0].g for node in self.models["suggest"].graph.node if node.op_type == "Loop"]
        (step,) = (body for body in loops if body.name == STEP)
        return len(step.node)

    def required_operators(self) -> str:
        """The configuration of a reduced ONNX Runtime build: `domain;opset;operator,operator...` a line."""
        needed: dict[tuple[str, int], set[str]] = defaultdict(set)
        for model in self.models.values():
            opsets = {entry.domain: entry.version for entry in model.opset_import}
            for node in nodes_of(model.graph):
                needed[node.domain or "ai.onnx", opsets[node.domain]].add(node.op_type)
        lines = [f"{domain};{opset};{','.join(sorted(names))}" for (domain, opset), names in sorted(needed.items())]
        return "# Operators of the graphs, for --include_ops_by_config\n" + "\n".join(lines) + "\n"


def build_graphs(
    state: Mapping[str, NDArray[np.float32]],
    config: ModelConfig,
    plan: Plan,
    sources: Sources | None = None,
    activations: Mapping[str, Activation] | None = None,
) -> Graphs:
    """Lowers a model.

    Args:
        state: tensors of `MTN.state_dict()` by name.
        config: the model they belong to.
        plan: precision of each tensor group, see `quantize.plan.uniform_plan`.
        sources: what the model is mixed with.
        activations: how inputs of int8 matrices are quantized, by the matrix; None for the range of each input.

    Raises:
        UserError: a weight holds NaN or cannot be quantized.
    """
    gate = sources.gate.state_dict() if sources is not None else {}
    tensors = {**state, **{f"gate.{name}": tensor.numpy() for name, tensor in gate.items()}}
    weights = apply_plan(graph_tensors(tensors, config), plan, activations)
    models = {"encode": build_encode(config, weights), "suggest": build_suggest(config, weights, sources)}
    if config.levels == 3:
        models["history"] = build_history(config, weights)
    return Graphs(models, weights, sources.ngram if sources is not None else None)


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes of `graph` and of the graphs inside its nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)
