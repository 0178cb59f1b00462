"""What one round of pruning removes from a network, of every kind that was asked for.

Tokens go first, then layers, then heads and feed-forward units of the layers that stay: importance is always measured
on the network at hand.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from mtn_edge.config import Config, ModelConfig
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.inputs import Inputs, read_inputs
from quantize.prune_choice import choose_heads, choose_layers, choose_units, count_heads, count_units
from quantize.prune_importance import Importance, by_gradient, by_magnitude
from quantize.prune_structures import drop_heads, drop_layers, drop_tokens, drop_units, fewest_layers, layer_groups
from quantize.vocabulary import choose_tokens, count_tokens

BATCHES = 64
"""Training batches that importance is measured on, at most."""


class Shares(NamedTuple):
    """What share of each kind of structure is removed; 0 for none."""

    ffn: float = 0.0
    heads: float = 0.0
    layers: float = 0.0
    vocab: float = 0.0


@dataclass(frozen=True)
class Network:
    """A network between two steps of pruning."""

    config: Config
    weights: dict[str, Tensor]
    tokenizer: Tokenizer
    original: ModelConfig
    """The settings before anything was removed: what shares of layers and tokens refer to."""
    whole: ModelConfig
    """The same with the layers that are left: what shares of heads and units refer to."""

    @property
    def model(self) -> ModelConfig:
        """The settings of what is left."""
        return self.config.model


class Examples:
    """What a dataset gives to a network, in the network's own tokens.

    Args:
        data: the dataset.
        seed: of the order of training batches.
    """

    def __init__(self, data: Dataset, seed: int) -> None:
        self.data, self.seed = data, seed
        self._read: tuple[Tokenizer, Inputs] | None = None

    def inputs(self, network: Network) -> Inputs:
        """Both splits; read again only when the tokens are others."""
        if self._read is None or self._read[0] is not network.tokenizer:
            data = replace(self.data, tokenizer=network.tokenizer)
            self._read = network.tokenizer, read_inputs(data, network.config, world=1)
        return self._read[1]


def check_shares(model: ModelConfig, shares: Shares) -> None:
    """Looks whether shares make sense for a network.

    Raises:
        UserError: a share is out of range, or there is nothing of that kind that it could remove.
    """
    groups = layer_groups(model)
    counts = {
        "ffn": ([count_units(model)], "feed-forward units"),
        "heads": ([count_heads(model)], "attention heads"),
        "layers": ([len(group) for group in groups], "layers"),
        "vocab": ([model.vocab_size], "tokens"),
    }
    rooms = {name: sizes for name, (sizes, _) in counts.items()}
    rooms["layers"] = [len(group) - fewest_layers(group) for group in groups]
    for name, share in shares._asdict().items():
        sizes, what = counts[name]
        if not 0 <= share < 1:
            raise UserError(
                f"`--{name}` is {share}, and the share that is removed must be above 0 and below 1",
                code="bad-setting",
                hint="give for example 0.5",
            )
        if share and not any(sizes):
            raise UserError(
                f"`--{name}` was given, and a {model.arch} network has no {what} to remove",
                code="nothing-to-prune",
                hint="it can be given a smaller vocabulary with --vocab",
            )
        if share and not any(min(_part(size, share), free) for size, free in zip(sizes, rooms[name], strict=True)):
            raise UserError(
                f"`--{name} {share}` removes none of the {what}, of which the network has "
                f"{' + '.join(f'{size:,}' for size in sizes)}",
                code="nothing-to-prune",
                hint="give a larger share" if any(rooms[name]) else "leave it out",
            )


def _part(count: int, share: float) -> int:
    return math.floor(count * share + 1e-9)


def remove(network: Network, shares: Shares, *, done: float, examples: Examples | None) -> Network:
    """What a round removes: `done` of the shares are gone after it.

    Args:
        network: before the round.
        shares: of all rounds together.
        done: above 0, at most 1.
        examples: to measure importance on; without them weights and the order of tokens count.

    Raises:
        UserError: more was to be removed than can go.
    """
    if shares.vocab:
        network = _remove_tokens(network, shares.vocab * done, examples)
    if shares.layers:
        network = _remove_layers(network, shares.layers * done, examples)
    if not (shares.heads or shares.ffn):
        return network
    importance = _importance(network, examples)
    model, weights = network.model, network.weights
    if shares.heads:
        count = _part(count_heads(network.whole), shares.heads * done) - count_heads(network.whole) + count_heads(model)
        gone = choose_heads(model, importance, max(0, count))
        model, weights = drop_heads(model, weights, gone.own, gone.memory)
    if shares.ffn:
        count = _part(count_units(network.whole), shares.ffn * done) - count_units(network.whole) + count_units(model)
        model, weights = drop_units(model, weights, choose_units(model, importance, max(0, count)))
    return replace(network, config=replace(network.config, model=model), weights=weights)


def _remove_tokens(network: Network, share: float, examples: Examples | None) -> Network:
    before = network.original.vocab_size
    count = _part(before, share) - (before - network.model.vocab_size)
    counts = None
    if examples is not None:
        queries = [query for session in examples.data.sessions("train") for query in session]
        counts = count_tokens(network.tokenizer, queries)
    kept = choose_tokens(network.tokenizer, counts, count)
    model, weights = drop_tokens(network.model, network.weights, kept)
    config = replace(network.config, model=model)
    return replace(network, config=config, weights=weights, tokenizer=network.tokenizer.restricted(kept))


def _remove_layers(network: Network, share: float, examples: Examples | None) -> Network:
    importance = _importance(network, examples)
    kept = [len(group) - _part(len(group), share) for group in layer_groups(network.original)]
    gone = choose_layers(network.model, importance, kept)
    model, weights = drop_layers(network.model, network.weights, gone)
    whole, _ = drop_layers(network.whole, {}, gone)
    return replace(network, config=replace(network.config, model=model), weights=weights, whole=whole)


def _importance(network: Network, examples: Examples | None) -> Importance:
    if examples is None:
        return by_magnitude(network.model, network.weights)
    batches = itertools.islice(examples.inputs(network).train.stream(examples.seed, 0), BATCHES)
    return by_gradient(network.model, network.weights, batches)
