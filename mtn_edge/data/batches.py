"""Sessions of queries as batches of token numbers, in an order that is a pure function of (seed, epoch).

Shapes: b sessions of a batch, q queries of a session (with the start query on the source side), t tokens of an earlier
query, u tokens of a predicted one (with `<bos>` or `<eos>`).

A session of more queries than the network's context holds is cut to windows, by the rule of the runtime
(`runtime.context.context_start`): each query is predicted exactly once, from the context that a device would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.tokenizer import BOS, EOS, PAD

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100
"""The target of a position that does not count (cross-entropy's convention)."""
_CHUNK = 65_536


class Batch(NamedTuple):
    """What `MTN.forward` reads and what its loss compares with."""

    source: Tensor
    """[b, q, t] int64: the start query `<bos>`, then q_1 to q_(r-1), each its last `max_tokens` tokens."""
    target_in: Tensor
    """[b, q, u] int64: `<bos>`, then the first `max_tokens` tokens of q_1 to q_r; padding only where a query is none of
    the window's targets."""
    target_out: Tensor
    """[b, q, u] int64: those tokens, then `<eos>` where none was cut; `IGNORE` where nothing is to be predicted."""


class TokenizedSessions:
    """The sessions of a split as flat arrays of token numbers: a few bytes a token, whatever their number.

    Args:
        sessions: queries in normal form, in order; empty queries and sessions are left out.
        encode_batch: texts to token numbers (`Tokenizer.encode_batch`).
    """

    def __init__(
        self, sessions: Sequence[Sequence[str]], encode_batch: Callable[[Sequence[str]], list[list[int]]]
    ) -> None:
        sizes = np.array([sum(map(bool, session)) for session in sessions], dtype=np.int64)
        texts = [query for session in sessions for query in session if query]
        tokens: list[NDArray[np.int32]] = []
        lengths: list[NDArray[np.int64]] = []
        for first in range(0, len(texts), _CHUNK):
            encoded = encode_batch(texts[first : first + _CHUNK])
            lengths.append(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
            tokens.append(np.fromiter((token for query in encoded for token in query), dtype=np.int32))
        self.tokens = np.concatenate([*tokens, np.zeros(0, np.int32)])
        """Token numbers of all queries, one after the other."""
        self.query_offsets = _offsets(np.concatenate([*lengths, np.zeros(0, np.int64)]))
        """Query n is `tokens[query_offsets[n] : query_offsets[n + 1]]`."""
        self.session_offsets = _offsets(sizes[sizes > 0])
        """Session s holds queries `session_offsets[s]` to `session_offsets[s + 1] - 1`."""

    def __len__(self) -> int:
        return len(self.session_offsets) - 1

    @property
    def queries(self) -> int:
        """How many queries there are in all sessions."""
        return len(self.query_offsets) - 1


class Windows(NamedTuple):
    """Parts of sessions that the network takes in one piece; all arrays [n]."""

    first: NDArray[np.int64]
    """The first query."""
    size: NDArray[np.int64]
    """How many queries."""
    context: NDArray[np.int64]
    """How many of them at the start are context only: an earlier window predicts them."""


class Batches:
    """The batches of a split.

    Args:
        sessions: the tokenized split.
        max_tokens: tokens of one query that are read (its last ones) and written (its first ones).
        max_queries: earlier queries that are seen, at most.
        batch_queries: queries in a batch, about; a batch always holds whole windows.
    """

    def __init__(self, sessions: TokenizedSessions, *, max_tokens: int, max_queries: int, batch_queries: int) -> None:
        self._sessions = sessions
        self._max_tokens = max_tokens
        self.windows = _cut(sessions.session_offsets, max_queries)
        lengths = np.minimum(np.diff(sessions.query_offsets), max_tokens)
        self._longest = _longest(lengths, self.windows)
        # Sorting by size first gives every epoch the same sequence of sizes, hence the same number of batches.
        self._bounds = _bounds(np.sort(self.windows.size), batch_queries)

    def __len__(self) -> int:
        """Batches of one epoch, the same for all."""
        return len(self._bounds) - 1

    def order(self, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """Which windows each batch of an epoch holds: windows of like sizes together, batches in random order."""
        random = np.random.default_rng((seed, epoch))
        # Like lengths together, but not the same neighbours in every epoch.
        length = self._longest * random.uniform(0.8, 1.25, len(self._longest))
        by_size = np.lexsort((length, self.windows.size))
        batches = [by_size[a:b] for a, b in zip(self._bounds[:-1], self._bounds[1:], strict=True)]
        return [batches[n] for n in random.permutation(len(batches))]

    def stream(self, seed: int, epoch: int, position: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `position` on."""
        for members in self.order(seed, epoch)[position:]:
            yield self.batch(members)

    def batch(self, members: NDArray[np.int64]) -> Batch:
        """The batch of some windows (their numbers)."""
        import torch

        first, size, context = (field[members] for field in self.windows)
        place = np.arange(size.max())
        real = place < size[:, None]  # [b, q]
        query = np.where(real, first[:, None] + place, 0)
        start, end = self._sessions.query_offsets[query], self._sessions.query_offsets[query + 1]
        read = np.minimum(end - start, self._max_tokens)

        earlier = read[:, :-1] * real[:, 1:]  # the last query of a window is nobody's context
        source = np.full((*real.shape, max(1, int(earlier.max(initial=1)))), PAD, dtype=np.int64)
        source[:, 0, 0] = BOS
        source[:, 1:] = self._padded(end[:, :-1] - read[:, :-1], earlier, source.shape[2])

        asked = real & (place >= context[:, None])
        written = read * asked
        width = int(written.max()) + 1
        target_in = np.full((*real.shape, width), PAD, dtype=np.int64)
        target_in[:, :, 0] = np.where(asked, BOS, PAD)
        target_in[:, :, 1:] = self._padded(start, written, width - 1)
        target_out = np.full_like(target_in, IGNORE)
        target_out[:, :, :-1] = np.where(target_in[:, :, 1:] != PAD, target_in[:, :, 1:], IGNORE)
        rows, columns = np.nonzero(asked & (end - start <= self._max_tokens))
        target_out[rows, columns, written[rows, columns]] = EOS
        return Batch(torch.from_numpy(source), torch.from_numpy(target_in), torch.from_numpy(target_out))

    def _padded(self, start: NDArray[np.int64], length: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Tokens from `start` on, `length` of them [b, q], padded to [b, q, width]."""
        place = np.arange(width)
        inside = place < length[:, :, None]
        index = np.where(inside, start[:, :, None] + place, 0)
        return np.where(inside, self._sessions.tokens[index], PAD)


def _cut(session_offsets: NDArray[np.int64], max_queries: int) -> Windows:
    """Windows of at most `max_queries` + 1 queries, each half a context after the one before.

    A query is a target of the first window that holds it, so its context starts where `context_start` says.
    """
    sizes, half = np.diff(session_offsets), max_queries // 2
    pieces = 1 + np.maximum(0, -(-(sizes - 1 - max_queries) // half))
    session = np.repeat(np.arange(len(sizes)), pieces)
    number = np.arange(len(session)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = number * half
    size = np.minimum(sizes[session] - first, max_queries + 1)
    context = np.where(number > 0, max_queries + 1 - half, 0)
    return Windows(session_offsets[session] + first, size, context)


def _longest(lengths: NDArray[np.int64], windows: Windows) -> NDArray[np.int64]:
    """Tokens of the longest query of each window."""
    if not len(windows.first):
        return np.zeros(0, np.int64)
    # reduceat over [first, end) pairs; every other segment lies between windows and is dropped.
    edges = np.stack([windows.first, windows.first + windows.size], axis=1).ravel()
    return np.maximum.reduceat(np.append(lengths, 0), edges)[::2]


def _bounds(counts: NDArray[np.int64], batch_queries: int) -> NDArray[np.int64]:
    """Where to cut a sequence of windows so that each part holds about `batch_queries` queries: [batches + 1]."""
    before = np.cumsum(counts) - counts
    starts = np.flatnonzero(np.diff(before // batch_queries, prepend=-1))
    return np.append(starts, len(counts))


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
