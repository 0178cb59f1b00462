"""The engine that runs the pipeline's expressions: DuckDB on one machine, streaming and spilling to disk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from ibis.backends.duckdb import Backend


@contextmanager
def duckdb_engine(folder: Path) -> Iterator[Backend]:
    """An Ibis connection whose tables and spilled data lie in `folder`; it never fetches extensions."""
    import ibis

    with warnings.catch_warnings():
        # Ibis still calls a name that DuckDB 2 deprecates.
        warnings.filterwarnings("ignore", message=r"fetch_arrow_table\(\)", category=DeprecationWarning)
        connection = ibis.duckdb.connect(
            folder / "work.duckdb", temp_directory=str(folder / "spill"), autoinstall_known_extensions=False
        )
        try:
            yield connection
        finally:
            connection.disconnect()


def batches(expression: ir.Table, folder: Path, *, rows: int = 65536) -> Iterator[Any]:
    """Streams a result as `pyarrow.RecordBatch`es, in its order, over a Parquet file in `folder`.

    Batches have `rows` rows whatever the engine's threads do, so that files written from them are the same every time.
    """
    import pyarrow.parquet as pq

    file = folder / "result.parquet"
    expression.to_parquet(file)
    try:
        with pq.ParquetFile(file) as parquet:
            yield from _even(parquet.iter_batches(batch_size=rows), rows)
    finally:
        file.unlink()


def _even(source: Iterator[Any], rows: int) -> Iterator[Any]:
    import pyarrow as pa

    held: list[Any] = []
    count = 0
    for batch in source:
        held.append(batch)
        count += len(batch)
        while count >= rows:
            table = pa.Table.from_batches(held).combine_chunks()
            yield table.slice(0, rows).combine_chunks().to_batches()[0]
            held = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
