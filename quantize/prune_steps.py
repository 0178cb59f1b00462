"""What one round of pruning removes from a network, of every kind that was asked for.

Tokens go first, then layers, then heads and feed-forward units of the layers that stay, then width of the embedding;
at last single weights become zero. Importance is always measured on the network at hand.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mtn_edge.config import Config, ModelConfig
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.tokenizer import BOS, EOS, Tokenizer
from mtn_edge.training.inputs import Inputs, read_inputs
from quantize.prune_choice import choose_heads, choose_layers, choose_units, count_heads, count_units
from quantize.prune_importance import Importance, by_gradient, by_magnitude
from quantize.prune_rank import narrow_table, require_smaller, table_width, usual_counts
from quantize.prune_sparsity import Sparsity, require_some, zero_weights
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
    rank: float = 0.0
    """Of the width of the embedding table."""
    sparsity: Sparsity = 0.0
    """Of the weights of each matrix, which become zero."""


@dataclass(frozen=True)
class Network:
    """A network between two steps of pruning."""

    config: Config
    weights: dict[str, Tensor]
    tokenizer: Tokenizer
    original: ModelConfig
    """The settings before anything was removed: what shares of layers, tokens and width refer to."""
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

    def counts(self, network: Network) -> Counter[int]:
        """How often each token occurs in the training split."""
        queries = [query for session in self.data.sessions("train") for query in session]
        return count_tokens(network.tokenizer, queries) + Counter({BOS: len(queries), EOS: len(queries)})


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
        "rank": ([table_width(model)], "dimensions of its embedding"),
    }
    rooms = {name: sizes for name, (sizes, _) in counts.items()}
    rooms["layers"] = [len(group) - fewest_layers(group) for group in groups]
    for name, (sizes, what) in counts.items():
        share: float = getattr(shares, name)
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
                hint="it can be given a smaller vocabulary with --vocab, or zeros with --sparsity",
            )
        if share and not any(min(_part(size, share), free) for size, free in zip(sizes, rooms[name], strict=True)):
            raise UserError(
                f"`--{name} {share}` removes none of the {what}, of which the network has "
                f"{' + '.join(f'{size:,}' for size in sizes)}",
                code="nothing-to-prune",
                hint="give a larger share" if any(rooms[name]) else "leave it out",
            )
    if shares.rank:
        tokens = model.vocab_size - _part(model.vocab_size, shares.vocab)
        require_smaller(replace(model, vocab_size=tokens), _rank_left(model, shares.rank), shares.rank)
    if shares.sparsity:
        require_some(model, shares.sparsity)


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
    if shares.heads or shares.ffn:
        network = _remove_parts(network, shares, done, examples)
    if shares.rank:
        network = _remove_width(network, shares.rank * done, examples)
    if shares.sparsity:
        train = replace(network.config.train, keep_zeros=True)
        weights = zero_weights(network.model, network.weights, shares.sparsity, done=done)
        network = replace(network, config=replace(network.config, train=train), weights=weights)
    return network


def _remove_parts(network: Network, shares: Shares, done: float, examples: Examples | None) -> Network:
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
    counts = examples.counts(network) if examples is not None else None
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


def _remove_width(network: Network, share: float, examples: Examples | None) -> Network:
    rank = min(table_width(network.model), _rank_left(network.original, share))
    size = len(network.tokenizer)
    if examples is not None:
        found = examples.counts(network)
        counts = torch.tensor([1.0 + found[token] for token in range(size)])  # every token can be typed
    else:
        counts = usual_counts(size)
    model, weights = narrow_table(network.model, network.weights, rank, counts)
    return replace(network, config=replace(network.config, model=model), weights=weights)


def _rank_left(original: ModelConfig, share: float) -> int:
    return max(1, table_width(original) - _part(table_width(original), share))


def _importance(network: Network, examples: Examples | None) -> Importance:
    if examples is None:
        return by_magnitude(network.model, network.weights)
    batches = itertools.islice(examples.inputs(network).train.stream(examples.seed, 0), BATCHES)
    return by_gradient(network.model, network.weights, batches)
