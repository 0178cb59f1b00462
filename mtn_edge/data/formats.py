"""Log formats: each turns lines into rows of one shape, and says which lines it could not read.

A row is one logged query (`ROW_SCHEMA`). Formats: `aol` (`AnonID Query QueryTime [ItemRank ClickURL]`, tab-separated,
no quoting: a quote is text) and `sessions` (one session a line, its queries tab-separated).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mtn_edge.data.lines import Lines, read_lines
from mtn_edge.errors import UserError

Format = Literal["aol", "sessions"]
FIRST_LINES = 10
"""How many line numbers of each cause a report names."""
_SAMPLE = 500
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


@dataclass
class Cause:
    """How many lines something happened to, and the numbers of the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, lines: list[int]) -> None:
        """Counts `lines` (their numbers, ascending)."""
        self.count += len(lines)
        self.first += lines[: FIRST_LINES - len(self.first)]


@dataclass
class FileCounts:
    """What was found in one file."""

    lines: int = 0
    header: int = 0
    blank: int = 0
    rows: int = 0
    rejected: dict[str, Cause] = field(default_factory=lambda: {name: Cause() for name in ("columns", "user", "time")})
    fallback: Cause = field(default_factory=Cause)


def row_schema() -> Any:
    """`file` and `line` (where the row stands), `position` (within the line), `user`, `time`, `text`, `clicks`."""
    import pyarrow as pa

    return pa.schema(
        [
            ("file", pa.int32()),
            ("line", pa.int64()),
            ("position", pa.int32()),
            ("user", pa.string()),
            ("time", pa.timestamp("us")),
            ("text", pa.string()),
            ("clicks", pa.int32()),
        ]
    )


def read_rows(path: Path, file: int, form: Format, counts: FileCounts) -> Iterator[Any]:
    """Yields `pyarrow.RecordBatch`es of `row_schema` and keeps `counts`.

    Args:
        path: the log.
        file: its number in the command line, from 0.
        form: its format.
        counts: filled while reading.

    Raises:
        UserError: the file cannot be read, or no line of it is of that format.
    """
    parse: Callable[[Lines, int, FileCounts], Any] = {"aol": _aol_rows, "sessions": _session_rows}[form]
    for lines in read_lines(path):
        counts.lines += len(lines.text)
        counts.fallback.add(lines.fallback)
        batch = parse(lines, file, counts)
        counts.rows += len(batch)
        yield batch
    if counts.rows == 0:
        if form == "aol" and any(cause.count for cause in counts.rejected.values()):
            raise UserError(
                f"no line of `{path}` is of the format aol: user, query and time as YYYY-MM-DD HH:MM:SS between tabs",
                code="wrong-format",
                hint="take another --format or another file",
            )
        raise UserError(f"`{path}` holds no query", code="empty-log", hint="name a log that holds queries")


def detect(path: Path) -> Format:
    """Tells the format of a log from its first lines.

    Raises:
        UserError: the file cannot be read, or its format cannot be told.
    """
    rows = _sample(path)
    dated = _dated(rows)
    if looks_like_aol(rows):
        return "aol"
    if dated:
        reason = f"only {dated} of its first {len(rows)} lines look like user, query and time"
    elif any(row[0].lstrip().startswith(("{", "[{")) for row in rows):
        reason = "its lines look like JSON"
    elif all(len(row) == 1 for row in rows):
        reason = f"there is no tab in its first {len(rows)} lines"
    elif len(rows) > 1 and len({len(row) for row in rows}) == 1:
        reason = f"each of its first {len(rows)} lines has {len(rows[0])} columns, as a table has and sessions have not"
    else:
        return "sessions"
    raise UserError(
        f"the format of `{path}` cannot be told: {reason}",
        code="unknown-format",
        hint="say --format aol (user, query, time between tabs) or --format sessions (one session a line)",
    )


def check_sessions(path: Path) -> None:
    """Refuses a log of the format aol that is said to be of the format sessions: its users would be queries.

    Raises:
        UserError: it is one, or the file cannot be read.
    """
    if looks_like_aol(_sample(path)):
        raise UserError(
            f"`{path}` is not of the format sessions: its lines are user, query and time between tabs",
            code="wrong-format",
            hint="take --format aol",
        )


def looks_like_aol(rows: list[list[str]]) -> bool:
    """Whether the first lines of a log, cut at tabs, have the header of an AOL log or are mostly rows of one."""
    return _is_header(rows[0]) or 2 * _dated(rows) >= len(rows)


def _sample(path: Path) -> list[list[str]]:
    """The first lines that are not blank, cut at tabs."""
    head = [line for line in next(read_lines(path)).text[: 2 * _SAMPLE].to_pylist() if line.strip()][:_SAMPLE]
    if not head:
        raise UserError(f"`{path}` holds no query", code="empty-log", hint="name a log that holds queries")
    return [line.split("\t") for line in head]


def _dated(rows: list[list[str]]) -> int:
    return sum(3 <= len(row) <= 5 and re.match(_TIME, row[2].strip()) is not None for row in rows)


def _is_header(row: list[str]) -> bool:
    return [name.strip().lower() for name in row[:3]] == ["anonid", "query", "querytime"]


def _aol_rows(lines: Lines, file: int, counts: FileCounts) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pa.array(range(lines.first, lines.first + len(lines.text)), pa.int64())
    text = lines.text
    if lines.first == 1 and len(text) and _is_header(text[0].as_py().split("\t")):
        counts.header += 1
        text, number = text[1:], number[1:]
    full = pc.not_equal(pc.utf8_trim_whitespace(text), "")
    counts.blank += len(text) - pc.sum(full).as_py() if len(text) else 0
    text, number = text.filter(full), number.filter(full)

    def reject(cause: str, keep: Any) -> Any:
        counts.rejected[cause].add(number.filter(pc.invert(keep)).to_pylist())
        return keep

    # Two more tabs, so that a row of three columns has five fields as well.
    fields = pc.split_pattern(pc.binary_join_element_wise(text, "\t\t", ""), "\t")
    width = pc.list_value_length(fields)
    keep = reject("columns", pc.and_(pc.greater_equal(width, 5), pc.less_equal(width, 7)))
    fields, number = fields.filter(keep), number.filter(keep)
    user = pc.utf8_trim_whitespace(pc.list_element(fields, 0))
    keep = reject("user", pc.not_equal(user, ""))
    fields, number, user = fields.filter(keep), number.filter(keep), user.filter(keep)
    time = _parse_times(pc.utf8_trim_whitespace(pc.list_element(fields, 2)))
    keep = reject("time", pc.is_valid(time))
    fields, number, user, time = fields.filter(keep), number.filter(keep), user.filter(keep), time.filter(keep)
    rank, url = (pc.utf8_trim_whitespace(pc.list_element(fields, column)) for column in (3, 4))
    clicked = pc.or_(pc.not_equal(rank, ""), pc.not_equal(url, ""))
    zero = pa.array([0] * len(number), pa.int32())
    return pa.record_batch(
        [
            pc.add(zero, pa.scalar(file, pa.int32())),
            number,
            zero,
            user,
            time.cast(pa.timestamp("us")),
            pc.list_element(fields, 1),
            clicked.cast(pa.int32()),
        ],
        schema=row_schema(),
    )


def _parse_times(texts: Any) -> Any:
    """Seconds since 1970, null where a text is no time (`2006-02-30` is none)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shaped = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, None)
    try:
        return pc.cast(shaped, pa.timestamp("s"))
    except pa.ArrowInvalid:
        # strptime carries 30 February over into March: only what comes back unchanged was a time.
        times = pc.strptime(shaped, _TIME_FORMAT, "s", error_is_null=True)
        return pc.if_else(pc.equal(pc.strftime(times, _TIME_FORMAT), shaped), times, None)


def _session_rows(lines: Lines, file: int, counts: FileCounts) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pa.array(range(lines.first, lines.first + len(lines.text)), pa.int64())
    full = pc.not_equal(pc.utf8_trim_whitespace(lines.text), "")
    counts.blank += len(full) - (pc.sum(full).as_py() or 0)
    fields = pc.split_pattern(lines.text.filter(full), "\t")
    parent = np.asarray(pc.list_parent_indices(fields))
    starts = np.asarray(fields.offsets)[:-1] - fields.offsets[0].as_py() if len(fields) else np.zeros(0, np.int64)
    line = pc.take(number.filter(full), pa.array(parent))
    total = len(parent)
    return pa.record_batch(
        [
            pa.array(np.full(total, file, np.int32)),
            line,
            pa.array((np.arange(total) - starts[parent]).astype(np.int32)),
            pc.binary_join_element_wise(str(file), line.cast(pa.string()), ":"),
            pa.nulls(total, pa.timestamp("us")),
            pc.list_flatten(fields),
            pa.array(np.zeros(total, np.int32)),
        ],
        schema=row_schema(),
    )
