"""The two networks of a model in the precision asked for.

float16 is a change of element types; the log-probabilities and their sums stay in float32. int8 replaces every linear
layer by one that rounds its inputs and weights, symmetrically as TensorRT wants it: in ONNX a QuantizeLinear and a
DequantizeLinear around each product, which the engine runs as one integer product. Ranges of the inputs are observed
on key presses in float32.

Shapes: i inputs, o outputs of a linear layer.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.tensorrt import encoder, search
from export.tensorrt.batch import Arrays, BatchEngine, KeyPress
from export.tensorrt.encoder import EncoderNetwork
from export.tensorrt.search import SearchNetwork
from export.tensorrt.sizes import Port, Profile, Sizes
from mtn_edge.models.mtn import MTN
from quantize.int8 import LEVELS, SMALLEST_SCALE, quantize_weight
from quantize.static import Observer, least_squares

Precision = Literal["fp32", "fp16", "int8"]
_BATCH = 8
"""Key presses that are observed at once."""


class Networks(NamedTuple):
    """Encoder and search, which share their weights."""

    encoder: EncoderNetwork
    search: SearchNetwork

    def engine(self, sizes: Sizes) -> BatchEngine:
        """Both on PyTorch."""
        encode = _runner(self.encoder, encoder.INPUTS, encoder.OUTPUTS)
        return BatchEngine(encode, _runner(self.search, search.INPUTS, search.OUTPUTS), sizes)


class Lowered(NamedTuple):
    """A network with the names of its inputs and outputs, as it is exported."""

    name: str
    network: nn.Module
    ports: dict[str, Port]
    outputs: tuple[str, ...]
    profile: Profile


def build_networks(model: MTN, sizes: Sizes) -> Networks:
    """The networks in float32, over the weights of `model`."""
    return Networks(EncoderNetwork(model).eval(), SearchNetwork(model, beam=sizes.beam, steps=sizes.steps).eval())


def lowered(networks: Networks, sizes: Sizes) -> list[Lowered]:
    """Both networks, ready to be exported."""
    return [
        Lowered("encoder", networks.encoder, sizes.encoder, encoder.OUTPUTS, sizes.profile(sizes.encoder)),
        Lowered("search", networks.search, sizes.search, search.OUTPUTS, sizes.profile(sizes.search)),
    ]


def in_half(networks: Networks) -> Networks:
    """A copy in float16."""
    copied = copy.deepcopy(networks)  # at once, so that they go on sharing
    for network in copied:
        network.half()
    return copied


def in_int8(networks: Networks, sizes: Sizes, presses: Sequence[KeyPress]) -> Networks:
    """A copy whose linear layers are rounded to 8 bits.

    Args:
        networks: in float32.
        sizes: theirs.
        presses: what the ranges of their inputs are observed on.

    Raises:
        UserError: a weight holds NaN, or is zero everywhere.
    """
    seen = _observe(networks, sizes, presses)
    copied = copy.deepcopy(networks)
    made: dict[nn.Module, QuantizedLinear] = {}
    for network, original in zip(copied, networks, strict=True):
        for name, layer in original.named_modules():
            if isinstance(layer, nn.Linear) and layer in seen:
                made.setdefault(layer, QuantizedLinear(name, layer, _scale(seen[layer])))
                network.set_submodule(name, made[layer])
    return copied


class QuantizedLinear(nn.Module):
    """A linear layer on rounded inputs and weights.

    Args:
        name: of the layer, for errors.
        linear: the layer.
        scale: of its inputs, one for all.
    """

    def __init__(self, name: str, linear: nn.Linear, scale: float) -> None:
        super().__init__()
        import torch.ao.quantization.fx._decomposed  # registers the operators

        weight = quantize_weight(name, np.ascontiguousarray(linear.weight.detach().numpy().T))
        self.scale = scale
        self.values: Tensor
        self.scales: Tensor
        self.zeros: Tensor
        self.register_buffer("values", torch.from_numpy(weight.values))  # int8 [i, o]
        self.register_buffer("scales", torch.from_numpy(weight.scale))  # [o]
        self.register_buffer("zeros", torch.zeros(len(weight.scale), dtype=torch.int64))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., i] to [..., o]."""
        operators = torch.ops.quantized_decomposed
        rounding = (self.scale, 0, -128, 127, torch.int8)
        x = operators.dequantize_per_tensor(operators.quantize_per_tensor(x, *rounding), *rounding)
        weight = operators.dequantize_per_channel(self.values, self.scales, self.zeros, 1, -128, 127, torch.int8)
        product: Tensor = x @ weight
        return product if self.bias is None else product + self.bias


@torch.inference_mode()
def _observe(networks: Networks, sizes: Sizes, presses: Sequence[KeyPress]) -> dict[nn.Module, Observer]:
    """What the linear layers of both networks are given."""
    seen: dict[nn.Module, Observer] = {}
    with ExitStack() as stack:
        for layer in {layer for network in networks for layer in network.modules() if isinstance(layer, nn.Linear)}:
            observer = Observer()

            def take(layer: nn.Module, inputs: tuple[Tensor], observer: Observer = observer) -> None:
                observer.add(inputs[0].numpy())
                seen[layer] = observer

            stack.callback(layer.register_forward_pre_hook(take).remove)
        engine = networks.engine(sizes)
        size = min(_BATCH, sizes.max_batch)
        for start in range(0, len(presses), size):
            engine.run(presses[start : start + size])
    return seen


def _scale(seen: Observer) -> float:
    low, high = least_squares(seen)
    return max(-low / LEVELS, high / LEVELS, float(SMALLEST_SCALE))


def _runner(network: nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    @torch.inference_mode()
    def run(feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        made = network(*(torch.from_numpy(feeds[name]) for name in inputs))
        return {name: tensor.numpy() for name, tensor in zip(outputs, made, strict=True)}

    return run
