"""ONNX Runtime in int8 with the beam driven from Python: the usual way to serve a decoder.

A step graph runs all live hypotheses at once, caches in and out; Python keeps the constraint, the choice and the
scores. Same weights, same exact constraint table and the same session cache as ours, so only who drives the search
differs.

Shapes: n hypotheses, p tokens so far, m tokens of the memory, d width, h heads, e = d/h, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from export.graph_builder import FLOAT, INT64, GraphBuilder, Shape
from export.graph_layers import Layers
from export.weights import graph_tensors
from mtn_edge.config import ModelConfig
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.text import normalize_prefix
from mtn_edge.tokenizer import BOS, EOS
from mtn_edge.training.checkpoint import Checkpoint
from peers import BEAM, NEW_TOKENS, distinct_continuations, finished_words
from quantize.int8 import Int8Weight
from quantize.plan import Weights, apply_plan, uniform_plan

FORBIDDEN = -1e9
"""Log-probability of a token that may not come."""


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
        self.weights = apply_plan(graph_tensors(state, config), uniform_plan("int8"))
        self._step = open_graph(build_step(config, self.weights))
        self._memory: dict[str, Any] = {}
        self.steps = None
        self.rows = 0
        """Rows of the last search: hypotheses that had to be decoded, over all steps."""

    def start(self, queries: list[str]) -> None:
        """Takes the session's cross-attention keys and values."""
        state = self._suggester.session(queries).state
        self._memory = {"memory_keys": state.memory_keys, "memory_values": state.memory_values}

    def suggest(self, typed: str) -> list[str]:
        """The best texts under the constraint."""
        prefix = normalize_prefix(typed)
        words = len(self._tokenizer.encode(finished_words(prefix)))
        found = self._search(prefix.encode(), min(words + NEW_TOKENS, self._config.max_tokens + 1))
        merged: dict[str, float] = {}
        for each in found:
            text = self._tokenizer.decode_bytes(each.tokens).decode()
            merged[text] = float(np.logaddexp(merged.get(text, -np.inf), each.score))
        return distinct_continuations(sorted(merged, key=lambda text: -merged[text]), prefix)

    def _search(self, prefix: bytes, max_steps: int) -> list[Hypothesis]:
        """Hypotheses that came to an end."""
        table, start = self._suggester.constraint.table(prefix)
        empty = np.zeros((1, self._config.heads, 0, self._config.d_model // self._config.heads), dtype=np.float32)
        caches = [empty] * (2 * self._config.decoder_layers)
        tokens: list[list[int]] = [[]]
        scores = [0.0]
        last, parents, states = np.array([BOS]), np.array([0]), np.array([int(start)])
        finished: list[Hypothesis] = []
        self.steps = self.rows = 0
        while len(last) and self.steps < max_steps:
            feeds = {"last": last, "parents": parents, "position": np.array(self.steps)} | self._memory
            feeds |= {"bound": np.where(table[states] < 0, FORBIDDEN, 0).astype(np.float32)}
            best, choice, *caches = self._step.run(None, feeds | {f"past_{i}": x for i, x in enumerate(caches)})
            self.steps, self.rows = self.steps + 1, self.rows + len(last)
            pool = [
                Hypothesis(score + more, [*spelt, token], parent)
                for parent, (score, spelt) in enumerate(zip(scores, tokens, strict=True))
                for more, token in zip(best[parent].tolist(), choice[parent].tolist(), strict=True)
                if more > FORBIDDEN / 2
            ]
            # Those that ended before keep their places in the beam while nothing better comes.
            pool = sorted(pool + finished, key=lambda each: -each.score)[:BEAM]
            finished = [each for each in pool if each.tokens[-1] == EOS]
            live = [each for each in pool if each.tokens[-1] != EOS]
            scores, tokens = [each.score for each in live], [each.tokens for each in live]
            parents = np.array([each.parent for each in live], dtype=np.int64)
            last = np.array([each.tokens[-1] for each in live], dtype=np.int64)
            states = table[states[parents], last].astype(np.int64)
        return finished


def build_step(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The graph of one step.

    Inputs `last` int64 [n], `parents` int64 [n] (rows of the caches that the hypotheses go on from), `position`
    int64 [], `bound` float32 [n, V] (0, or -1e9 for a forbidden token), `past_0`... float32 [., h, p, e] (keys, then
    values, of each layer), `memory_keys` and `memory_values` float32 [Ld, h, m, e]. Outputs the best log-probabilities
    and tokens [n, beam], then the caches [n, h, p + 1, e].
    """
    graph = GraphBuilder("step")
    layers = Layers(graph, weights, heads=config.heads, norm=config.norm)
    h, d = config.heads, config.d_model
    last, parents = graph.input("last", INT64, ["n"]), graph.input("parents", INT64, ["n"])
    position = graph.input("position", INT64, [])
    bound = graph.input("bound", FLOAT, ["n", config.vocab_size])
    cache: Shape = ["c", h, "p", d // h]
    caches = [graph.input(f"past_{number}", FLOAT, cache) for number in range(2 * config.decoder_layers)]
    caches = [graph.node("Gather", each, parents) for each in caches]
    memory_shape: Shape = [config.decoder_layers, h, "m", d // h]
    memory = [
        graph.split(graph.input(name, FLOAT, memory_shape), config.decoder_layers, axis=0)
        for name in ("memory_keys", "memory_values")
    ]

    apart, together = graph.integers(-1, 1, d), graph.integers(1, -1, d)
    positions = graph.constant(np.asarray(weights["decoder_positions.weight"])[:, None])  # [t, 1, d]
    embedded = graph.node("Reshape", _embedding(graph, weights, last), apart)  # [n, 1, d]
    names = [f"decoder_layers.{number}" for number in range(config.decoder_layers)]
    stream = layers.begin(embedded, graph.node("Gather", positions, position), f"{names[0]}.attention_norm")
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]
    present: list[str] = []
    for number, (name, following) in enumerate(zip(names, followings, strict=True)):
        past = (caches[2 * number], caches[2 * number + 1])
        attended, *kept = layers.self_attention(stream.normed, f"{name}.attention", past)
        present += kept
        stream = layers.join(attended, stream, f"{name}.attention_norm", f"{name}.cross_attention_norm")
        # The memory is shared by all hypotheses: they are queries of one sequence here.
        asked = graph.node("Reshape", stream.normed, together)
        asked = layers.cross_attention(asked, f"{name}.cross_attention", memory[0][number], memory[1][number])
        stream = layers.join(
            graph.node("Reshape", asked, apart), stream, f"{name}.cross_attention_norm", f"{name}.feed_forward_norm"
        )
        changed = layers.feed_forward(stream.normed, f"{name}.feed_forward")
        stream = layers.join(changed, stream, f"{name}.feed_forward_norm", following)
    states = graph.node("Reshape", stream.normed, graph.integers(-1, d))
    log_probs = graph.node("LogSoftmax", layers.product(states, "embedding"), axis=-1)
    best, choice = graph.nodes("TopK", graph.node("Add", log_probs, bound), graph.integers(BEAM), outputs=2)
    graph.output(best, "best", FLOAT, ["n", BEAM])
    graph.output(choice, "choice", INT64, ["n", BEAM])
    for number, each in enumerate(present):
        graph.output(each, f"present_{number}", FLOAT, ["n", h, "p + 1", d // h])
    return graph.model()


def _embedding(graph: GraphBuilder, weights: Weights, tokens: str) -> str:
    """Rows [n, d] of the int8 table for `tokens` [n]."""
    table = weights["embedding.weight"]
    assert isinstance(table, Int8Weight)
    rows = graph.node("Gather", graph.constant(table.values.T), tokens)
    return graph.node("DequantizeLinear", rows, graph.node("Gather", graph.constant(table.scale), tokens), axis=0)


def open_graph(model: onnx.ModelProto) -> Any:
    """`model` on ONNX Runtime, with the settings of our own engine: one thread, no spinning."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
