"""Ranges as neural-compressor finds them (`StaticQuantConfig`), for products of graphs that are not exported.

The library quantizes a module that it exports whole. Our graphs are written by hand, so it gets a module that holds
the network's products alone, side by side, and is calibrated with what the network gives to each of them. Its observers
then say how each input is to be quantized, and the graphs are built with that.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mtn_edge.data.batches import Batch
from mtn_edge.models.build import Network
from quantize.int8 import SMALLEST_SCALE, Activation
from quantize.static import feed

ALGORITHMS = ("minmax", "kl")
"""The library's observers: a moving mean of extremes, and a histogram whose range has the smallest error."""
_ROWS = 16_384
"""Rows of inputs that are kept for each product, at most."""
_PARTS = 16
"""Parts in which they are observed, as the moving mean is one over calls."""
_FEWEST = 2 * _PARTS
"""A product that is given fewer rows is not observed."""


def is_installed() -> bool:
    """Whether the extra `inc` is there."""
    return importlib.util.find_spec("neural_compressor") is not None


class _Products(nn.Module):
    """Linear layers side by side, each with inputs of its own."""

    def __init__(self, layers: Iterable[nn.Linear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        """The output of each layer."""
        return [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]


def calibrate(
    model: Network, batches: Iterable[Batch], named: Mapping[nn.Linear, str], table: str | None, algorithm: str
) -> dict[str, Activation]:
    """How the inputs of each product are quantized, by the library's observers.

    Args:
        model: the network, in evaluation mode.
        batches: sessions.
        named: the name of each linear layer.
        table: the name of the tied output product; None where there is none.
        algorithm: one of `ALGORITHMS`.
    """
    with _quiet():
        from neural_compressor.torch.export import export
        from neural_compressor.torch.quantization import StaticQuantConfig, prepare

    layers = {name: module for module, name in named.items()}
    if table is not None:
        layers[table] = _tied(model)
    inputs = _inputs_of(model, batches, named, table)
    layers = {name: layer for name, layer in layers.items() if name in inputs}
    parts = list(zip(*(inputs[name].tensor_split(_PARTS) for name in layers), strict=True))
    with _quiet():
        some = [{0: torch.export.Dim(f"rows_{number}", min=2, max=_ROWS)} for number in range(len(layers))]
        products = _Products(layers.values()).eval()
        exported = export(products, (list(parts[0]),), dynamic_shapes={"inputs": some})
        prepared = prepare(exported, StaticQuantConfig(act_dtype="uint8", act_sym=False, act_algo=algorithm))
        for each in parts:
            prepared(list(each))
        return dict(zip(layers, _found(prepared), strict=True))


def _inputs_of(
    model: Network, batches: Iterable[Batch], named: Mapping[nn.Linear, str], table: str | None
) -> dict[str, Tensor]:
    """Inputs of each product [n, i]; of more than `_ROWS` every second one is dropped, again and again."""
    kept: dict[str, Tensor] = {}

    def take(name: str, x: Tensor) -> None:
        rows = x.reshape(-1, x.shape[-1]).clone()
        rows = torch.cat([kept[name], rows]) if name in kept else rows
        while len(rows) > _ROWS:
            rows = rows[::2]
        kept[name] = rows

    feed(model, batches, named, table, take)
    return {name: rows for name, rows in kept.items() if len(rows) >= _FEWEST}


def _tied(model: Network) -> nn.Linear:
    table = model.embedding.weight
    layer = nn.Linear(table.shape[1], table.shape[0], bias=False)
    layer.weight = table
    return layer


def _found(prepared: Any) -> Iterator[Activation]:
    """What the observer before each product says, in the order of the products."""
    for node in prepared.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.linear.default:
            scale, zero_point = getattr(prepared, node.args[0].target).calculate_qparams()
            yield Activation(max(float(scale), float(SMALLEST_SCALE)), int(zero_point))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the library's banners to itself."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
