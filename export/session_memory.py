"""What a Transformer decoder reads of the session, as inputs of `suggest.onnx`.

Shapes: m tokens of the memory, r rows of a pass, h heads, e width of a head.
"""

from __future__ import annotations

from export.graph_builder import FLOAT, INT64, GraphBuilder, Shape
from export.graph_layers import Layers, zeros
from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, memory_heads


class SessionMemory:
    """Keys and values of each decoder layer, and for an MTN that sees all queries the bias by their ages.

    Args:
        layers: of the graph around the loop.
        config: the model.
    """

    def __init__(self, layers: Layers, config: ModelConfig) -> None:
        graph, distinct = layers.graph, config.decoder_weights
        shape: Shape = [distinct, memory_heads(config), "m", head_width(config)]
        keys = graph.split(graph.input("memory_keys", FLOAT, shape), distinct, axis=0)
        values = graph.split(graph.input("memory_values", FLOAT, shape), distinct, axis=0)
        self.layers = list(zip(keys, values, strict=True))
        """Keys and values [1, h, m, e] of each layer."""
        self._bias = _bias(layers) if config.arch == "mtn" and config.memory == "all" else ""

    def bias(self, graph: GraphBuilder, rows: str) -> str:
        """The bias [1, h, r, m] for `rows` [r, d] of a pass, with nodes of `graph`; empty where there is none."""
        if not self._bias:
            return ""
        count = graph.node("Shape", rows, start=0, end=1)
        one = graph.integers(1)
        return graph.node("Expand", self._bias, graph.node("Concat", one, one, count, one, axis=0))


def _bias(layers: Layers) -> str:
    """The learned number of each head for the age of each token's query: [1, h, 1, m]."""
    graph = layers.graph
    query = graph.input("memory_query", FLOAT, ["m"])
    newest = graph.node("ReduceMax", graph.node("Concat", query, zeros(graph, 1), axis=0))  # there may be no token
    age = graph.node("Cast", graph.node("Sub", newest, query), to=INT64)
    by_token = graph.node("Gather", layers.tensor("recency_positions.weight"), age)  # [m, h]
    return graph.node("Unsqueeze", graph.node("Transpose", by_token, perm=[1, 0]), graph.integers(0, 2))
