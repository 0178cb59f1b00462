"""How large each layer of a network is: all alike as the settings say, or each its own once a network was pruned.

A head keeps its width when others go. The attentions whose keys and values are kept from query to query lie in one
tensor for all layers of their stack, so that those have equally many heads: the self-attentions of the session
encoder, and the cross-attentions of the decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mtn_edge.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtn_edge.config import ModelConfig


class LayerSize(NamedTuple):
    """The sizes of one layer."""

    heads: int
    """Heads of its self-attention; a decoder layer with a recurrent unit has none, and the number says nothing."""
    ffn: int
    """Units of its feed-forward layer."""


Stacks = dict[str, list[LayerSize]]
"""The layers with weights of their own, by the part of the network that they belong to."""


def head_width(config: ModelConfig) -> int:
    """Width of an attention head: `config.heads` is their number before any were pruned."""
    return config.d_model // config.heads


def memory_heads(config: ModelConfig) -> int:
    """Heads of every cross-attention."""
    return config.memory_heads or config.heads


def stacks(config: ModelConfig) -> Stacks:
    """The sizes of all Transformer layers: `query`, `session`, `history` (three levels) and `decoder`.

    The encoder of the flat Transformer is `query` and then `session`. Recurrent networks have none.
    """
    counts = _counts(config)
    total = sum(counts.values())
    heads = config.layer_heads or (config.heads,) * total
    ffn = config.layer_ffn or (config.ffn,) * total
    sizes = iter([LayerSize(*size) for size in zip(heads, ffn, strict=True)])
    return {name: [next(sizes) for _ in range(count)] for name, count in counts.items()}


def settings_of(sizes: Mapping[str, list[LayerSize]]) -> dict[str, tuple[int, ...]]:
    """`layer_heads` and `layer_ffn` that say those sizes, for `dataclasses.replace`."""
    flat = [size for stack in sizes.values() for size in stack]
    return {"layer_heads": tuple(size.heads for size in flat), "layer_ffn": tuple(size.ffn for size in flat)}


def check_layer_sizes(config: ModelConfig) -> None:
    """Looks whether the sizes of layers fit the network.

    Raises:
        UserError: too few or too many sizes, one below 1, or session layers that differ in heads.
    """
    total = sum(_counts(config).values())
    for name in ("layer_heads", "layer_ffn"):
        sizes: tuple[int, ...] = getattr(config, name)
        if sizes and (len(sizes) != total or min(sizes) < 1):
            rule = f"empty or hold a number of at least 1 for each of the {total} layers"
            raise _bad(f"model.{name}", list(sizes), rule)
    session = stacks(config).get("session", []) if config.arch == "mtn" else []
    if len({size.heads for size in session}) > 1:
        raise _bad("model.layer_heads", list(config.layer_heads), "the same number for all session layers")
    if config.memory_heads < 0:
        raise _bad("model.memory_heads", config.memory_heads, "at least 0")


def _counts(config: ModelConfig) -> dict[str, int]:
    if config.arch not in ("mtn", "transformer"):
        return {}
    return {
        "query": config.query_layers,
        "session": config.session_layers,
        **({"history": config.history_layers} if config.arch == "mtn" and config.levels == 3 else {}),
        "decoder": config.decoder_weights,
    }


def _bad(key: str, value: object, rule: str) -> UserError:
    return UserError(f"`{key}` is {value!r}, and it must be {rule}", code="bad-setting", hint="change that setting")
