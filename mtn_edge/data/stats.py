"""What a dataset holds, in numbers: sessions, queries, their lengths, repeats, how much of the test is news."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from mtn_edge.data.dataset import Dataset, SplitName
from mtn_edge.data.engine import batches, duckdb_engine

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from ibis.backends.duckdb import Backend
    from numpy.typing import NDArray

TOP = 10
_LONG = 10
"""Sessions of so many queries and more share the last line of the histogram."""
SPLITS: tuple[SplitName, ...] = get_args(SplitName)


def describe(path: Path) -> dict[str, Any]:
    """The figures of the dataset folder `path`.

    Raises:
        UserError: no dataset there, or a file of it is missing or changed.
    """
    dataset = Dataset.open(path)
    with tempfile.TemporaryDirectory() as scratch, duckdb_engine(Path(scratch)) as engine:
        sessions = _sessions(engine, dataset)
        lengths = _session_lengths(sessions)
        return {
            "splits": _splits(sessions),
            "queries_per_session": lengths,
            **_query_figures(sessions, dataset, Path(scratch)),
            "top_queries": [{"query": query, "count": count} for query, count in dataset.popularity()[:TOP]],
        }


def _sessions(engine: Backend, dataset: Dataset) -> ir.Table:
    import ibis

    return ibis.union(
        *(
            engine.read_parquet([str(file) for file in dataset.files(split)], table_name=split).mutate(
                split=ibis.literal(split)
            )
            for split in SPLITS
        )
    )


def _splits(sessions: ir.Table) -> dict[str, dict[str, int]]:
    queries = sessions.select("split", query=sessions.queries.unnest())
    counts = queries.group_by("split").agg(queries=queries.count(), unique_queries=queries["query"].nunique())
    found = {row["split"]: row for row in counts.to_pyarrow().to_pylist()}
    totals = sessions.group_by("split").agg(sessions=sessions.count()).to_pyarrow().to_pylist()
    of_split = {row["split"]: row["sessions"] for row in totals}
    return {
        split: {
            "sessions": of_split.get(split, 0),
            "queries": found[split]["queries"] if split in found else 0,
            "unique_queries": found[split]["unique_queries"] if split in found else 0,
        }
        for split in SPLITS
    }


def _session_lengths(sessions: ir.Table) -> dict[str, Any]:
    """Distribution of the queries per session, and how many of them came back to an earlier query of theirs."""
    lengths = sessions.select(length=sessions.queries.length(), unique=sessions.queries.unique().length())
    table = lengths.group_by("length").agg(sessions=lengths.count(), unique=lengths.unique.sum()).order_by("length")
    columns = table.to_pyarrow().to_pydict()
    length, count = np.array(columns["length"]), np.array(columns["sessions"])
    histogram = {str(size): int(count[length == size].sum()) for size in range(1, _LONG)}
    histogram[f"{_LONG}+"] = int(count[length >= _LONG].sum())
    return {
        **_distribution(length, count),
        "histogram": histogram,
        "repeat_share": float(1 - sum(columns["unique"]) / int((length * count).sum())),
    }


def _query_figures(sessions: ir.Table, dataset: Dataset, scratch: Path) -> dict[str, Any]:
    """Lengths of queries (each as often as it was issued), news in the test split, use of the vocabulary."""
    queries = sessions.select("split", query=sessions.queries.unnest())
    counts = queries.group_by("query").agg(**{split: queries.count(where=queries.split == split) for split in SPLITS})
    words: list[int] = []
    characters: list[int] = []
    tokens: list[int] = []
    weights: list[NDArray[np.int64]] = []
    seen = np.zeros(4, np.int64)  # test queries in train, all test queries, and the same of unique ones
    used = np.zeros(len(dataset.tokenizer), dtype=bool)
    for batch in batches(counts.order_by("query"), scratch):
        texts = batch["query"].to_pylist()
        encoded = dataset.tokenizer.encode_batch(texts)
        train, test = np.asarray(batch["train"]), np.asarray(batch["test"])
        words += [text.count(" ") + 1 for text in texts]
        characters += map(len, texts)
        tokens += map(len, encoded)
        weights.append(train + np.asarray(batch["valid"]) + test)
        known, tested = train > 0, test > 0
        seen += [test[known].sum(), test.sum(), (known & tested).sum(), tested.sum()]
        for row, times in zip(encoded, train.tolist(), strict=True):
            if times:
                used[row] = True
    weight = np.concatenate(weights)
    figures = {
        name: _distribution(np.array(values), weight)
        for name, values in {"words": words, "characters": characters, "tokens": tokens}.items()
    }
    return {
        "per_query": figures,
        "test_seen_in_train": {
            "queries": float(seen[0] / seen[1]) if seen[1] else None,
            "unique_queries": float(seen[2] / seen[3]) if seen[3] else None,
        },
        "vocabulary": {
            "tokens": len(dataset.tokenizer),
            "used_in_train": int(used.sum()),
            "characters_per_token": figures["characters"]["mean"] / figures["tokens"]["mean"],
        },
    }


def _distribution(values: NDArray[np.int64], weights: NDArray[np.int64]) -> dict[str, Any]:
    """Mean, quantiles (the smallest value that so much of the weight does not exceed) and maximum."""
    order = np.argsort(values, kind="stable")
    values, total = values[order], np.cumsum(weights[order])
    quantiles = {
        f"p{percent}": int(values[np.searchsorted(total, percent / 100 * total[-1])]) for percent in (50, 90, 99)
    }
    return {"mean": float(np.average(values, weights=weights[order])), **quantiles, "max": int(values[-1])}


def stats_words(document: dict[str, Any]) -> str:
    """The figures in words."""
    lines = [f"{'':<22}{'sessions':>12}{'queries':>12}{'unique':>12}"]
    for name, split in document["splits"].items():
        lines.append(f"{name:<22}{split['sessions']:>12,}{split['queries']:>12,}{split['unique_queries']:>12,}")
    lines.append(f"\n{'':<22}{'mean':>8}{'p50':>8}{'p90':>8}{'p99':>8}{'max':>8}")
    rows = {"queries a session": document["queries_per_session"]}
    rows |= {f"{name} a query": figures for name, figures in document["per_query"].items()}
    for name, figures in rows.items():
        rest = "".join(f"{figures[key]:>8,}" for key in ("p50", "p90", "p99", "max"))
        lines.append(f"{name:<22}{figures['mean']:>8.2f}{rest}")
    histogram = document["queries_per_session"]["histogram"]
    lines.append("\nsessions by length: " + ", ".join(f"{size}: {count:,}" for size, count in histogram.items()))
    lines.append(f"queries that repeat one of their session: {document['queries_per_session']['repeat_share']:.1%}")
    seen = document["test_seen_in_train"]
    if seen["queries"] is not None:
        lines.append(
            f"test queries seen in train: {seen['queries']:.1%} (of the unique ones {seen['unique_queries']:.1%})"
        )
    vocabulary = document["vocabulary"]
    lines.append(
        f"vocabulary: {vocabulary['tokens']:,} tokens, {vocabulary['used_in_train']:,} of them used in train,"
        f" {vocabulary['characters_per_token']:.2f} characters a token"
    )
    lines.append("most frequent: " + ", ".join(f"{top['query']} ({top['count']:,})" for top in document["top_queries"]))
    return "\n".join(lines)
