"""An embedding table of low rank (Lan et al. 2020, arXiv 1909.11942, section 3.1).

The table is A [v, r] in place of [v, d]. A token is looked up as A[token] U, and the scores of a state h are A (D h):
the product with the whole vocabulary, the dearest of a decoding step, costs r / d of what it did. As in the paper's
code the output has a map of its own; where both come from a table of full width, D begins as the transpose of U.

Shapes: v vocabulary, d width, r rank.
"""

from __future__ import annotations

from torch import Tensor, nn


def make_maps(*, d_model: int, rank: int) -> tuple[nn.Linear | None, nn.Linear | None]:
    """U (r to d) and D (d to r); none with rank 0, where the table has the full width."""
    if not rank:
        return None, None
    return nn.Linear(rank, d_model, bias=False), nn.Linear(d_model, rank, bias=False)


def apply_map(linear: nn.Linear | None, x: Tensor) -> Tensor:
    """`x` through one of the maps, or as it is where there is none."""
    return x if linear is None else linear(x)
