"""`encode.onnx`: one more query of a session, at the price of one query encoding.

Contract: input `embedded` float32 [t, d] (the query's tokens, from `suggest.onnx`, which alone holds the table), and
the parts of the session's state that it needs (`export.contract.state_parts`); outputs `new_` and the name of each
part. For the MTN `session_keys` and `session_values` float32 [Ls, h, q, e] (q = queries so far with the start query, 0
for the start query itself) become [Ls, h, q + 1, e]; `memory_keys` and `memory_values` float32 [Ld, h, m, e] grow by t
tokens (memory `all`, with `memory_query` [m], the number of each token's query) or are replaced by them (`last`);
`memory_state` [d] is replaced. With three levels
`session_history` [d] of the user's earlier sessions is read, and `session_summary` [d] of this one grows. A model that
copies also takes the query as `tokens` int64 [t] and keeps the session's text, `memory_text` int64.

Shapes: t tokens, m tokens of the memory, T token positions, q queries so far, Ls session layers, Ld decoder layers
with weights of their own, d width, h heads of the stack at
hand, e width of a head.
"""

from __future__ import annotations

import onnx

from export import rival_encoders
from export.fusion_graph import add_text
from export.graph_builder import FLOAT, GraphBuilder, Shape
from export.graph_layers import Layers
from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, memory_heads, stacks
from quantize.plan import Weights


def build_encode(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The graph of a network's `append`.

    Args:
        config: the model.
        weights: its tensors, see `export.weights.graph_tensors` and `quantize.plan.apply_plan`.
    """
    graph = GraphBuilder("encode")
    layers = Layers(graph, weights, head_width=head_width(config), norm=config.norm)
    graph.input("embedded", FLOAT, ["t", config.d_model])
    match config.arch:
        case "mtn":
            _encode_mtn(layers, config)
        case "transformer":
            rival_encoders.encode_transformer(layers, config, weights)
        case "seq2seq":
            rival_encoders.encode_seq2seq(layers, config, weights)
        case "hred":
            rival_encoders.encode_hred(layers, config)
        case "tail-lstm":
            rival_encoders.encode_tail_lstm(layers, config)
    if config.fusion in ("copy", "all"):
        add_text(graph)
    return graph.model()


def _encode_mtn(layers: Layers, config: ModelConfig) -> None:
    graph, e = layers.graph, head_width(config)
    session_heads = stacks(config)["session"][0].heads
    cache_shape: Shape = [config.session_layers, session_heads, "q", e]
    session_keys = graph.input("session_keys", FLOAT, cache_shape)
    session_values = graph.input("session_values", FLOAT, cache_shape)

    count = graph.node("Shape", "embedded", start=0, end=1)  # [1]
    encoded = _encode_query(layers, config, "embedded", count)  # [1, t, d]
    summary = _project(layers, config, encoded, count)  # [1, d]
    state, new_keys, new_values = _encode_session(layers, config, summary, session_keys, session_values)
    if config.levels == 3:
        _summarize(layers, config, state, session_keys)
        state = graph.node("Add", state, graph.input("session_history", FLOAT, [config.d_model]))
    if config.refinement == "encoder":
        # The fused sum and normalisation does not broadcast.
        refined = _read(layers, config, encoded, graph.node("Expand", state, graph.node("Shape", encoded)))
    else:
        refined = graph.node("Add", encoded, state)
    graph.output(graph.node("Squeeze", state, graph.integers(0, 1)), "new_memory_state", FLOAT, [config.d_model])
    if config.memory == "all":
        # The number of the query, for each of its tokens.
        number = graph.node("Cast", graph.node("Shape", session_keys, start=2, end=3), to=FLOAT)
        queries = graph.node(
            "Concat", graph.input("memory_query", FLOAT, ["m"]), graph.node("Expand", number, count), axis=0
        )
        graph.output(queries, "new_memory_query", FLOAT, ["m + t"])
    memory_shape: Shape = [config.decoder_weights, memory_heads(config), "m", e]
    new_memory_shape: Shape = [config.decoder_weights, memory_heads(config), "m + t", e]
    for name, new in zip(("memory_keys", "memory_values"), layers.memory(refined, config.decoder_weights), strict=True):
        if config.memory == "all":
            new = graph.node("Concat", graph.input(name, FLOAT, memory_shape), new, axis=2)
        graph.output(new, f"new_{name}", FLOAT, new_memory_shape)
    new_shape: Shape = [config.session_layers, session_heads, "q + 1", e]
    graph.output(_stack(graph, new_keys), "new_session_keys", FLOAT, new_shape)
    graph.output(_stack(graph, new_values), "new_session_values", FLOAT, new_shape)


def _summarize(layers: Layers, config: ModelConfig, state: str, session_keys: str) -> None:
    """What the third level keeps of the open session, after this query: `session_summary` [d] grows by its part."""
    graph, d = layers.graph, config.d_model
    position = graph.node("Shape", session_keys, start=2, end=3)
    weight = graph.node("Gather", layers.tensor("projection.history"), position)  # [1]
    part = graph.node("Mul", graph.node("Squeeze", state, graph.integers(0, 1)), weight)  # [d]
    summary = graph.node("Add", graph.input("session_summary", FLOAT, [d]), part)
    graph.output(summary, "new_session_summary", FLOAT, [d])


def _encode_query(layers: Layers, config: ModelConfig, embedded: str, count: str) -> str:
    """Y [1, t, d] of embedded tokens [t, d]."""
    graph = layers.graph
    positions = graph.node("Slice", layers.tensor("query_positions.weight"), graph.integers(0), count)  # [t, d]
    return _read(layers, config, graph.node("Unsqueeze", embedded, graph.integers(0)), positions)


def _read(layers: Layers, config: ModelConfig, x: str, addend: str) -> str:
    """What the query encoder's layers make of `x` [1, t, d] + `addend`."""
    names = [f"query_layers.{number}" for number in range(config.query_layers)]
    stream = layers.begin(x, addend, f"{names[0]}.attention_norm")
    for name, following in zip(names, [*(f"{n}.attention_norm" for n in names[1:]), "query_norm"], strict=True):
        stream, _, _ = layers.encoder_layer(stream, name, following)
    return stream.normed


def _project(layers: Layers, config: ModelConfig, encoded: str, count: str) -> str:
    """The query projection: Y [1, t, d] to r [1, d]."""
    graph = layers.graph
    rows = graph.node("Squeeze", encoded, graph.integers(0))  # [t, d]
    if config.projection == "position":
        weight = layers.tensor("projection.weight")  # [1, T]
        return graph.node("MatMul", graph.node("Slice", weight, graph.integers(0), count, graph.integers(1)), rows)
    # The matrix is constant as a whole: pad Y with zeros up to T positions.
    missing = graph.node("Sub", graph.integers(config.max_tokens), count)
    widths = graph.node("Concat", graph.integers(0, 0), missing, graph.integers(0), axis=0)
    padded = graph.node("Pad", rows, widths)  # [T, d]
    return layers.product(graph.node("Reshape", padded, graph.integers(1, -1)), "projection")


def _encode_session(
    layers: Layers, config: ModelConfig, summary: str, keys: str, values: str
) -> tuple[str, list[str], list[str]]:
    """The masked session encoder at its newest query: S [1, 1, d], each layer's keys and values [1, h, q + 1, e]."""
    graph = layers.graph
    position = graph.node("Shape", keys, start=2, end=3)  # [1]
    added = graph.node("Gather", layers.tensor("session_positions.weight"), position)  # [1, d]
    names = [f"session_layers.{number}" for number in range(config.session_layers)]
    x = graph.node("Unsqueeze", summary, graph.integers(0))
    stream = layers.begin(x, added, f"{names[0]}.attention_norm")
    new_keys, new_values = [], []
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "session_norm"]
    pasts = zip(graph.split(keys, len(names), axis=0), graph.split(values, len(names), axis=0), strict=True)
    for name, following, past in zip(names, followings, pasts, strict=True):
        stream, layer_keys, layer_values = layers.encoder_layer(stream, name, following, past)
        new_keys.append(layer_keys)
        new_values.append(layer_values)
    return stream.normed, new_keys, new_values


def _stack(graph: GraphBuilder, parts: list[str]) -> str:
    """Each layer's [1, ...] along the first axis."""
    return graph.node("Concat", *parts, axis=0)
