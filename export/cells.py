"""One step of each recurrent decoder as graph nodes (see `export.recurrent_decoder.Cell`).

Shapes: r rows, m tokens of the memory, d width, U units.
"""

from __future__ import annotations

from export.graph_builder import FLOAT, GraphBuilder, Shape
from export.graph_layers import Layers, zeros
from export.recurrent_decoder import Cell
from mtn_edge.config import ModelConfig


def cell_of(graph: GraphBuilder, config: ModelConfig) -> Cell:
    """The cell of a model's decoder; the memory becomes inputs of `graph`."""
    return _ssru(graph, config)


def _ssru(graph: GraphBuilder, config: ModelConfig) -> Cell:
    """A Transformer decoder with simple recurrent units: one vector [r, d] for each layer."""
    h, e = config.heads, config.d_model // config.heads
    shape: Shape = [config.decoder_weights, h, "m", e]
    keys = graph.split(graph.input("memory_keys", FLOAT, shape), config.decoder_weights, axis=0)
    values = graph.split(graph.input("memory_values", FLOAT, shape), config.decoder_weights, axis=0)
    which = [run % config.decoder_weights for run in range(config.decoder_layers)]
    names = [f"decoder_layers.{number}" for number in which]
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]

    def step(layers: Layers, embedded: str, place: str, cells: list[str]) -> tuple[str, list[str]]:
        inner = layers.graph
        places = inner.node("Expand", place, inner.node("Shape", embedded, start=0, end=1))
        position = inner.node("Gather", layers.tensor("decoder_positions.weight"), places)  # [r, d]
        rows = inner.node("Unsqueeze", embedded, inner.integers(0))
        stream = layers.begin(rows, position, f"{names[0]}.attention_norm")  # [1, r, d]
        kept = []
        for number, name, following, past in zip(which, names, followings, cells, strict=True):
            mixed, cell = layers.ssru(stream.normed, f"{name}.attention", past)
            kept.append(cell)
            stream = layers.decoder_rest(mixed, stream, name, following, (keys[number], values[number]))
        return inner.node("Reshape", stream.normed, inner.integers(-1, config.d_model)), kept

    start = (config.d_model, zeros(graph, 1, config.d_model))
    return Cell({f"cell_{run}": start for run in range(config.decoder_layers)}, step)
