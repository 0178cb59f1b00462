"""The network's layers as graph nodes, in float32 or int8 according to what the weights are.

Each function mirrors a module of `mtn_edge.models.layers` and adds its nodes to a builder. Residual sums and
normalisations are fused: between sub-layers a layer hands on a `Stream` of two tensors, the normalised input of the
next sub-layer and the residual sum. With pre-norm they differ; with post-norm they are the same tensor.

Shapes: n inputs' batch, t tokens, p earlier ones in a cache, d width, h heads, e width of a head, v vocabulary,
r rank of the table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.graph_builder import CONTRIB, GraphBuilder
from quantize.int4 import BLOCK, Int4Weight
from quantize.int8 import Int8Weight
from quantize.plan import Weights

EPSILON = 1e-5
"""PyTorch's default for layer normalisation."""
ACCURACY_LEVEL = 4
"""How `MatMulNBits` computes: with activations in int8, a block of 32 at a time. It is twice as fast as with float32
ones (levels 0 and 1) and changes a product less than the four bits of its weights do."""


class Stream(NamedTuple):
    """What flows between sub-layers."""

    normed: str
    """Input of the next sub-layer."""
    residual: str
    """What the next sub-layer's output is added to."""


class Layers:
    """Adds layers of one model to one graph (or to the body of its loop).

    Args:
        graph: where the nodes go.
        weights: tensors as `export.weights.graph_tensors` names them, float32 or int8.
        head_width: width of an attention head; how many there are, the weights say.
        norm: where the model normalises.
    """

    def __init__(self, graph: GraphBuilder, weights: Weights, *, head_width: int, norm: Literal["pre", "post"]) -> None:
        self.graph, self.weights, self.head_width, self.norm = graph, weights, head_width, norm

    def inside(self, body: GraphBuilder) -> Layers:
        """The same layers for the body of a loop of this graph."""
        return Layers(body, self.weights, head_width=self.head_width, norm=self.norm)

    def _heads(self, product: str, parts: int = 1) -> int:
        """How many heads a product computes `parts` numbers for; biases are float32 in every precision."""
        bias = self.weights[f"{product}.bias"]
        assert isinstance(bias, np.ndarray)
        return bias.size // (parts * self.head_width)

    def tensor(self, name: str) -> str:
        """A float32 tensor as a constant."""
        value = self.weights[name]
        assert isinstance(value, np.ndarray), name
        return self.graph.constant(value, name)

    def product(self, x: str, name: str) -> str:
        """`x` times the matrix `name`, plus its bias where it has one.

        With int8 weights one node quantizes `x` (8 bits, range of this very tensor), multiplies and scales back; two
        nodes do when the range is fixed beforehand. With int4 weights one node does the same block by block.
        """
        weight, bias = self.weights[f"{name}.weight"], f"{name}.bias"
        if isinstance(weight, Int4Weight):
            return self._block_product(x, name, weight)
        if isinstance(weight, Int8Weight):
            values = self.graph.constant(weight.values, f"{name}.values")
            return self._integer_product(x, name, values, weight, self.tensor(bias) if bias in self.weights else "")
        y = self.graph.node("MatMul", x, self.tensor(f"{name}.weight"))
        return self.graph.node("Add", y, self.tensor(bias)) if bias in self.weights else y

    def _integer_product(self, x: str, name: str, values: str, weight: Int8Weight, bias: str) -> str:
        """`x` times `values`, the integers of `weight` [i, o], as float32."""
        graph, scale = self.graph, self.graph.constant(weight.scale, f"{name}.scale")
        given = weight.activation
        if given is None:  # an empty zero point: the values are symmetric
            return graph.node("DynamicQuantizeMatMul", *_given(x, values, scale, "", bias), domain=CONTRIB)
        x_scale = graph.constant(np.array(given.scale, dtype=np.float32), f"{name}.input_scale")
        x_zero = graph.constant(np.array(given.zero_point, dtype=np.uint8), f"{name}.input_zero_point")
        quantized = graph.node("QuantizeLinear", x, x_scale, x_zero)
        inputs = _given(quantized, values, x_scale, scale, x_zero, "", bias)
        return graph.node("MatMulIntegerToFloat", *inputs, domain=CONTRIB)

    def _block_product(self, x: str, name: str, weight: Int4Weight) -> str:
        """`x` times a matrix in blocks of four bits."""
        outputs = len(weight.scale)
        zero_point, bias = weight.packed_zero_point, f"{name}.bias"
        inputs = _given(
            x,
            self.graph.constant(weight.packed, f"{name}.codes"),
            self.graph.constant(weight.scale, f"{name}.scale"),
            self.graph.constant(zero_point, f"{name}.zero_point") if zero_point is not None else "",
            "",
            self.tensor(bias) if bias in self.weights else "",
        )
        return self.graph.node(
            "MatMulNBits",
            *inputs,
            domain=CONTRIB,
            K=weight.inputs,
            N=outputs,
            bits=4,
            block_size=BLOCK,
            accuracy_level=ACCURACY_LEVEL,
        )

    def embedding(self, tokens: str) -> str:
        """Embeddings of `tokens` [t]: [t, d]."""
        graph, table = self.graph, self._tied()
        rows = graph.node("Gather", self._table(), tokens)
        if isinstance(table, Int8Weight):
            scale = graph.node("Gather", graph.constant(table.scale, "embedding.scale"), tokens)  # [t]
            rows = graph.node("DequantizeLinear", rows, scale, axis=0)
        return self.product(rows, "embedding_up") if "embedding_up.weight" in self.weights else rows

    def scores(self, x: str) -> str:
        """Scores of all tokens from states `x` [n, d]: [n, v]; by an output layer of their own where there is one."""
        if "scores.weight" in self.weights:
            return self.product(x, "scores")
        graph, table = self.graph, self._tied()
        if "embedding_down.weight" in self.weights:
            x = self.product(x, "embedding_down")  # [n, r]
        # The table is stored once, by rows as the embedding reads it; the runtime transposes it when it loads the
        # graph. Stored by columns it would be slow to read: 18 µs for 8 tokens instead of 1.
        columns = graph.root.node("Transpose", self._table(), perm=[1, 0])
        if not isinstance(table, Int8Weight):
            return graph.node("MatMul", x, columns)
        return self._integer_product(x, "embedding", columns, table, "")

    def _table(self) -> str:
        """The tied table [v, d], or [v, r] of low rank."""
        table = self._tied()
        return self.graph.constant(table.values.T if isinstance(table, Int8Weight) else table.T, "embedding.rows")

    def _tied(self) -> NDArray[np.float32] | Int8Weight:
        table = self.weights["embedding.weight"]
        assert not isinstance(table, Int4Weight)  # `quantize.plan.WIDE`
        return table

    def begin(self, x: str, addend: str, norm: str) -> Stream:
        """The stream at the foot of a stack: `x` + `addend`, with the first sub-layer's normalisation `norm`."""
        if self.norm == "post":
            total = self.graph.node("Add", x, addend)
            return Stream(total, total)
        return self._skip_norm(x, addend, norm)

    def join(self, change: str, stream: Stream, own: str, following: str) -> Stream:
        """Adds a sub-layer's output.

        Args:
            change: the output.
            stream: what the sub-layer got.
            own: its normalisation, which post-norm applies to the sum.
            following: the next sub-layer's normalisation (or the stack's final one), which pre-norm applies.
        """
        if self.norm == "pre":
            return self._skip_norm(stream.residual, change, following)
        total = self._skip_norm(stream.residual, change, own).normed
        return Stream(total, total)

    def self_attention(self, x: str, name: str, past: tuple[str, str] | None, hidden: str = "") -> tuple[str, str, str]:
        """Multi-head attention of `x` [n, t, d] to `past` [n, h, p, e] and itself.

        Args:
            x: the inputs.
            name: the attention's weights.
            past: keys and values of earlier inputs.
            hidden: with `past`: float32 [1, 1, t, p + t], -1e9 where attention is not allowed; all is without it.

        Returns:
            The output [n, t, d], and with `past` the keys and values [n, h, p + t, e] to hand on (empty names without).
        """
        query, key, value = self.graph.split(self.product(x, f"{name}.qkv"), 3, axis=-1)
        cache = ("", "", hidden, *past) if past is not None else ()
        attended, *present = self.graph.nodes(
            "MultiHeadAttention",
            query,
            key,
            value,
            *cache,
            outputs=3 if past is not None else 1,
            domain=CONTRIB,
            num_heads=self._heads(f"{name}.qkv", 3),
        )
        keys, values = present or ("", "")
        return self.product(attended, f"{name}.out"), keys, values

    def ssru(self, x: str, name: str, cell: str) -> tuple[str, str]:
        """A simple recurrent unit on the newest token of each row: `x` [1, r, d], `cell` [r, d] to the same two."""
        graph = self.graph
        forget = graph.node("Sigmoid", self.product(x, f"{name}.forget"))
        candidate = self.product(x, f"{name}.candidate")
        # f c + (1 - f) w = w + f (c - w)
        kept = graph.node("Mul", forget, graph.node("Sub", cell, candidate))
        new = graph.node("Add", candidate, kept)  # [1, r, d]
        return graph.node("Relu", new), graph.node("Squeeze", new, graph.integers(0))

    def cross_attention(self, x: str, name: str, keys: str, values: str, bias: str = "") -> str:
        """Multi-head attention of `x` [1, t, d] to keys and values [1, h, m, e], with `bias` [1, h, t, m] if any."""
        query = self.product(x, f"{name}.query")
        more = ("", "", bias) if bias else ()
        attended = self.graph.node(
            "MultiHeadAttention", query, keys, values, *more, domain=CONTRIB, num_heads=self._heads(f"{name}.query")
        )
        return self.product(attended, f"{name}.out")

    def memory(self, x: str, layers: int) -> tuple[str, str]:
        """Cross-attention keys and values [layers, h, t, e] of what is attended to, `x` [1, t, d]."""
        graph = self.graph
        both = self.product(x, "memory.kv")  # [1, t, layers * 2 * h * e]
        both = graph.node("Squeeze", both, graph.integers(0))
        both = graph.node("Reshape", both, graph.integers(0, layers, 2, self._heads("memory.kv", 2 * layers), -1))
        both = graph.node("Transpose", both, perm=[2, 1, 3, 0, 4])  # [2, layers, h, t, e]
        keys, values = (graph.node("Squeeze", part, graph.integers(0)) for part in graph.split(both, 2, axis=0))
        return keys, values

    def gru(self, x: str, hidden: str, name: str) -> str:
        """One step of a GRU: `x` [r, w] and `hidden` [r, U] to the new state [r, U] (PyTorch's gates: r, z, n)."""
        graph = self.graph
        of_x = graph.split(self.product(x, f"{name}.input"), 3, axis=-1)
        of_hidden = graph.split(self.product(hidden, f"{name}.hidden"), 3, axis=-1)
        reset, keep = (
            graph.node("Sigmoid", graph.node("Add", a, b)) for a, b in zip(of_x[:2], of_hidden[:2], strict=True)
        )
        new = graph.node("Tanh", graph.node("Add", of_x[2], graph.node("Mul", reset, of_hidden[2])))
        # (1 - z) n + z h = n + z (h - n)
        return graph.node("Add", new, graph.node("Mul", keep, graph.node("Sub", hidden, new)))

    def lstm(self, x: str, hidden: str, cell: str, name: str) -> tuple[str, str]:
        """One step of an LSTM: `x` [r, w], `hidden` and `cell` [r, U] to the new two (PyTorch's gates: i, f, g, o)."""
        graph = self.graph
        gates = graph.node("Add", self.product(x, f"{name}.input"), self.product(hidden, f"{name}.hidden"))
        enter, forget, candidate, leave = graph.split(gates, 4, axis=-1)
        kept = graph.node("Mul", graph.node("Sigmoid", forget), cell)
        added = graph.node("Mul", graph.node("Sigmoid", enter), graph.node("Tanh", candidate))
        new = graph.node("Add", kept, added)
        return graph.node("Mul", graph.node("Sigmoid", leave), graph.node("Tanh", new)), new

    def feed_forward(self, x: str, name: str) -> str:
        """Two products with a ReLU between: any [..., d] to the same."""
        return self.product(self.graph.node("Relu", self.product(x, f"{name}.up")), f"{name}.down")

    def encoder_layer(
        self, stream: Stream, name: str, following: str, past: tuple[str, str] | None = None, hidden: str = ""
    ) -> tuple[Stream, str, str]:
        """An encoder layer on [1, t, d]; `following` is the normalisation after it. Also keys and values."""
        attended, keys, values = self.self_attention(stream.normed, f"{name}.attention", past, hidden)
        stream = self.join(attended, stream, f"{name}.attention_norm", f"{name}.feed_forward_norm")
        changed = self.feed_forward(stream.normed, f"{name}.feed_forward")
        return self.join(changed, stream, f"{name}.feed_forward_norm", following), keys, values

    def decoder_rest(
        self, mixed: str, stream: Stream, name: str, following: str, memory: tuple[str, str], bias: str
    ) -> Stream:
        """What follows the first block of a decoder layer: cross-attention and feed-forward on [1, t, d].

        Args:
            mixed: output of the first block, before its residual sum.
            stream: what that block got.
            name: the layer's weights.
            following: the normalisation after the layer.
            memory: keys and values [1, h, m, e].
            bias: [1, h, t, m], added to the scores of the attention to them; none when empty.
        """
        stream = self.join(mixed, stream, f"{name}.attention_norm", f"{name}.cross_attention_norm")
        attended = self.cross_attention(stream.normed, f"{name}.cross_attention", *memory, bias)
        stream = self.join(attended, stream, f"{name}.cross_attention_norm", f"{name}.feed_forward_norm")
        changed = self.feed_forward(stream.normed, f"{name}.feed_forward")
        return self.join(changed, stream, f"{name}.feed_forward_norm", following)

    def _skip_norm(self, x: str, addend: str, norm: str) -> Stream:
        """The sum and its normalisation in one node."""
        normed, _, _, total = self.graph.nodes(
            "SkipLayerNormalization",
            x,
            addend,
            self.tensor(f"{norm}.weight"),
            self.tensor(f"{norm}.bias"),
            outputs=4,
            unused=(1, 2),
            domain=CONTRIB,
            epsilon=EPSILON,
        )
        return Stream(normed, total)


def _given(*inputs: str) -> list[str]:
    """The inputs of a node without the empty names at their end."""
    kept = list(inputs)
    while not kept[-1]:
        kept.pop()
    return kept


def numbers(graph: GraphBuilder, count: str) -> str:
    """0, 1, ... as int64 [count]; `count` is an int64 [1]."""
    return graph.node("Range", graph.integer(0), graph.node("Squeeze", count), graph.integer(1))


def filled(graph: GraphBuilder, value: float, *sides: str) -> str:
    """A float32 tensor of one value; each of `sides` is an int64 [1]."""
    shape = graph.node("Concat", *sides, axis=0) if len(sides) > 1 else sides[0]
    return graph.node("Expand", graph.constant(np.array(value, dtype=np.float32)), shape)


def zeros(graph: GraphBuilder, *shape: int) -> str:
    """A float32 constant of zeros; a side of 0 makes an empty cache."""
    return graph.constant(np.zeros(shape, dtype=np.float32), "zeros")
