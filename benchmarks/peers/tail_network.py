"""The network of the tail model, trained for a minute so that its search behaves, and lowered to two int8 graphs.

An LSTM of 512 units reads, at each step, the 64-wide embedding of the last token beside 64 numbers that stand for the
previous query (a mean of its embeddings through one layer); about 600 tokens. `STEPS` batches do not make it a good
model, but give it the confidence of a trained one: that decides how long its search goes on.

Shapes: b batch, t tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.graph_builder import CONTRIB, FLOAT, INT64, GraphBuilder
from mtn_edge.data.dataset import Dataset
from mtn_edge.tokenizer import BOS, EOS, PAD, Tokenizer
from quantize.int8 import quantize_weight

WIDTH, UNITS, VOCABULARY = 64, 512, 600
"""Of embeddings and of the previous query's encoding; of the LSTM; tokens."""
STEPS, BATCH, LONGEST = 400, 48, 24
"""Batches of the training, queries in each, tokens of a query at most."""


class Words:
    """Greedy longest match over a vocabulary of single bytes and learnt pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.spelt = tokenizer.token_bytes
        self._numbers = {spelt: number for number, spelt in enumerate(self.spelt) if spelt}
        self._longest = max(map(len, self._numbers))

    def encode(self, text: str) -> list[int]:
        """Token numbers of `text`."""
        rest, tokens = text.encode(), []
        while rest:
            length = next(n for n in range(min(self._longest, len(rest)), 0, -1) if rest[:n] in self._numbers)
            tokens.append(self._numbers[rest[:length]])
            rest = rest[length:]
        return tokens


class TailNetwork(nn.Module):
    """The next token of a query, given the one before it in the session."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.context = nn.Linear(WIDTH, WIDTH)
        self.lstm = nn.LSTM(2 * WIDTH, UNITS, batch_first=True)
        self.output = nn.Linear(UNITS, vocabulary)

    def forward(self, previous: Tensor, tokens: Tensor) -> Tensor:
        """Logits [b, t, V] from the previous query [b, t'] and the tokens before each [b, t]."""
        real = (previous != PAD)[..., None]
        mean = (self.embedding(previous) * real).sum(1) / real.sum(1).clamp(min=1)
        context = torch.tanh(self.context(mean))[:, None].expand(-1, tokens.shape[1], -1)
        states, _ = self.lstm(torch.cat([self.embedding(tokens), context], dim=-1))
        logits: Tensor = self.output(states)
        return logits


def make_tail(dataset: Dataset, folder: Path, *, seed: int = 1) -> None:
    """Trains on the dataset's training split; writes `tokenizer.json`, `encode.onnx` and `step.onnx` into `folder`."""
    sessions = dataset.sessions("train")
    tokenizer = Tokenizer.train((query for queries in sessions for query in queries), VOCABULARY)
    words = Words(tokenizer)
    encoded = [[words.encode(query)[:LONGEST] for query in queries] for queries in sessions]
    pairs = [pair for queries in encoded for pair in itertools.pairwise(queries)]
    torch.manual_seed(seed)
    network = TailNetwork(len(tokenizer))
    _train(network, pairs, random.Random(seed))
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    (folder / "encode.onnx").write_bytes(_encode_graph(weights).SerializeToString())
    (folder / "step.onnx").write_bytes(_step_graph(weights).SerializeToString())
    tokenizer.save(folder / "tokenizer.json")


def _train(network: TailNetwork, pairs: Sequence[tuple[list[int], list[int]]], chance: random.Random) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(STEPS):
        drawn = [chance.choice(pairs) for _ in range(BATCH)]
        previous = _padded([first for first, _ in drawn])
        target = _padded([[*second, EOS] for _, second in drawn])
        given = torch.cat([torch.full((BATCH, 1), BOS), target[:, :-1]], dim=1)
        loss = F.cross_entropy(network(previous, given).flatten(0, 1), target.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def _padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def _encode_graph(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """`tokens` int64 [t] of the previous query to `context` float32 [1, 64]."""
    graph = GraphBuilder("encode")
    rows = graph.node("Gather", graph.constant(weights["embedding.weight"]), graph.input("tokens", INT64, ["t"]))
    mean = graph.node("ReduceMean", rows, graph.integers(0), keepdims=1)
    context = graph.node("Tanh", _linear(graph, mean, weights["context.weight"].T, weights["context.bias"]))
    graph.output(context, "context", FLOAT, [1, WIDTH])
    return graph.model()


def _step_graph(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """`token` int64 [1], `context` [1, 64], `hidden` and `cell` [1, 512] to probabilities [1, V] and the new state."""
    graph = GraphBuilder("step")
    token, context = graph.input("token", INT64, [1]), graph.input("context", FLOAT, [1, WIDTH])
    hidden, cell = (graph.input(name, FLOAT, [1, UNITS]) for name in ("hidden", "cell"))
    embedded = graph.node("Gather", graph.constant(weights["embedding.weight"]), token)
    # All four gates from one product; PyTorch orders them input, forget, candidate, output.
    matrix = np.concatenate([weights["lstm.weight_ih_l0"], weights["lstm.weight_hh_l0"]], axis=1).T
    bias = weights["lstm.bias_ih_l0"] + weights["lstm.bias_hh_l0"]
    gates = _linear(graph, graph.node("Concat", embedded, context, hidden, axis=1), matrix, bias)
    enter, forget, candidate, leave = graph.split(gates, 4, axis=1)
    kept = graph.node("Mul", graph.node("Sigmoid", forget), cell)
    added = graph.node("Mul", graph.node("Sigmoid", enter), graph.node("Tanh", candidate))
    new_cell = graph.node("Add", kept, added)
    new_hidden = graph.node("Mul", graph.node("Sigmoid", leave), graph.node("Tanh", new_cell))
    logits = _linear(graph, new_hidden, weights["output.weight"].T, weights["output.bias"])
    graph.output(graph.node("Softmax", logits, axis=-1), "probabilities", FLOAT, [1, len(weights["output.bias"])])
    graph.output(new_hidden, "new_hidden", FLOAT, [1, UNITS])
    graph.output(new_cell, "new_cell", FLOAT, [1, UNITS])
    return graph.model()


def _linear(graph: GraphBuilder, x: str, matrix: np.ndarray, bias: np.ndarray) -> str:
    """`x` [1, i] times an int8 `matrix` [i, o], plus `bias` [o]."""
    weight = quantize_weight("matrix", np.ascontiguousarray(matrix))
    values, scale = graph.constant(weight.values), graph.constant(weight.scale)
    return graph.node("DynamicQuantizeMatMul", x, values, scale, "", graph.constant(bias), domain=CONTRIB)
