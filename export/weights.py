"""From a checkpoint's tensors to the tensors of the graphs: matrices as [inputs, outputs], constants folded in.

Shapes: v vocabulary, d width, r rank of the table, T token positions, L decoder layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mtn_edge.config import ModelConfig

Tensors = dict[str, NDArray[np.float32]]


def graph_tensors(state: Mapping[str, NDArray[np.float32]], config: ModelConfig) -> Tensors:
    """Lays out the state of a network for the graphs.

    - The table comes out as `embedding.weight` [d, v], as the output product wants it, times sqrt(d), as the embedding
      wants it; what a tied output gets too much is taken out of the decoder's last normalisation (recurrent decoders
      scale their states, see `export.cells`). One of low rank is [r, v] as it is, and its `embedding_up` is larger.
    - Linear maps are transposed to [inputs, outputs].
    - The cross-attention keys and values of all decoder layers are one map, `memory.kv` [d, L * 2d].
    - The query projection is [1, T] (position) or [T * d, d] (full).
    - The fusion's gate reads states that are smaller by what was taken out of them, and is larger by as much.
    - A recurrent layer is two maps, `.input` and `.hidden`; an output layer that is no table is `scores`.

    Args:
        state: tensors of the network's `state_dict()` by name.
        config: the model they belong to.
    """
    tensors: Tensors = {}
    cross: dict[str, list[NDArray[np.float32]]] = {"weight": [], "bias": []}
    factor = np.float32(table_factor(config))
    for own_name, tensor in state.items():
        name = _named(own_name, config)
        if ".cross_attention.kv." in name:
            cross[name.rpartition(".")[2]].append(tensor.T)
        elif name == "embedding.weight":
            tensors[name] = tensor.T * factor
        elif name == "embedding_up.weight":
            tensors[name] = tensor.T * np.float32(math.sqrt(config.d_model))
        elif name == "projection.weight":
            tensors[name] = tensor.reshape(-1, config.d_model) if config.projection == "full" else tensor[None]
        else:
            tensors[name] = tensor.T if tensor.ndim == 2 and "_positions." not in name else tensor
    if cross["weight"]:
        tensors["memory.kv.weight"] = np.concatenate(cross["weight"], axis=1)
        tensors["memory.kv.bias"] = np.concatenate(cross["bias"])
        for part in ("weight", "bias"):
            name = f"{last_decoder_norm(config)}.{part}"
            tensors[name] = tensors[name] / factor
    if "gate.linear.weight" in tensors and config.arch != "tail-lstm":  # it reads states that meet the table
        gate = tensors["gate.linear.weight"].copy()
        gate[: config.d_model] *= factor
        tensors["gate.linear.weight"] = gate
    return {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}


def table_factor(config: ModelConfig) -> float:
    """How much larger the tied table is in the graphs than in the network, and the states that meet it smaller."""
    return 1.0 if config.embedding_rank else math.sqrt(config.d_model)


def _named(name: str, config: ModelConfig) -> str:
    """A tensor's name in the graphs, where each belongs to a group by how its name begins."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    layer, _, parameter = name.rpartition(".")
    if parameter.endswith("_l0"):
        kind, _, side = parameter.removesuffix("_l0").partition("_")
        return f"{layer}.{'input' if side == 'ih' else 'hidden'}.{kind}"
    return f"scores.{parameter}" if config.arch == "tail-lstm" and layer == "output" else name


def graph_name(name: str, config: ModelConfig) -> str:
    """The tensor of the graphs that holds the network's tensor `name`, or holds it among others."""
    return f"memory.kv.{name.rpartition('.')[2]}" if ".cross_attention.kv." in name else _named(name, config)


_OTHER_NAMES = {
    "history.projection": "projection.history",
    "history.positions.weight": "history_positions.weight",
    "recency.weight": "recency_positions.weight",
}


def last_decoder_norm(config: ModelConfig) -> str:
    """The normalisation whose output meets the output table and nothing else."""
    if config.norm == "pre":
        return "decoder_norm"
    return f"decoder_layers.{config.decoder_layers - 1}.feed_forward_norm"
