"""The embedding table as the product of two smaller matrices: what of its width is needed least goes.

The table E [v, d] becomes A [v, r] and the maps U and D of `mtn_edge.models.low_rank`, with the smallest squared error
of all tables of that rank (Eckart and Young 1936). With counts the error of a token weighs as much as the token occurs
(as in Hsu et al. 2022, arXiv 2207.00112, which weigh a row by its Fisher information): one that is hardly ever read or
written may be far from what it was.

Shapes: v vocabulary, d width, k width of the table before, r after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mtn_edge.config import ModelConfig
from mtn_edge.errors import UserError
from mtn_edge.tokenizer import BOS, EOS, MIN_VOCAB

TABLE, UP, DOWN = "embedding.weight", "embedding_up.weight", "embedding_down.weight"


def table_width(config: ModelConfig) -> int:
    """The width of the table that a share refers to; 0 where it cannot be narrowed."""
    return (config.embedding_rank or config.d_model) if config.arch in ("mtn", "transformer") else 0


def narrow_table(
    config: ModelConfig, weights: Mapping[str, Tensor], rank: int, counts: Tensor | None
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The network with a table of width `rank`.

    A table that has maps already is narrowed for both of them together: for the smallest error of what is looked up
    and of what is scored with.

    Args:
        config: the settings of the network.
        weights: its tensors.
        rank: r, at most the width that the table has.
        counts: [v] how much each token counts, above 0; None for all alike.
    """
    table = weights[TABLE].double()
    if UP in weights:
        whole = torch.cat([table @ weights[UP].double().T, table @ weights[DOWN].double()], dim=1)  # [v, 2 d]
    else:
        whole = torch.cat([table, table], dim=1)
    weighted = whole if counts is None else whole * counts.double().sqrt()[:, None]
    directions = torch.linalg.svd(weighted, full_matrices=False).Vh[:rank]  # [r, 2 d]
    # Both maps together have rows of norm one; each of them has when they come from one table.
    looked_up, scored = (directions * math.sqrt(2)).chunk(2, dim=1)  # [r, d] each
    narrowed = {TABLE: whole @ directions.T / math.sqrt(2), UP: looked_up.T, DOWN: scored}
    left = dict(weights) | {name: tensor.float().contiguous() for name, tensor in narrowed.items()}
    return replace(config, embedding_rank=rank), left


def usual_counts(tokens: int) -> Tensor:
    """How much each of so many tokens counts when nobody has counted: Zipf's law over the order of learning.

    The n-th merge counts 1 / n, the single bytes as little as the last one, the ends of a query as much as the first.
    """
    counts = 1 / torch.arange(1 - MIN_VOCAB, tokens - MIN_VOCAB + 1).clamp(min=1).double()
    counts[:MIN_VOCAB] = 1 / tokens
    counts[[BOS, EOS]] = 1
    return counts


def require_smaller(config: ModelConfig, rank: int, share: float) -> None:
    """Refuses a rank whose table and maps are no smaller than what stands in their place now.

    Args:
        config: the settings, with the tokens that will be left.
        rank: what is asked for.
        share: the share that it came from.

    Raises:
        UserError: they are not.
    """
    v, d = config.vocab_size, config.d_model
    before = v * d if not config.embedding_rank else (v + 2 * d) * config.embedding_rank
    after = (v + 2 * d) * rank
    if after >= before:
        raise UserError(
            f"`--rank {share}` leaves {rank:,} of {table_width(config):,} dimensions, and with its two maps such an "
            f"embedding has {after:,} numbers in place of {before:,}",
            code="nothing-to-prune",
            hint=f"give a larger share, so that fewer than {-(-before // (v + 2 * d)):,} dimensions are left",
        )
