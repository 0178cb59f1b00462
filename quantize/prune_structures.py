"""What can be taken out of a Transformer: layers, feed-forward units, attention heads; weights and settings follow.

Removed dimensions are gone from the tensors, so that PyTorch and every graph compute less. A head of a cross-attention
goes from all decoder layers at once: these share the table of ages (`recency`) and one tensor of cached keys.

Shapes: d width, h heads, e width of a head, f units of a feed-forward layer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import Stacks, head_width, memory_heads, settings_of, stacks

Tensors = dict[str, Tensor]
Pruned = tuple[ModelConfig, Tensors]
_MODULES = {
    "mtn": {
        "query": "query_layers",
        "session": "session_layers",
        "history": "history.layers",
        "decoder": "decoder_layers",
    },
    "transformer": {"query": "encoder_layers", "session": "encoder_layers", "decoder": "decoder_layers"},
}
_COUNTS = {
    "query": "query_layers",
    "session": "session_layers",
    "history": "history_layers",
    "decoder": "decoder_layers",
}


def layer_names(config: ModelConfig) -> dict[str, list[str]]:
    """The name of each layer (`query_layers.0`) by its stack, in the order of `layer_sizes.stacks`."""
    names: dict[str, list[str]] = {}
    taken: dict[str, int] = {}
    for stack, sizes in stacks(config).items():
        module = _MODULES[config.arch][stack]
        first = taken.get(module, 0)
        names[stack] = [f"{module}.{first + number}" for number in range(len(sizes))]
        taken[module] = first + len(sizes)
    return names


def layer_groups(config: ModelConfig) -> list[list[str]]:
    """The layers that stand on one another, of which a share goes: the flat Transformer's encoder is one group."""
    names = layer_names(config)
    if config.arch == "transformer":
        return [names["query"] + names["session"], names["decoder"]]
    return list(names.values())


def fewest_layers(group: Sequence[str]) -> int:
    """How many layers of a group must stay; the settings give the flat Transformer's encoder two at least."""
    return 2 if group[0].startswith("encoder_layers.") else 1


def drop_layers(config: ModelConfig, weights: Mapping[str, Tensor], gone: Collection[str]) -> Pruned:
    """The network without the layers `gone`; those above move down."""
    sizes: Stacks = {}
    renamed: dict[str, str] = {}
    places: dict[str, int] = {}
    kept = {
        stack: [(name, size) for name, size in zip(names, stacks(config)[stack], strict=True) if name not in gone]
        for stack, names in layer_names(config).items()
    }
    if config.arch == "transformer":  # one encoder: its layers may count as either part, and each part has one
        encoder = kept["query"] + kept["session"]
        first = min(max(len(kept["query"]), 1), len(encoder) - 1)
        kept |= {"query": encoder[:first], "session": encoder[first:]}
    for stack, layers in kept.items():
        module = _MODULES[config.arch][stack]
        for name, _ in layers:
            renamed[name] = f"{module}.{places.get(module, 0)}"
            places[module] = places.get(module, 0) + 1
        sizes[stack] = [size for _, size in layers]
    left: Tensors = {}
    for name, tensor in weights.items():
        layer = _layer_of(name, [*renamed, *gone])
        if layer is None:
            left[name] = tensor
        elif layer in renamed:
            left[renamed[layer] + name.removeprefix(layer)] = tensor
    # A decoder that shares its weights runs as often as before.
    counted = {stack: count for stack, count in _COUNTS.items() if stack in sizes and not _is_shared(config, stack)}
    counts = {count: len(sizes[stack]) for stack, count in counted.items()}
    return replace(config, **counts, **settings_of(sizes)), left  # type: ignore[arg-type]


def drop_units(config: ModelConfig, weights: Mapping[str, Tensor], gone: Mapping[str, Collection[int]]) -> Pruned:
    """The network without some feed-forward units, given by layer."""
    left = dict(weights)
    sizes = stacks(config)
    for stack, names in layer_names(config).items():
        for place, name in enumerate(names):
            kept = _others(sizes[stack][place].ffn, gone.get(name, ()))
            module = f"{name}.feed_forward"
            for part in ("up.weight", "up.bias"):
                left[f"{module}.{part}"] = left[f"{module}.{part}"][kept]
            left[f"{module}.down.weight"] = left[f"{module}.down.weight"][:, kept]
            sizes[stack][place] = sizes[stack][place]._replace(ffn=len(kept))
    return replace(config, **settings_of(sizes)), left  # type: ignore[arg-type]


def drop_heads(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    gone: Mapping[str, Collection[int]],
    gone_from_memory: Collection[int],
) -> Pruned:
    """The network without some heads of self-attentions, given by layer, and without some of all cross-attentions."""
    left = dict(weights)
    sizes = stacks(config)
    e = head_width(config)
    for stack, names in layer_names(config).items():
        for place, name in enumerate(names):
            if f"{name}.attention.qkv.weight" not in left:
                continue  # a recurrent unit
            kept = _others(sizes[stack][place].heads, gone.get(name, ()))
            _keep_heads(left, f"{name}.attention.qkv", kept, e, parts=3)
            _keep_inputs(left, f"{name}.attention.out", kept, e)
            sizes[stack][place] = sizes[stack][place]._replace(heads=len(kept))
    kept = _others(memory_heads(config), gone_from_memory)
    for name in layer_names(config)["decoder"]:
        _keep_heads(left, f"{name}.cross_attention.query", kept, e, parts=1)
        _keep_heads(left, f"{name}.cross_attention.kv", kept, e, parts=2)
        _keep_inputs(left, f"{name}.cross_attention.out", kept, e)
    if "recency.weight" in left:
        left["recency.weight"] = left["recency.weight"][:, kept]
    return replace(config, memory_heads=len(kept), **settings_of(sizes)), left  # type: ignore[arg-type]


def drop_tokens(config: ModelConfig, weights: Mapping[str, Tensor], kept: Sequence[int]) -> Pruned:
    """A network of any architecture with the rows of the tokens `kept` alone, in their order."""
    left = dict(weights)
    rows = torch.tensor(kept)
    tables = ["embedding.weight", *(["output.weight", "output.bias"] if config.arch == "tail-lstm" else [])]
    for name in tables:
        left[name] = left[name][rows]
    return replace(config, vocab_size=len(kept)), left


def _keep_heads(tensors: Tensors, name: str, kept: list[int], e: int, *, parts: int) -> None:
    """Of a map to `parts` times [h, e] numbers those of the heads `kept`."""
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    d = weight.shape[1]
    tensors[f"{name}.weight"] = weight.view(parts, -1, e, d)[:, kept].reshape(-1, d)
    tensors[f"{name}.bias"] = bias.view(parts, -1, e)[:, kept].flatten()


def _keep_inputs(tensors: Tensors, name: str, kept: list[int], e: int) -> None:
    """Of a map from [h, e] numbers the columns of the heads `kept`."""
    weight = tensors[f"{name}.weight"]
    tensors[f"{name}.weight"] = weight.view(len(weight), -1, e)[:, kept].flatten(1)


def _others(count: int, gone: Collection[int]) -> list[int]:
    return [number for number in range(count) if number not in gone]


def _layer_of(name: str, layers: Collection[str]) -> str | None:
    return next((layer for layer in layers if name.startswith(f"{layer}.")), None)


def _is_shared(config: ModelConfig, stack: str) -> bool:
    return stack == "decoder" and config.decoder_weights != config.decoder_layers
