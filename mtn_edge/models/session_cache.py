"""What every network keeps of a session between two queries and between two key presses."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class SessionCache(NamedTuple):
    """Named tensors without a batch axis; never changed in place."""

    session: dict[str, Tensor]
    """What the next query is encoded with; names begin with `session_`."""
    memory: dict[str, Tensor]
    """What the decoder reads at every key press; names begin with `memory_`."""
