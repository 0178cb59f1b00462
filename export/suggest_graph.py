"""`suggest.onnx`: the whole constrained beam search as one Loop; `mtn_edge.decoding.beam_search` is its reference.

Contract: inputs `memory_keys` and `memory_values` float32 [Ld, h, m, e], `start_tokens` int64 [f] (`<bos>` and the
tokens that are settled), `next_state` uint8 [S, V] (the next state and 1; 0 where a token is forbidden), `start_state`
int64 [1], `beam` int64 [1], `max_steps` int64 [] and `floor` float32 [] (relative to the mass). Outputs `tokens` int64
[beam, steps] (with `<eos>`, then `<pad>`), `scores` float32 [beam], `mass` float32 [] (log of the probability that the
first step allows) and `embedded` float32 [f, d] (of `start_tokens`, for `encode.onnx`; ask with `max_steps` 0).

All hypotheses live in one tree: each pass of the loop decodes the nodes that were added last, keys and values of every
node are kept once, in the order of their birth, and a bound on attention shows each node its ancestors alone. So
nothing is ever reordered, all products are over one sequence, and only hypotheses that are still alive cost anything.
The first pass decodes the whole chain of `start_tokens`.

Shapes: r rows decoded in a pass, n of them tips (the last of the chain; all rows later), N nodes decoded before,
B = k = beam, p tokens written, m tokens of the memory, d width, h heads, e = d/h, S states, V vocabulary, Ld decoder
layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from export.graph_builder import FLOAT, INT64, UINT8, Carry, GraphBuilder, Shape
from export.graph_layers import Layers, zeros
from mtn_edge.config import ModelConfig
from mtn_edge.runtime.engine import IMPOSSIBLE
from mtn_edge.tokenizer import EOS
from quantize.plan import Weights


@dataclass(frozen=True)
class _Shared:
    """Tensors outside the loop that every pass reads."""

    memory: list[tuple[str, str]]
    """Keys and values [1, h, m, e] of each decoder layer."""
    next_state: str
    """uint8 [S, V]."""
    flat_states: str
    """uint8 [S * V]."""
    entry_scale: tuple[str, str]
    """What turns an entry of the table into a bound: a billion, and the entry of state 0."""
    first_position: str
    """int64 [1]: position of the first token that the search writes."""
    floor: str
    """float32 []."""
    beam: str
    """int64 [1]."""
    rows: str
    """int64 [B]: 0, 1, ..."""
    slots: str
    """int64 [B, 1]: the same."""
    offsets: str
    """int64 [B, 1]: 0, V, ..."""
    filler: str
    """float32 [1, k]: 0, then -1e9: the candidates of a slot that does not go on."""
    no_codes: str
    """int64 [B, k] of zeros."""
    others: str
    """float32 [B, B]: 0 on the diagonal, -1e9 elsewhere."""


def build_suggest(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The graph of the beam search over `MTN.step`.

    Args:
        config: the model.
        weights: its tensors, see `export.weights.graph_tensors` and `quantize.plan.apply_plan`.
    """
    graph = GraphBuilder("suggest")
    h, e = config.heads, config.d_model // config.heads
    memory_shape: Shape = [config.decoder_layers, h, "m", e]
    keys = graph.input("memory_keys", FLOAT, memory_shape)
    values = graph.input("memory_values", FLOAT, memory_shape)
    start_tokens = graph.input("start_tokens", INT64, ["f"])
    next_state = graph.input("next_state", UINT8, ["S", config.vocab_size])
    start_state = graph.input("start_state", INT64, [1])
    beam = graph.input("beam", INT64, [1])
    max_steps = graph.input("max_steps", INT64, [])
    floor = graph.input("floor", FLOAT, [])

    count = graph.node("Shape", start_tokens)  # [1]
    shared = _share(graph, config, memory=(keys, values), next_state=next_state, count=count, floor=floor, beam=beam)
    layers = Layers(graph, weights, heads=h, norm=config.norm)
    embedded = layers.embedding(start_tokens)  # [f, d]
    tip = graph.node("Sub", count, graph.integers(1))
    offset = graph.node("Mul", graph.node("Unsqueeze", tip, graph.integers(1)), graph.integer(config.vocab_size))
    no_column = graph.node("Concat", beam, graph.integers(0), axis=0)
    carries = [
        Carry("embedded", FLOAT, ["r", config.d_model], embedded),
        Carry("places", INT64, ["r"], _range(graph, count)),
        Carry("hidden", FLOAT, ["r", "N + r"], _causal(graph, count)),
        Carry("states", INT64, ["r"], graph.node("Expand", start_state, count)),
        Carry("tips", INT64, ["n"], tip),
        Carry("tip_offsets", INT64, ["n", 1], offset),
        Carry("live", INT64, ["n", 1], graph.constant(np.zeros((1, 1), dtype=np.int64))),
        Carry("live_scores", FLOAT, ["n", 1], zeros(graph, 1, 1)),
        Carry("scores", FLOAT, ["B", 1], _filled(graph, IMPOSSIBLE, beam, graph.integers(1))),
        Carry("history", INT64, ["B", "p"], graph.node("Expand", graph.integer(0), no_column)),
        Carry("mass", FLOAT, [], zeros(graph)),
    ]
    empty = zeros(graph, 1, h, 0, e)
    for number in range(config.decoder_layers):
        carries += [Carry(f"{part}_{number}", FLOAT, [1, h, "N", e], empty) for part in ("keys", "values")]

    body = GraphBuilder("step", parent=graph)
    updates, go_on = _step(Layers(body, weights, heads=h, norm=config.norm), config, shared)
    results = graph.loop(body, carries, updates, trips=max_steps, go_on=go_on)
    final = dict(zip((carry.name for carry in carries), results, strict=True))
    graph.output(final["history"], "tokens", INT64, ["beam", "steps"])
    graph.output(graph.node("Reshape", final["scores"], graph.integers(-1)), "scores", FLOAT, ["beam"])
    graph.output(final["mass"], "mass", FLOAT, [])
    graph.output(graph.node("Identity", embedded), "embedded", FLOAT, ["f", config.d_model])
    return graph.model()


def _share(
    graph: GraphBuilder,
    config: ModelConfig,
    *,
    memory: tuple[str, str],
    next_state: str,
    count: str,
    floor: str,
    beam: str,
) -> _Shared:
    keys, values = (graph.split(part, config.decoder_layers, axis=0) for part in memory)
    rows = _range(graph, beam)
    slots = graph.node("Unsqueeze", rows, graph.integers(1))
    others = graph.node("Sub", beam, graph.integers(1))
    filler = graph.node("Concat", zeros(graph, 1), _filled(graph, IMPOSSIBLE, others), axis=0)
    return _Shared(
        memory=list(zip(keys, values, strict=True)),
        next_state=next_state,
        flat_states=graph.node("Reshape", next_state, graph.integers(-1)),
        entry_scale=(
            graph.constant(np.array(-IMPOSSIBLE, dtype=np.float32)),
            graph.constant(np.array(1, dtype=np.uint8)),
        ),
        first_position=count,
        floor=floor,
        beam=beam,
        rows=rows,
        slots=slots,
        offsets=graph.node("Mul", slots, graph.integer(config.vocab_size)),
        filler=graph.node("Unsqueeze", filler, graph.integers(0)),
        no_codes=graph.node("Expand", graph.integer(0), graph.node("Concat", beam, beam, axis=0)),
        others=_others(graph, beam),
    )


def _range(graph: GraphBuilder, count: str) -> str:
    """0, 1, ... as int64 [count]; `count` is an int64 [1]."""
    return graph.node("Range", graph.integer(0), graph.node("Squeeze", count), graph.integer(1))


def _filled(graph: GraphBuilder, value: float, *sides: str) -> str:
    """A float32 tensor of one value; each of `sides` is an int64 [1]."""
    shape = graph.node("Concat", *sides, axis=0) if len(sides) > 1 else sides[0]
    return graph.node("Expand", graph.constant(np.array(value, dtype=np.float32)), shape)


def _causal(graph: GraphBuilder, count: str) -> str:
    """What the chain's tokens may not attend to [f, f]: each sees itself and those before it."""
    return graph.node("Trilu", _filled(graph, IMPOSSIBLE, count, count), graph.integer(1), upper=1)


def _mass(graph: GraphBuilder, allowed: str) -> str:
    """Log of the probability that the first step allows; known after the first pass, carried on by the others.

    By way of the largest entry, as `LogSoftmax` is ten times as fast as `ReduceLogSumExp`.
    """
    first, later = GraphBuilder("first", parent=graph), GraphBuilder("later", parent=graph)
    largest = first.node("ReduceMax", allowed, keepdims=0)
    normal = first.node("ReduceMax", first.node("LogSoftmax", allowed), keepdims=0)
    first.output(first.node("Sub", largest, normal), "first_mass", FLOAT, [])
    later.output(later.node("Identity", "mass"), "later_mass", FLOAT, [])
    return graph.branch(graph.node("Equal", "position", graph.integer(0)), first, later)


def _others(graph: GraphBuilder, beam: str) -> str:
    """What the nodes of one pass may not attend to among themselves [B, B]: all but themselves."""
    nothing = _filled(graph, IMPOSSIBLE, beam, beam)
    above = graph.node("Trilu", nothing, graph.integer(1), upper=1)
    return graph.node("Add", above, graph.node("Trilu", nothing, graph.integer(-1), upper=0))


def _step(layers: Layers, config: ModelConfig, shared: _Shared) -> tuple[list[str], str]:
    """One pass: what each carried value becomes, whether any hypothesis goes on, and the first tip's row [V]."""
    graph, v = layers.graph, layers.graph.integer(config.vocab_size)
    decoded, caches = _decode(layers, config, shared)  # [r, d]
    log_probs = _log_probabilities(layers, graph.node("Gather", decoded, "tips"))  # [n, V]
    # An entry of the table, 1 less and a billion times as large, is a bound on the log-probability of its token.
    entries = graph.node("Gather", shared.next_state, graph.node("Gather", "states", "tips"))
    bound = graph.node("DequantizeLinear", entries, *shared.entry_scale)
    allowed = graph.node("Min", log_probs, bound)
    mass = _mass(graph, allowed)
    best, choice = graph.nodes("TopK", allowed, shared.beam, outputs=2)  # [n, k]

    # A candidate is a row and a token in one number. Slots that do not go on keep their score in one candidate.
    candidates = graph.node(
        "ScatterND",
        graph.node("Add", "scores", shared.filler),
        "live",
        graph.node("Add", "live_scores", best),
    )
    codes = graph.node("ScatterND", shared.no_codes, "live", graph.node("Add", "tip_offsets", choice))  # [B, k]
    flat = graph.node("Reshape", candidates, graph.integers(-1, 1))
    scores, place = graph.nodes("TopK", flat, shared.beam, outputs=2, axis=0)  # [B, 1] of [B * k, 1]
    code = graph.node("Gather", graph.node("Reshape", codes, graph.integers(-1)), place)  # [B, 1]
    token = graph.node("Mod", code, v)
    parent = graph.node("Reshape", graph.node("Div", place, shared.beam), graph.integers(-1))  # [B]
    history = graph.node("Concat", graph.node("Gather", "history", parent), token, axis=1)

    # Only what has not ended and can still be shown goes on.
    going_on = graph.node("Greater", token, graph.integer(EOS))
    hopeful = graph.node("Greater", scores, graph.node("Add", mass, shared.floor))
    alive = graph.node("And", going_on, hopeful)  # [B, 1]
    chosen = graph.node("Reshape", alive, graph.integers(-1))
    live, live_scores = (graph.node("Compress", part, chosen, axis=0) for part in (shared.slots, scores))  # [n', 1]
    live_code = graph.node("Reshape", graph.node("Compress", code, chosen, axis=0), graph.integers(-1))  # [n']
    live_token, row = graph.node("Mod", live_code, v), graph.node("Div", live_code, v)
    cell = graph.node("Add", graph.node("Mul", graph.node("Gather", "states", row), v), live_token)
    entry = graph.node("Cast", graph.node("Gather", shared.flat_states, cell), to=INT64)
    states = graph.node("Sub", entry, graph.integer(1))

    # New nodes see what their parents saw, and themselves.
    count = graph.node("Shape", live_code)  # [1]
    tips = graph.node("Slice", shared.rows, graph.integers(0), count)
    tip_offsets = graph.node("Slice", shared.offsets, graph.integers(0), count)
    square = graph.node("Concat", count, count, axis=0)
    own = graph.node("Slice", shared.others, graph.integers(0, 0), square)
    hidden = graph.node("Concat", graph.node("Gather", "hidden", row), own, axis=1)
    embedded = layers.embedding(live_token)
    places = graph.node("Expand", graph.node("Add", "position", shared.first_position), count)
    go_on = graph.node("ReduceMax", chosen, keepdims=0)
    updates = [embedded, places, hidden, states, tips, tip_offsets, live, live_scores, scores, history, mass, *caches]
    return updates, go_on


def _decode(layers: Layers, config: ModelConfig, shared: _Shared) -> tuple[str, list[str]]:
    """The decoder on the newest nodes: their states [r, d], and keys and values of all nodes for each layer."""
    graph = layers.graph
    names = [f"decoder_layers.{number}" for number in range(config.decoder_layers)]
    hidden = graph.node("Unsqueeze", "hidden", graph.integers(0, 1))
    embedded = graph.node("Unsqueeze", "embedded", graph.integers(0))
    positions = graph.node("Gather", layers.tensor("decoder_positions.weight"), "places")
    stream = layers.begin(embedded, positions, f"{names[0]}.attention_norm")  # [1, r, d]
    caches: list[str] = []
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]
    for number, (name, following) in enumerate(zip(names, followings, strict=True)):
        past = (f"keys_{number}", f"values_{number}")
        attended, keys, values = layers.self_attention(stream.normed, f"{name}.attention", past, hidden)
        caches += [keys, values]
        stream = layers.join(attended, stream, f"{name}.attention_norm", f"{name}.cross_attention_norm")
        attended = layers.cross_attention(stream.normed, f"{name}.cross_attention", *shared.memory[number])
        stream = layers.join(attended, stream, f"{name}.cross_attention_norm", f"{name}.feed_forward_norm")
        changed = layers.feed_forward(stream.normed, f"{name}.feed_forward")
        stream = layers.join(changed, stream, f"{name}.feed_forward_norm", following)
    return graph.node("Reshape", stream.normed, graph.integers(-1, config.d_model)), caches


def _log_probabilities(layers: Layers, decoded: str) -> str:
    """Log p(token | hypothesis, session) [n, V] from the decoder's states [n, d].

    The one place where next-token distributions come from: others are mixed in here.
    """
    return layers.graph.node("LogSoftmax", layers.scores(decoded), axis=-1)
