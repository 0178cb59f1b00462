"""`history.onnx` (three levels): a session ends, and what the user's next one begins with.

Contract: inputs `session_earlier` float32 [s, d] (summaries of the sessions before) and `session_summary` float32 [d]
(of the session that ends); outputs `new_session_earlier` [s', d] and `new_session_history` [d], which `encode.onnx`
adds to every token of the next session. The summary begins at zero again, and everything else as in an empty session.

Shapes: s earlier sessions, s' the same with the one that ends, at most `max_sessions`; d width, h heads of a layer,
e width of a head.
"""

from __future__ import annotations

import numpy as np
import onnx

from export.graph_builder import FLOAT, INT64, GraphBuilder
from export.graph_layers import Layers, filled, zeros
from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, stacks
from mtn_edge.runtime.engine import IMPOSSIBLE
from quantize.plan import Weights


def build_history(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The graph of `HistoryEncoder.close`.

    Args:
        config: the model, of three levels.
        weights: its tensors, see `export.weights.graph_tensors` and `quantize.plan.apply_plan`.
    """
    graph = GraphBuilder("history")
    layers = Layers(graph, weights, head_width=head_width(config), norm=config.norm)
    d, longest = config.d_model, config.max_sessions
    before = graph.input("session_earlier", FLOAT, ["s", d])
    ended = graph.node("Unsqueeze", graph.input("session_summary", FLOAT, [d]), graph.integers(0))
    end = graph.integers(np.iinfo(np.int64).max)
    joined = graph.node("Concat", before, ended, axis=0)
    # Of more than it holds the older half is forgotten at once.
    full = graph.node("Greater", graph.node("Shape", joined, start=0, end=1), graph.integers(longest))
    forgotten = graph.node("Mul", graph.node("Cast", full, to=INT64), graph.integers(max(1, longest // 2)))
    earlier = graph.node("Slice", joined, forgotten, end, graph.integers(0))  # [s', d]
    count = graph.node("Shape", earlier, start=0, end=1)
    # The newest session has the last position.
    first = graph.node("Sub", graph.integers(longest), count)
    positions = graph.node("Slice", layers.tensor("history_positions.weight"), first, end, graph.integers(0))
    causal = graph.node("Trilu", filled(graph, IMPOSSIBLE, count, count), graph.integer(1), upper=1)
    hidden = graph.node("Unsqueeze", causal, graph.integers(0, 1))

    names = [f"history.layers.{number}" for number in range(config.history_layers)]
    rows = graph.node("Unsqueeze", earlier, graph.integers(0))
    stream = layers.begin(rows, positions, f"{names[0]}.attention_norm")
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "history.norm"]
    for name, size, following in zip(names, stacks(config)["history"], followings, strict=True):
        nothing = zeros(graph, 1, size.heads, 0, head_width(config))
        stream, _, _ = layers.encoder_layer(stream, name, following, (nothing, nothing), hidden)
    last = graph.node("Gather", stream.normed, graph.integer(-1), axis=1)  # [1, d]
    graph.output(graph.node("Squeeze", last, graph.integers(0)), "new_session_history", FLOAT, [d])
    graph.output(earlier, "new_session_earlier", FLOAT, ["s'", d])
    return graph.model()
