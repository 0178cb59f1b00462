"""How often each token follows the tokens before it: sorted keys with counts, counted in chunks and added up.

A key holds the last `order` tokens, 16 bits each, the newest lowest. Where a query has fewer tokens before, `<pad>`
stands in their place, so each token and each `<eos>` of a query is counted under exactly one key, and the counts of
all shorter grams follow from these keys (see `estimate.orders`). A query is a sentence of its own, `<bos>` w_1 ...
`<eos>`; one start symbol.

Shapes: n different keys, t tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.tokenizer import BOS, EOS, PAD

Integers = NDArray[np.int64]

ORDER = 4
"""The order that is usual here; the highest too, since four token numbers fill a key of 64 bits."""
BITS = 16
MOST_TOKENS = 1 << BITS
"""Tokens of a vocabulary at most."""
MOST_KEYS = 1 << 24
"""Keys that are held at once: 0.2 GB as counts, and what is worked out from them stays below 3 GB."""
_SESSIONS = 1 << 15
"""Sessions of a chunk."""


class Counts(NamedTuple):
    """What was counted."""

    keys: NDArray[np.uint64]
    """[n] ascending, all different."""
    times: NDArray[np.uint32]
    """[n] how often each occurred."""
    order: int
    """Tokens of a key."""
    forgotten: int = 0
    """Keys that gave up their oldest token (see `bounded`)."""


def nothing(order: int = ORDER) -> Counts:
    """The counts of no text."""
    return Counts(np.zeros(0, np.uint64), np.zeros(0, np.uint32), order)


def count(tokens: NDArray[np.integer], offsets: Integers, order: int = ORDER) -> Counts:
    """Counts some queries.

    Args:
        tokens: token numbers of all queries, one after the other, without specials.
        offsets: query n is `tokens[offsets[n] : offsets[n + 1]]`.
        order: tokens of a key, 2 to 4.

    Raises:
        ValueError: a token number does not fit 16 bits.
    """
    if tokens.size and int(tokens.max()) >= MOST_TOKENS:
        raise ValueError(f"token numbers must be below {MOST_TOKENS}, got {int(tokens.max())}")
    text, place = sentences(tokens, offsets)
    ends = np.flatnonzero(place)
    keys = text[ends].astype(np.uint64)
    for back in range(1, order):
        before = np.where(place[ends] >= back, text[np.maximum(ends - back, 0)], PAD)
        keys |= before.astype(np.uint64) << np.uint64(BITS * back)
    found, times = np.unique(keys, return_counts=True)
    return Counts(found, times.astype(np.uint32), order)


def sentences(tokens: NDArray[np.integer], offsets: Integers) -> tuple[Integers, Integers]:
    """`<bos>`, the tokens and `<eos>` of each query, one after the other, and the place of each in its query."""
    lengths = np.diff(offsets) + 2
    starts = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    text = np.empty(len(place), dtype=np.int64)
    text[starts], text[starts + lengths - 1] = BOS, EOS
    inner = np.ones(len(place), dtype=bool)
    inner[starts] = inner[starts + lengths - 1] = False
    text[inner] = tokens[offsets[0] : offsets[-1]]
    return text, place


def add(left: Counts, right: Counts) -> Counts:
    """The counts of two texts together."""
    more, less = (left, right) if len(left.keys) >= len(right.keys) else (right, left)
    if not len(less.keys):
        return more._replace(forgotten=left.forgotten + right.forgotten)
    place = np.searchsorted(more.keys, less.keys)
    known = more.keys[np.minimum(place, len(more.keys) - 1)] == less.keys
    times = more.times.copy()
    times[place[known]] += less.times[known]
    new = ~known
    return Counts(
        np.insert(more.keys, place[new], less.keys[new]),
        np.insert(times, place[new], less.times[new]),
        left.order,
        left.forgotten + right.forgotten,
    )


def bounded(counts: Counts, most: int = MOST_KEYS) -> Counts:
    """The same counts with `most` keys at most, unless single tokens are more: the rarest forget how they begin.

    Keys that occurred once give up their oldest token; if that is not enough the next one; then keys that occurred
    twice, and so on. The shorter grams keep their occurrences: `<pad>` in place of the oldest token stands for as many
    different ones as it has occurrences. Lossy as in Manku and Motwani 2002 (section 4.2): what comes again later has
    lost its earlier occurrences.
    """
    least = 0
    while len(counts.keys) > most and least < counts.times.max():
        least += 1
        for oldest in range(counts.order - 1, 0, -1):
            if len(counts.keys) > most:
                counts = _forgetting(counts, oldest, least)
    return counts


def _forgetting(counts: Counts, oldest: int, least: int) -> Counts:
    """`<pad>` in place of token number `oldest`, counted from the newest, where a key occurred `least` times."""
    kept_bits = np.uint64((1 << BITS * oldest) - 1)
    second = counts.keys >> np.uint64(BITS * oldest)
    rare = (counts.times <= least) & (second > 0) & (second < MOST_TOKENS)
    highest = int(rare.sum()) if oldest == counts.order - 1 else 0
    stay = Counts(counts.keys[~rare], counts.times[~rare], counts.order, counts.forgotten + highest)
    keys, inverse = np.unique(counts.keys[rare] & kept_bits, return_inverse=True)
    times = np.bincount(inverse, counts.times[rare], len(keys)).astype(np.uint32)
    return add(stay, Counts(keys, times, counts.order))


def count_files(
    files: Iterable[Path],
    encode_batch: Callable[[Sequence[str]], list[list[int]]],
    *,
    order: int = ORDER,
    allowed: Callable[[str], bool] | None = None,
    most: int = MOST_KEYS,
) -> Counts:
    """Counts the queries of Parquet files in one pass, a chunk of sessions in memory at a time.

    Args:
        files: of a dataset's split (`Dataset.files`).
        encode_batch: texts to token numbers (`Tokenizer.encode_batch`).
        order: tokens of a key, 2 to 4.
        allowed: whether a query may be learnt from; one that a block list denies leaves no trace. None takes all.
        most: keys that are held at once (see `bounded`).
    """
    import pyarrow.parquet as pq

    total = nothing(order)
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_SESSIONS, columns=["queries"]):
                texts = [text for text in batch.column(0).flatten().to_pylist() if text]
                encoded = encode_batch(texts if allowed is None else [text for text in texts if allowed(text)])
                lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
                tokens = np.fromiter((token for query in encoded for token in query), dtype=np.int32)
                offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
                total = bounded(add(total, count(tokens, offsets, order)), most)
    return total
