"""The network that a configuration describes."""

from __future__ import annotations

from mtn_edge.config import ModelConfig
from mtn_edge.models.mtn import MTN

Network = MTN
"""Every network: `states` and `logits` for training, `start`, `append` and `step` for decoding."""


def build(config: ModelConfig) -> Network:
    """A network with random weights."""
    return MTN(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        heads=config.heads,
        ffn=config.ffn,
        query_layers=config.query_layers,
        session_layers=config.session_layers,
        decoder_layers=config.decoder_layers,
        share_decoder=config.share_decoder,
        mixer=config.mixer,
        max_tokens=config.max_tokens,
        max_queries=config.max_queries,
        projection=config.projection,
        memory=config.memory,
        norm=config.norm,
        dropout=config.dropout,
    )
