"""What followed which query in the training split: pairs that K people searched."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mtn_edge.data.dataset import Dataset
from mtn_edge.data.engine import batches, duckdb_engine


def followers(dataset: Dataset, most: int) -> list[tuple[str, str, int]]:
    """Queries, the next query of their session, and how often it came so; the most frequent first.

    A pair counts like a query: only if at least K users searched it, K as the dataset was prepared with.

    Args:
        dataset: the dataset.
        most: how many pairs, at most.
    """
    least = int(dataset.manifest["settings"]["min_users"])
    with tempfile.TemporaryDirectory() as scratch, duckdb_engine(Path(scratch)) as engine:
        import ibis
        from ibis import _

        sessions = engine.read_parquet([str(file) for file in dataset.files("train")])
        pairs = sessions.select(
            user=_.user, query=sessions.queries[:-1].unnest(), follower=sessions.queries[1:].unnest()
        )
        counted = (
            pairs.filter((_.query != "") & (_.follower != "") & (_.query != _.follower))
            .group_by(["query", "follower"])
            .agg(count=_.count(), users=_.user.nunique())
            .filter(_.users >= least)
            .order_by([ibis.desc("count"), "query", "follower"])
            .limit(most)
        )
        return [
            (row["query"], row["follower"], row["count"])
            for batch in batches(counted.select("query", "follower", "count"), Path(scratch))
            for row in batch.to_pylist()
        ]
