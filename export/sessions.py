"""Sessions of a dataset as batches in the tokens of a checkpoint, which may have fewer than the dataset's."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq

from mtn_edge.data.batches import Batch, Batches, TokenizedSessions
from mtn_edge.data.dataset import Dataset, SplitName
from mtn_edge.training.checkpoint import Checkpoint

_ROWS = 4096
"""Sessions that are read at once."""
_BATCH = 256
"""Queries of a batch."""


def read_sessions(data: Dataset, split: SplitName, count: int) -> list[list[str]]:
    """At most `count` sessions of a split, evenly spread over it; the files are read piece by piece."""
    files = [pq.ParquetFile(file) for file in data.files(split)]
    every = max(1, sum(file.metadata.num_rows for file in files) // count)
    chosen: list[list[str]] = []
    for number, session in enumerate(_stream(files)):
        if number % every == 0 and any(session) and len(chosen) < count:
            chosen.append(session)
    return chosen


def batches_of(sessions: list[list[str]], checkpoint: Checkpoint) -> list[Batch]:
    """`sessions` as the network of `checkpoint` reads them in training; at least one query."""
    model = checkpoint.config.model
    batches = Batches(
        TokenizedSessions(sessions, checkpoint.tokenizer.encode_batch),
        max_tokens=model.max_tokens,
        max_queries=model.max_queries,
        batch_queries=_BATCH,
    )
    return list(batches.stream(0, 0))


def _stream(files: list[pq.ParquetFile]) -> Iterator[list[str]]:
    for file in files:
        for batch in file.iter_batches(batch_size=_ROWS, columns=["queries"]):
            yield from batch["queries"].to_pylist()
