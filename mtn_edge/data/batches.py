"""Sessions of queries as batches of token numbers, in an order that is a pure function of (seed, epoch).

Shapes: b rows of a batch (sessions, or windows of long ones), q queries of a row (with the start query on the source
side), t tokens of an earlier query, u tokens of a predicted one (with `<bos>` or `<eos>`). `grouping` says which rows
make a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.data.grouping import ByQueries, ByTokens, Shapes, cut, order, reduce_pieces, singles
from mtn_edge.tokenizer import BOS, EOS, PAD

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100
"""The target of a position that does not count (cross-entropy's convention)."""
_CHUNK = 65_536


class Batch(NamedTuple):
    """What a network reads and what its loss compares with."""

    source: Tensor
    """[b, q, t] int64: the start query `<bos>`, then q_1 to q_(r-1), each its last `max_tokens` tokens. With three
    levels [b, q + 1, t], q_r too: later sessions of the user read it."""
    target_in: Tensor
    """[b, q, u] int64: `<bos>`, then the first `max_tokens` tokens of q_1 to q_r; padding only where a query is none of
    the row's targets."""
    target_out: Tensor
    """[b, q, u] int64: those tokens, then `<eos>` where none was cut; `IGNORE` where nothing is to be predicted."""
    user: Tensor
    """[b] int64: the user of each row, counted from 0; rows of one user are neighbours, in the order of time. With two
    levels every row is a user's only one."""


class Spelling(NamedTuple):
    """Queries as token numbers."""

    tokens: NDArray[np.int32]
    """Of all queries, one after the other."""
    offsets: NDArray[np.int64]
    """Query n is `tokens[offsets[n] : offsets[n + 1]]`."""


Respell = Callable[[int, int], Spelling]
"""The queries as they are cut into tokens in an epoch: a pure function of (seed, epoch)."""


class Step(NamedTuple):
    """What one step of the optimizer learns from."""

    batches: list[Batch]
    """The parts that were asked for."""
    tokens: int
    """Tokens to predict in all parts."""
    queries: int
    """Queries to predict in all parts."""
    numbers: list[NDArray[np.int64]]
    """The numbers of the queries to predict in each batch, in the order of its rows (`Batch.target_in`)."""


class TokenizedSessions:
    """The sessions of a split as flat arrays of token numbers: a few bytes a token, whatever their number.

    Args:
        sessions: queries in normal form, in order; empty queries and sessions are left out.
        encode_batch: texts to token numbers (`Tokenizer.encode_batch`).
        users: the user of each session, those of one user being neighbours; None where it does not matter.
        targets: what to predict in the place of each query, of the same shape as `sessions`; None predicts the queries.
    """

    def __init__(
        self,
        sessions: Sequence[Sequence[str]],
        encode_batch: Callable[[Sequence[str]], list[list[int]]],
        users: Sequence[int] | None = None,
        targets: Sequence[Sequence[str]] | None = None,
    ) -> None:
        sizes = np.array([sum(map(bool, session)) for session in sessions], dtype=np.int64)
        spelling = _spell([query for session in sessions for query in session if query], encode_batch)
        self.tokens = spelling.tokens
        """Token numbers of all queries, one after the other."""
        self.query_offsets = spelling.offsets
        """Query n is `tokens[query_offsets[n] : query_offsets[n + 1]]`."""
        self.targets = None if targets is None else _spell([x for target in targets for x in target if x], encode_batch)
        """What to predict in the place of each query; None: the queries themselves."""
        self.session_offsets = offsets_of(sizes[sizes > 0])
        """Session s holds queries `session_offsets[s]` to `session_offsets[s + 1] - 1`."""
        self.users = None if users is None else np.asarray(users, dtype=np.int64)[sizes > 0]
        """[sessions] the user of each."""

    def __len__(self) -> int:
        return len(self.session_offsets) - 1

    def rows(self, max_tokens: int) -> NDArray[np.int64]:
        """How many decoder states each query has as a target: one for `<bos>` and one for each token written."""
        offsets = self.query_offsets if self.targets is None else self.targets.offsets
        return np.asarray(np.minimum(np.diff(offsets), max_tokens) + 1)

    @property
    def queries(self) -> int:
        """How many queries there are in all sessions."""
        return len(self.query_offsets) - 1


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch; all arrays [b]."""

    first: NDArray[np.int64]
    """The first query."""
    size: NDArray[np.int64]
    """How many queries."""
    context: NDArray[np.int64]
    """How many of them at the start are no targets."""
    group: NDArray[np.int64]
    """The group, counted from 0."""

    @property
    def targets(self) -> NDArray[np.int64]:
        """The queries to predict."""
        counts = self.size - self.context
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(self.first + self.context, counts) + place)


class Batches:
    """The batches of a split.

    Args:
        sessions: the tokenized split.
        max_tokens: tokens of one query that are read (its last ones) and written (its first ones).
        max_queries: earlier queries that are seen, at most.
        batch_queries: queries in a batch, about; a batch always holds whole windows.
        batch_tokens: tokens in a batch at most, with padding, in place of `batch_queries`; 0 leaves it to that.
        parts: batches of one step: the step has `parts` times as many queries, or tokens.
        max_sessions: earlier sessions of a user that are seen; None keeps no sessions together.
        respell: cuts the queries into tokens anew in each epoch.
    """

    def __init__(
        self,
        sessions: TokenizedSessions,
        *,
        max_tokens: int,
        max_queries: int,
        batch_queries: int,
        batch_tokens: int = 0,
        parts: int = 1,
        max_sessions: int | None = None,
        respell: Respell | None = None,
    ) -> None:
        self._spelling, self._respell = Spelling(sessions.tokens, sessions.query_offsets), respell
        self._targets = sessions.targets
        self._max_tokens, self._max_queries, self._parts = max_tokens, max_queries, parts
        self._reads_last = max_sessions is not None
        self.windows = cut(sessions.session_offsets, max_queries)
        count = len(self.windows.first)
        if max_sessions is None:
            self.groups = singles(count)
        else:
            assert sessions.users is not None
            session = np.searchsorted(sessions.session_offsets, self.windows.first, side="right") - 1
            user = sessions.users[session]
            self.groups = cut(np.append(np.flatnonzero(np.diff(user, prepend=-1)), count), max_sessions)
        lengths = np.diff(sessions.query_offsets)
        if sessions.targets is not None:
            lengths = np.maximum(lengths, np.diff(sessions.targets.offsets))
        lengths = np.minimum(lengths, max_tokens)
        longest = reduce_pieces(np.maximum, lengths, self.windows)
        shapes = Shapes(
            queries=reduce_pieces(np.add, self.windows.size, self.groups),
            rows=self.groups.size,
            size=reduce_pieces(np.maximum, self.windows.size, self.groups),
            longest=reduce_pieces(np.maximum, longest, self.groups),
        )
        self._plan = (
            ByTokens(shapes, batch_tokens, parts=parts, max_tokens=max_tokens, reads_last=self._reads_last)
            if batch_tokens
            else ByQueries(shapes, batch_queries * parts)
        )

    def __len__(self) -> int:
        """Steps of one epoch, the same for all."""
        return len(self._plan.bounds) - 1

    def order(self, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """Which groups each step of an epoch holds: groups of like sizes together, steps in random order."""
        return order(self._plan, seed, epoch)

    def steps(self, seed: int, epoch: int, position: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Step]:
        """The steps of an epoch from number `position` on.

        Args:
            seed: of the order and of the respelling.
            epoch: counted from 0.
            position: steps to leave out.
            rank: of `world` processes that share the parts, the one that asks.
            world: a divisor of `parts`.
        """
        spelling = self._respell(seed, epoch) if self._respell else self._spelling
        lengths = np.diff((self._targets or spelling).offsets)
        for members in self.order(seed, epoch)[position:]:
            length = lengths[self._rows(members).targets]
            tokens = np.minimum(length, self._max_tokens).sum() + (length <= self._max_tokens).sum()
            mine = np.array_split(members, self._parts)[rank::world]
            batches = [
                self._batch(self._rows(part), spelling) if len(part) else self._silent(members[:1], spelling)
                for part in mine
            ]
            numbers = [self._rows(part if len(part) else members[:1]).targets for part in mine]
            yield Step(batches, int(tokens), len(length), numbers)

    def stream(self, seed: int, epoch: int, position: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `position` on."""
        for step in self.steps(seed, epoch, position):
            yield from step.batches

    def _rows(self, groups: NDArray[np.int64]) -> _Rows:
        """All windows of some groups."""
        counts = self.groups.size[groups]
        group = np.repeat(np.arange(len(groups)), counts)
        place = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        window = self.groups.first[groups][group] + place
        first, size, context = (field[window] for field in self.windows)
        return _Rows(first, size, np.where(place < self.groups.context[groups][group], size, context), group)

    def _silent(self, groups: NDArray[np.int64], spelling: Spelling) -> Batch:
        """A batch without targets, for a part that has got nothing: all processes must take part in a step."""
        batch = self._batch(self._rows(groups), spelling)
        return batch._replace(target_out=batch.target_out.fill_(IGNORE))

    def _batch(self, rows: _Rows, spelling: Spelling) -> Batch:
        import torch

        tokens, offsets = spelling
        place = np.arange(rows.size.max())
        real = place < rows.size[:, None]  # [b, q]
        query = np.where(real, rows.first[:, None] + place, 0)
        start, end = offsets[query], offsets[query + 1]
        read = np.minimum(end - start, self._max_tokens)

        # The last query of a row is nobody's context, unless a later session remembers it.
        earlier = (read * real if self._reads_last else read[:, :-1] * real[:, 1:])[:, : self._max_queries]
        q = earlier.shape[1]
        source = np.full((len(real), q + 1, max(1, int(earlier.max(initial=1)))), PAD, dtype=np.int64)
        source[:, 0, 0] = BOS
        source[:, 1:] = _padded(tokens, (end - read)[:, :q], earlier, source.shape[2])

        asked = real & (place >= rows.context[:, None])
        if self._targets is not None:
            tokens, offsets = self._targets
            start, end = offsets[query], offsets[query + 1]
        written = np.minimum(end - start, self._max_tokens) * asked
        width = int(written.max()) + 1
        target_in = np.full((*real.shape, width), PAD, dtype=np.int64)
        target_in[:, :, 0] = np.where(asked, BOS, PAD)
        target_in[:, :, 1:] = _padded(tokens, start, written, width - 1)
        target_out = np.full_like(target_in, IGNORE)
        target_out[:, :, :-1] = np.where(target_in[:, :, 1:] != PAD, target_in[:, :, 1:], IGNORE)
        row, column = np.nonzero(asked & (end - start <= self._max_tokens))
        target_out[row, column, written[row, column]] = EOS
        return Batch(*(torch.from_numpy(array) for array in (source, target_in, target_out, rows.group)))


def _spell(texts: Sequence[str], encode_batch: Callable[[Sequence[str]], list[list[int]]]) -> Spelling:
    tokens: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int64]] = []
    for first in range(0, len(texts), _CHUNK):
        encoded = encode_batch(texts[first : first + _CHUNK])
        lengths.append(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
        tokens.append(np.fromiter((token for query in encoded for token in query), dtype=np.int32))
    return Spelling(
        np.concatenate([*tokens, np.zeros(0, np.int32)]),
        offsets_of(np.concatenate([*lengths, np.zeros(0, np.int64)])),
    )


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of some neighbours of these lengths starts, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _padded(
    tokens: NDArray[np.int32], start: NDArray[np.int64], length: NDArray[np.int64], width: int
) -> NDArray[np.int64]:
    """Tokens from `start` on, `length` of them [b, q], padded to [b, q, width]."""
    place = np.arange(width)
    inside = place < length[:, :, None]
    index = np.where(inside, start[:, :, None] + place, 0)
    return np.where(inside, tokens[index], PAD)
