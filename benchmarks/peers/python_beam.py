"""ONNX Runtime in int8 with the beam driven from Python: the usual way to serve a decoder.

A step graph runs all live hypotheses at once, caches in and out; Python keeps the constraint, the choice and the
scores. Same weights, same exact constraint table and the same session cache as ours, so only who drives the search
differs.

Shapes: n hypotheses, t tokens of one that are new, p tokens so far, m tokens of the memory, d width, h heads, e = d/h,
V vocabulary, Ld decoder layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from export.graph_builder import FLOAT, INT64, UINT8, GraphBuilder, Shape
from export.graph_layers import Layers
from export.session_memory import SessionMemory
from export.weights import graph_tensors
from mtn_edge.config import ModelConfig
from mtn_edge.decoding.prefix_constraint import Constraint
from mtn_edge.runtime.engine import DEAD, IMPOSSIBLE
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.text import normalize_prefix
from mtn_edge.tokenizer import EOS
from mtn_edge.training.checkpoint import Checkpoint
from peers import BEAM, NEW_TOKENS, distinct_continuations
from quantize.int8 import Int8Weight
from quantize.plan import Weights, apply_plan, uniform_plan


class Hypothesis(NamedTuple):
    """One text in the making."""

    score: float
    """Log-probability."""
    tokens: list[int]
    parent: int
    """Row of the step that it came from."""


class PythonBeam:
    """Beam search in numpy over a step graph.

    Args:
        checkpoint: the trained model.
        suggester: our own, of the same model: it lends its session cache and its constraint.
    """

    name = "ONNX Runtime, beam in Python"
    steps: int | None

    def __init__(self, checkpoint: Checkpoint, suggester: Suggester) -> None:
        config = checkpoint.config.model
        state = {name: tensor.numpy() for name, tensor in checkpoint.model.state_dict().items()}
        self._config, self._tokenizer, self._suggester = config, checkpoint.tokenizer, suggester
        self._constraint = suggester.search.constraint
        self.weights = apply_plan(graph_tensors(state, config), uniform_plan("int8"))
        sizes = {name: each.values.size for name, each in self.weights.items() if isinstance(each, Int8Weight)}
        self._layers_size = sum(size for name, size in sizes.items() if name.startswith("decoder_"))
        self._table_size = sizes["embedding.weight"]
        self._step = open_graph(build_step(config, self.weights))
        self._memory: dict[str, Any] = {}
        self.steps = 0
        self._multiplications = 0

    def start(self, queries: list[str]) -> None:
        """Takes the session's cross-attention keys and values."""
        state = self._suggester.session(queries).state
        self._memory = {name: part for name, part in state.items() if name.startswith("memory_")}

    def suggest(self, typed: str) -> list[str]:
        """The best texts under the constraint."""
        prefix = normalize_prefix(typed)
        constraint = self._constraint.typed(prefix, self._config.max_tokens)
        self.steps = 0
        if constraint is None:
            return []
        settled = self._constraint.settled(prefix).encode()
        merged: dict[str, float] = {}
        for each in self._search(constraint):
            text = (settled + self._tokenizer.decode_bytes(each.tokens)).decode()
            merged[text] = float(np.logaddexp(merged.get(text, -np.inf), each.score))
        return distinct_continuations(sorted(merged, key=lambda text: -merged[text]), prefix)

    def multiplications(self, typed: str, least: float) -> int:
        """Int8 multiply-adds with the decoder's weights that the exact search for `typed` needs.

        Args:
            typed: the typed text.
            least: log-probability at which a hypothesis is given up.
        """
        constraint = self._constraint.typed(normalize_prefix(typed), self._config.max_tokens)
        self._multiplications = 0
        if constraint is not None:
            self._search(constraint, least)
        return self._multiplications

    def _search(self, constraint: Constraint, least: float = DEAD) -> list[Hypothesis]:
        """Hypotheses that came to an end; those at `least` or below are given up."""
        empty = np.zeros((1, self._config.heads, 0, self._config.d_model // self._config.heads), dtype=np.float32)
        caches = [empty] * (2 * self._config.decoder_layers)
        recent = np.zeros((1, 2, self._config.d_model), dtype=np.float32)
        newest, parents = constraint.start_tokens[None], np.array([0])  # [n, t]
        first, position = len(constraint.start_tokens), 0
        hidden = np.triu(np.full((first, first), IMPOSSIBLE, dtype=np.float32), 1)[None, None]
        scores, tokens, states = [0.0], [[]], np.array([constraint.start_state])
        ended: list[Hypothesis] = []
        self.steps = 0
        while len(newest) and self.steps < NEW_TOKENS and position <= self._config.max_tokens:
            places = np.arange(position, position + newest.shape[1])
            feeds = {"tokens": newest, "parents": parents, "places": places, "hidden": hidden} | self._memory
            feeds |= {"recent": recent} | {f"past_{number}": cache for number, cache in enumerate(caches)}
            best, choice, recent, *caches = self._step.run(None, feeds | {"entries": constraint.next_state[states]})
            self.steps += 1
            self._multiplications += newest.size * self._layers_size + len(newest) * self._table_size
            pool = [
                Hypothesis(score + more, [*spelt, token], parent)
                for parent, (score, spelt) in enumerate(zip(scores, tokens, strict=True))
                for more, token in zip(best[parent].tolist(), choice[parent].tolist(), strict=True)
                if more > DEAD
            ]
            # Those that ended before keep their places in the beam while nothing better comes.
            pool = sorted(pool + ended, key=lambda each: -each.score)[:BEAM]
            ended = [each for each in pool if each.tokens[-1] == EOS or each.score <= least]
            live = [each for each in pool if each.tokens[-1] != EOS and each.score > least]
            scores, tokens = [each.score for each in live], [each.tokens for each in live]
            parents = np.array([each.parent for each in live], dtype=np.int64)
            newest = np.array([each.tokens[-1:] for each in live], dtype=np.int64)
            position = int(places[-1]) + 1
            hidden = np.zeros((1, 1, 1, position + 1), dtype=np.float32)
            if live:
                states = constraint.next_state[states[parents], newest[:, 0]].astype(np.int64) - 1
        return [each for each in ended if each.tokens[-1] == EOS]


def build_step(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The graph of one step.

    Inputs `tokens` int64 [n, t] (t is 1 after the first step), `parents` int64 [n] (rows of the caches that the
    hypotheses go on from), `places` int64 [t] (positions), `hidden` float32 [1, 1, t, p + t] (-1e9 where attention is
    not allowed), `entries` uint8 [n, V] (rows of the constraint's table), `recent` float32 [., 2, d] (embeddings of the
    last two tokens), `past_0`... float32 [., h, p, e] (keys, then values, of each layer), and the memory of
    `suggest.onnx`. Outputs the best log-probabilities and tokens [n, beam], `new_recent` [n, 2, d], then the caches
    [n, h, p + t, e].
    """
    graph = GraphBuilder("step")
    layers = Layers(graph, weights, head_width=config.d_model // config.heads, norm=config.norm)
    h, d = config.heads, config.d_model
    tokens, parents = graph.input("tokens", INT64, ["n", "t"]), graph.input("parents", INT64, ["n"])
    places = graph.input("places", INT64, ["t"])
    hidden = graph.input("hidden", FLOAT, [1, 1, "t", "p + t"])
    entries = graph.input("entries", UINT8, ["n", config.vocab_size])
    cache: Shape = ["c", h, "p", d // h]
    caches = [graph.input(f"past_{number}", FLOAT, cache) for number in range(2 * config.decoder_layers)]
    caches = [graph.node("Gather", each, parents) for each in caches]
    memory = SessionMemory(layers, config)

    shape = graph.node("Concat", graph.node("Shape", tokens), graph.integers(d), axis=0)
    embedded = layers.embedding(graph.node("Reshape", tokens, graph.integers(-1)))
    embedded = graph.node("Reshape", embedded, shape)  # [n, t, d]
    positions = graph.node("Gather", layers.tensor("decoder_positions.weight"), places)
    positions = graph.node("Add", positions, graph.input("memory_state", FLOAT, [d]))
    recent = graph.node("Gather", graph.input("recent", FLOAT, ["c", 2, d]), parents)
    text = graph.node("Concat", recent, embedded, axis=1)  # [n, 2 + t, d]
    length = graph.node("Shape", tokens, start=1, end=2)
    axis, one = graph.integers(1), graph.integers(1)
    parts = [
        graph.node("Slice", text, one, graph.node("Add", length, one), axis),
        graph.node("Slice", text, graph.integers(0), length, axis),
    ]
    before = layers.product(graph.node("Concat", *parts, axis=2), "decoder_convolution")
    positions = graph.node("Add", before, positions)  # [n, t, d]
    names = [f"decoder_layers.{number}" for number in range(config.decoder_layers)]
    stream = layers.begin(embedded, positions, f"{names[0]}.attention_norm")
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]
    present: list[str] = []
    bias = memory.bias(
        graph, graph.node("Reshape", tokens, graph.integers(-1))
    )  # a row for each token of each hypothesis
    for number, (name, following) in enumerate(zip(names, followings, strict=True)):
        past = (caches[2 * number], caches[2 * number + 1])
        attended, *kept = layers.self_attention(stream.normed, f"{name}.attention", past, hidden)
        present += kept
        stream = layers.join(attended, stream, f"{name}.attention_norm", f"{name}.cross_attention_norm")
        # The memory is shared by all hypotheses: they are queries of one sequence here.
        asked = graph.node("Reshape", stream.normed, graph.integers(1, -1, d))
        asked = layers.cross_attention(asked, f"{name}.cross_attention", *memory.layers[number], bias)
        asked = graph.node("Reshape", asked, shape)
        stream = layers.join(asked, stream, f"{name}.cross_attention_norm", f"{name}.feed_forward_norm")
        changed = layers.feed_forward(stream.normed, f"{name}.feed_forward")
        stream = layers.join(changed, stream, f"{name}.feed_forward_norm", following)
    last = graph.node("Gather", stream.normed, graph.integer(-1), axis=1)  # [n, d]
    log_probs = graph.node("LogSoftmax", layers.scores(last), axis=-1)
    scale, zero = graph.constant(np.array(-IMPOSSIBLE, dtype=np.float32)), graph.constant(np.array(1, dtype=np.uint8))
    bound = graph.node("DequantizeLinear", entries, scale, zero)  # as in our own graph
    best, choice = graph.nodes("TopK", graph.node("Min", log_probs, bound), graph.integers(BEAM), outputs=2)
    graph.output(best, "best", FLOAT, ["n", BEAM])
    graph.output(choice, "choice", INT64, ["n", BEAM])
    newest = graph.node("Slice", text, graph.integers(-2), graph.integers(1 << 30), axis)
    graph.output(newest, "new_recent", FLOAT, ["n", 2, d])
    for number, each in enumerate(present):
        graph.output(each, f"present_{number}", FLOAT, ["n", h, "p + t", d // h])
    return graph.model()


def open_graph(model: onnx.ModelProto) -> Any:
    """`model` on ONNX Runtime, with the settings of our own engine: one thread, no spinning."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
