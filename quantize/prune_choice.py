"""Which structures go: the least important ones of the whole network, with one left wherever one is needed.

Heads of all attentions compete with each other, and so do feed-forward units of all layers. Two kinds of heads go
together, because the caches of all their layers lie in one tensor (`layer_sizes`): the k-th weakest of each session
layer of an MTN, and one and the same head of all cross-attentions. Such a set competes with the mean of its scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch

from mtn_edge.config import ModelConfig
from mtn_edge.errors import UserError
from mtn_edge.layer_sizes import memory_heads, stacks
from quantize.prune_importance import Importance
from quantize.prune_structures import fewest_layers, layer_groups, layer_names


class Heads(NamedTuple):
    """Heads that go."""

    own: dict[str, set[int]]
    """Of self-attentions, by layer."""
    memory: set[int]
    """Of all cross-attentions."""


class _Set(NamedTuple):
    """Heads that go together."""

    score: float
    """The mean of their scores."""
    place: str
    """Where at least one such set must stay."""
    heads: tuple[tuple[str, int], ...]
    """The attention and the number of each."""


def count_heads(config: ModelConfig) -> int:
    """Heads of all attentions."""
    if not stacks(config):
        return 0
    own = sum(size.heads for stack, sizes in stacks(config).items() for size in sizes if _attends(config, stack))
    return own + config.decoder_weights * memory_heads(config)


def count_units(config: ModelConfig) -> int:
    """Feed-forward units of all layers."""
    return sum(size.ffn for sizes in stacks(config).values() for size in sizes)


def choose_heads(config: ModelConfig, importance: Importance, count: int) -> Heads:
    """The `count` heads that are needed least, or one fewer where only pairs are left.

    Raises:
        UserError: an attention would keep none.
    """
    sets = _sets(config, importance)
    places = defaultdict(list)
    for each in sets:
        places[each.place].append(each)
    most = sum(len(each.heads) for found in places.values() for each in sorted(found)[:-1])
    if count > most:
        raise _too_many("head", "attention", count, most, count_heads(config))
    left = {place: len(found) for place, found in places.items()}
    gone = Heads(defaultdict(set), set())
    for each in sorted(sets):
        if len(each.heads) > count or left[each.place] == 1:
            continue
        count -= len(each.heads)
        left[each.place] -= 1
        for attention, head in each.heads:
            layer, _, kind = attention.rpartition(".")
            (gone.memory if kind == "cross_attention" else gone.own[layer]).add(head)
    return gone


def choose_units(config: ModelConfig, importance: Importance, count: int) -> dict[str, set[int]]:
    """The `count` feed-forward units that are needed least, by layer.

    Raises:
        UserError: a layer would keep none.
    """
    owners = [(layer, unit) for layer, scores in importance.units.items() for unit in range(len(scores))]
    most = len(owners) - len(importance.units)
    if count > most:
        raise _too_many("unit", "feed-forward layer", count, most, count_units(config))
    scores = []
    for of_layer in importance.units.values():
        kept = of_layer.clone()
        kept[kept.argmax()] = torch.inf
        scores.append(kept)
    gone: dict[str, set[int]] = defaultdict(set)
    for place in torch.cat(scores).argsort(stable=True)[:count].tolist():
        layer, unit = owners[place]
        gone[layer].add(unit)
    return gone


def choose_layers(config: ModelConfig, importance: Importance, kept: Sequence[int]) -> set[str]:
    """The layers that are needed least, of each group those beyond the number to keep."""
    gone = set()
    for group, count in zip(layer_groups(config), kept, strict=True):
        ranked = sorted(group, key=importance.layers.__getitem__)
        gone |= set(ranked[: max(0, len(group) - max(count, fewest_layers(group)))])
    return gone


def _sets(config: ModelConfig, importance: Importance) -> list[_Set]:
    names = layer_names(config)
    found = []
    for stack, layers in names.items():
        attentions = [f"{layer}.attention" for layer in layers if f"{layer}.attention" in importance.heads]
        ranked = [
            [
                (float(importance.heads[name][head]), name, int(head))
                for head in importance.heads[name].argsort(stable=True)
            ]
            for name in attentions
        ]
        if stack == "session" and config.arch == "mtn":
            found += [_together("session", list(each)) for each in zip(*ranked, strict=True)]
        else:
            found += [_together(each[1], [each]) for heads in ranked for each in heads]
    crossed = [f"{layer}.cross_attention" for layer in names["decoder"]]
    for head in range(memory_heads(config)):
        found.append(_together("memory", [(float(importance.heads[name][head]), name, head) for name in crossed]))
    return found


def _together(place: str, heads: Sequence[tuple[float, str, int]]) -> _Set:
    score = sum(score for score, _, _ in heads) / len(heads)
    return _Set(score, place, tuple((name, head) for _, name, head in heads))


def _attends(config: ModelConfig, stack: str) -> bool:
    return not (stack == "decoder" and config.arch == "mtn" and config.mixer == "ssru")


def _too_many(what: str, where: str, count: int, most: int, total: int) -> UserError:
    return UserError(
        f"{count:,} of {total:,} {what}s were to be removed, and {most:,} can go at most: every {where} keeps one",
        code="bad-setting",
        hint="give a smaller share",
    )
