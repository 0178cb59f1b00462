"""The network that a configuration describes, and networks of equal size."""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any

import torch
from torch import Tensor

from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, memory_heads, stacks
from mtn_edge.models.hred import HRED
from mtn_edge.models.mtn import MTN
from mtn_edge.models.seq2seq import Seq2Seq
from mtn_edge.models.tail_lstm import TailLSTM
from mtn_edge.models.transformer import Transformer

Network = MTN | Transformer | Seq2Seq | HRED | TailLSTM
"""Every network: `states` and `logits` for training, `start`, `append` and `step` for decoding."""


def build(config: ModelConfig) -> Network:
    """A network with random weights."""
    common: dict[str, Any] = {
        name: getattr(config, name) for name in ("vocab_size", "d_model", "max_tokens", "max_queries", "dropout")
    }
    sizes = stacks(config)
    match config.arch:
        case "mtn":
            return MTN(
                **common,
                head_width=head_width(config),
                memory_heads=memory_heads(config),
                query_layers=sizes["query"],
                session_layers=sizes["session"],
                decoder_layers=sizes["decoder"],
                decoder_runs=config.decoder_layers,
                mixer=config.mixer,
                projection=config.projection,
                refinement=config.refinement,
                memory=config.memory,
                norm=config.norm,
                history_layers=sizes.get("history", ()),
                max_sessions=config.max_sessions,
                embedding_rank=config.embedding_rank,
            )
        case "transformer":
            return Transformer(
                **common,
                head_width=head_width(config),
                memory_heads=memory_heads(config),
                encoder_layers=sizes["query"] + sizes["session"],
                decoder_layers=sizes["decoder"],
                max_session_tokens=config.max_session_tokens,
                norm=config.norm,
                embedding_rank=config.embedding_rank,
            )
        case "seq2seq":
            return Seq2Seq(**common, units=config.units)
        case "hred":
            return HRED(**common, units=config.units)
        case "tail-lstm":
            return TailLSTM(**common, units=config.units)


def narrowed(model: Network, states: Tensor) -> Tensor:
    """What the tied table is multiplied by, of decoder states [..., d]: [..., r] where it has a low rank."""
    return model.narrowed(states) if isinstance(model, MTN | Transformer) else states


def count_parameters(config: ModelConfig) -> int:
    """How many numbers a network is made of, the tied table once; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())


def match_parameters(config: ModelConfig, parameters: int) -> ModelConfig:
    """`config` with its free dimension set so that the network has as near as possible to so many parameters.

    The free dimension is `ffn` of the MTN and of the flat Transformer and `units` of the recurrent networks.
    """

    def sized(size: int) -> ModelConfig:
        if config.arch in ("mtn", "transformer"):
            return dataclasses.replace(config, ffn=size)
        return dataclasses.replace(config, units=size)

    def distance(size: int) -> int:
        return abs(count_parameters(sized(size)) - parameters)

    above = bisect.bisect_left(range(1, _LARGEST), parameters, key=lambda size: count_parameters(sized(size))) + 1
    return sized(min(max(1, above - 1), above, key=distance))


_LARGEST = 1 << 15
