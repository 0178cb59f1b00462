"""From log files to a dataset folder: read, clean, cut into sessions, keep private things out, split, count.

Rows that are dropped are counted by cause and never copied. The same files, settings and seed give the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mtn_edge import console, folders
from mtn_edge.data import pipeline
from mtn_edge.data.engine import batches, duckdb_engine
from mtn_edge.data.formats import FileCounts, Format, check_sessions, detect, read_rows, row_schema
from mtn_edge.data.privacy import CAUSES, personal
from mtn_edge.data.report import build_report, nothing_left, write_report
from mtn_edge.errors import UserError
from mtn_edge.text import normalize
from mtn_edge.tokenizer import Tokenizer

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from ibis.backends.duckdb import Backend

Split = Literal["time", "hash"]
SPLITS = ("train", "valid", "test")
_TOKENIZER_REPEATS = 100
"""A query counts at most this often when the tokenizer is trained, so that the head does not eat the vocabulary."""


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """What `data prepare` may be told."""

    format: Literal["auto"] | Format = "auto"
    """Of all the files."""
    min_users: int = 5
    """A query is kept only when at least so many different users issued it (of `sessions`: so many lines)."""
    gap_minutes: float = 30.0
    """A pause longer than this ends a session."""
    vocab_size: int = 4096
    """Tokens of the tokenizer at most."""
    split: Split | None = None
    """By start time or by a hash of the user; None: time where there are times."""
    seed: int = 1
    """Of the hash split."""


def prepare(logs: Sequence[Path], output: Path, settings: PrepareSettings, *, force: bool = False) -> dict[str, Any]:
    """Makes the dataset folder `output` from `logs` and returns its report.

    Args:
        logs: files of one format; a query of all of them together passes the gate of distinct users.
        output: a new folder.
        settings: see there.
        force: replace an earlier dataset.

    Raises:
        UserError: a file cannot be read or is of another format, nothing is left, or `output` is taken.
    """
    folders.refuse_overwrite(output, force=force)
    if not math.isfinite(settings.gap_minutes):
        raise UserError(
            f"`--gap-minutes` is {settings.gap_minutes}, and it must be a number of minutes",
            code="bad-setting",
            hint="take 30",
        )
    form = _one_format(logs, settings.format)
    split = settings.split or ("time" if form == "aol" else "hash")
    if split == "time" and form == "sessions":
        raise UserError(
            "`--split time` needs times, and the format sessions has none", code="no-times", hint="take --split hash"
        )
    settings = dataclasses.replace(settings, format=form, split=split)
    with (
        folders.new_folder(output, "dataset", force=force) as folder,
        # Beside the output: a large log spills there, and the system's temporary folder may be small.
        tempfile.TemporaryDirectory(prefix=f".{output.name}.", suffix=".work", dir=output.parent) as scratch,
        duckdb_engine(Path(scratch)) as engine,
    ):
        return _Run(engine, Path(scratch), settings).write(logs, folder)


def _one_format(logs: Sequence[Path], wanted: Literal["auto"] | Format) -> Format:
    resolved = [log.resolve() for log in logs]
    for at, log in enumerate(logs):
        if resolved.index(resolved[at]) != at:
            raise UserError(
                f"`{log}` is named twice, and its queries would count double", code="twice", hint="name it once"
            )
    if wanted == "sessions":
        for log in logs:
            check_sessions(log)
    if wanted != "auto":
        return wanted
    found = [detect(log) for log in logs]
    for log, form in zip(logs, found, strict=True):
        if form != found[0]:
            raise UserError(
                f"`{log}` is of the format {form} and `{logs[0]}` of {found[0]}; one dataset takes one format",
                code="mixed-formats",
                hint="prepare them apart, or say --format",
            )
    return found[0]


class _Run:
    """One run of the pipeline; each step leaves a table in the engine and numbers for the report."""

    def __init__(self, engine: Backend, scratch: Path, settings: PrepareSettings) -> None:
        self.engine = engine
        self.scratch = scratch
        self.settings = settings
        self.numbers: dict[str, int] = {}
        self.files: list[FileCounts] = []

    def write(self, logs: Sequence[Path], folder: Path) -> dict[str, Any]:
        """All steps; returns the report."""
        rows = self._read(logs)
        kept = self._clean(rows)
        events = self._keep("events", pipeline.fold(kept))
        self.numbers["events"] = _count(events)
        if not self.numbers["events"]:
            raise nothing_left(self.numbers, self.settings.min_users)
        sessions = self._keep("sessions", pipeline.gather(events))
        sessions, cut = self._split(sessions)
        counts = self._write_splits(sessions, folder)
        if not counts["train"]["sessions"]:
            raise UserError(
                f"all {sum(split['sessions'] for split in counts.values()):,} sessions fell into the validation and "
                "test splits, so nothing is left to train on",
                code="no-train",
                hint="take another --seed or give more data" if self.settings.split == "hash" else "take --split hash",
            )
        self._write_vocabulary(sessions, folder)
        report = build_report(logs, self.files, self.numbers, counts, str(self.settings.format))
        write_report(folder, report)
        inputs = [{"name": log.name, "bytes": log.stat().st_size, "sha256": folders.sha256_file(log)} for log in logs]
        folders.write_manifest(
            folder,
            "dataset",
            {
                "settings": dataclasses.asdict(self.settings),
                "split": cut,
                "counts": counts,
                "lineage": {"inputs": inputs, "seed": self.settings.seed},
            },
        )
        return report

    def _keep(self, name: str, expression: ir.Table) -> ir.Table:
        return self.engine.create_table(name, expression)

    def _read(self, logs: Sequence[Path]) -> ir.Table:
        import pyarrow.parquet as pq

        file = self.scratch / "rows.parquet"
        with pq.ParquetWriter(file, row_schema()) as writer, console.progress("reading", None, "rows") as update:
            done = 0
            for index, log in enumerate(logs):
                counts = FileCounts()
                self.files.append(counts)
                assert self.settings.format != "auto"
                for batch in read_rows(log, index, self.settings.format, counts):
                    writer.write_batch(batch)
                    done += len(batch)
                    update(done, log.name)
        return self.engine.read_parquet(file, table_name="rows")

    def _clean(self, rows: ir.Table) -> ir.Table:
        """The rows whose query may be learnt, with its normal form; what is dropped is counted."""
        import pyarrow.parquet as pq

        numbered = self._keep("numbered", pipeline.number_sessions(rows, 60 * self.settings.gap_minutes))
        self.numbers["sessions_found"] = _count(numbered.select("user", "visit").distinct())
        file = self.scratch / "texts.parquet"
        schema = _text_schema()
        with pq.ParquetWriter(file, schema) as writer, console.progress("cleaning", None, "texts") as update:
            done = 0
            for batch in batches(rows.select("text").distinct(), self.scratch):
                writer.write_batch(_clean_texts(batch["text"].to_pylist(), schema))
                done += len(batch)
                update(done, "")
        texts = self.engine.read_parquet(file, table_name="texts")
        whole = self._keep("whole", pipeline.with_queries(numbered, texts))
        found = whole.group_by("cause").agg(count=whole.count()).to_pyarrow().to_pylist()
        by_cause = {entry["cause"]: int(entry["count"]) for entry in found}
        self.numbers |= {cause: by_cause.get(cause, 0) for cause in ("empty", *CAUSES)}
        clean = whole.filter(whole.cause.isnull())
        kept = self._keep("kept", pipeline.of_many_users(clean, self.settings.min_users))
        self.numbers |= {
            "rows": sum(counts.rows for counts in self.files),
            "users_found": _count(numbered.select("user").distinct()),
            "unique_found": _count(clean.select("query").distinct()),
            "unique_kept": _count(kept.select("query").distinct()),
            "rows_kept": _count(kept),
        }
        self.numbers["below_min_users"] = by_cause.get(None, 0) - self.numbers["rows_kept"]
        return kept

    def _split(self, sessions: ir.Table) -> tuple[ir.Table, dict[str, Any]]:
        """Adds `split` and numbers the users, and says where it cuts."""
        if self.settings.split == "hash":
            by_user = self.settings.format != "sessions"
            split = pipeline.split_by_hash(sessions, self.settings.seed, by_user=by_user)
            cut: dict[str, Any] = {
                "by": "hash of the user" if by_user else "hash of the session's queries",
                "seed": self.settings.seed,
                "valid_from": pipeline.VALID_FROM,
                "test_from": pipeline.TEST_FROM,
            }
        else:
            total = _count(sessions)
            # The first session always trains, however few there are.
            places = [min(max(1, int(total * share)), total) for share in (pipeline.VALID_FROM, pipeline.TEST_FROM)]
            valid_from, test_from = (self._start_of(sessions, place) for place in places)
            split = pipeline.split_by_time(sessions, valid_from, test_from)
            cut = {
                "by": "start of the session",
                "valid_from": valid_from.isoformat() if valid_from else None,
                "test_from": test_from.isoformat() if test_from else None,
            }
        return self._keep("split_sessions", pipeline.number_users(split)), cut

    def _start_of(self, sessions: ir.Table, place: int) -> Any:
        """Start of the session numbered `place` (in order of start, from 0); None after the last."""
        found = sessions.filter(sessions.session == place).select("start").to_pyarrow().to_pylist()
        return found[0]["start"] if found else None

    def _write_splits(self, sessions: ir.Table, folder: Path) -> dict[str, dict[str, int]]:
        import pyarrow.parquet as pq

        schema = _session_schema()
        counts = {}
        for name in SPLITS:
            part = sessions.filter(sessions.split == name).order_by("user", "session").select(*schema.names)
            (folder / name).mkdir()
            counts[name] = {"sessions": 0, "queries": 0}
            with pq.ParquetWriter(folder / name / "sessions-00000.parquet", schema, compression="zstd") as writer:
                for batch in batches(part, self.scratch):
                    writer.write_batch(batch.cast(schema))
                    counts[name]["sessions"] += len(batch)
                    counts[name]["queries"] += len(batch["queries"].flatten())
        return counts

    def _write_vocabulary(self, sessions: ir.Table, folder: Path) -> None:
        """`popularity.parquet` and `tokenizer.json`, from the training split alone."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([("query", pa.string()), ("count", pa.int64())])
        file = folder / "popularity.parquet"
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches(pipeline.query_counts(sessions.filter(sessions.split == "train")), self.scratch):
                writer.write_batch(batch.cast(schema))
        console.say("training the tokenizer")
        Tokenizer.train(_weighted_texts(file), self.settings.vocab_size).save(folder / "tokenizer.json")


def _count(table: ir.Table) -> int:
    return int(table.count().to_pyarrow().as_py())


def _text_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("text", pa.string()), ("query", pa.string()), ("cause", pa.string())])


def _session_schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("user", pa.int64()),
            ("session", pa.int64()),
            ("start", pa.timestamp("us")),
            ("queries", pa.list_(pa.string())),
            ("clicks", pa.list_(pa.int32())),
        ]
    )


def _clean_texts(texts: list[str], schema: Any) -> Any:
    """Normal form of each raw text, or why it is dropped."""
    import pyarrow as pa

    queries = [normalize(text) for text in texts]
    causes = ["empty" if query in ("", "-") else personal(query) for query in queries]
    kept = [query if cause is None else None for query, cause in zip(queries, causes, strict=True)]
    return pa.record_batch([pa.array(texts), pa.array(kept, pa.string()), pa.array(causes, pa.string())], schema=schema)


def _weighted_texts(popularity: Path) -> Iterator[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(popularity) as file:
        for batch in file.iter_batches():
            for entry in batch.to_pylist():
                for _ in range(min(entry["count"], _TOKENIZER_REPEATS)):
                    yield entry["query"]
