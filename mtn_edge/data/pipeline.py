"""The steps from logged rows to sessions, as Ibis expressions: table in, table out, nothing computed here.

An engine (DuckDB) runs them; they hold no engine's own functions. Rows are those of `formats.row_schema`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis.expr.types as ir

_ORDER = ["time", "file", "line", "position"]
VALID_FROM, TEST_FROM = 0.8, 0.9
"""The last tenth of the sessions is the test split, the tenth before it the validation split."""


def number_sessions(rows: ir.Table, gap_seconds: float) -> ir.Table:
    """Adds `visit`: which session of its user a row belongs to; a gap above `gap_seconds` starts a new one.

    Rows that are dropped later count as activity, so that the queries around them stay in one session. Rows without
    a time never start a new session.
    """
    import ibis

    before = rows.time.lag().over(ibis.window(group_by="user", order_by=_ORDER))
    gap = rows.time.epoch_seconds() - before.epoch_seconds()
    starts = (gap > gap_seconds).fill_null(False).cast("int64")
    return rows.mutate(starts=starts).mutate(
        visit=lambda t: t.starts.sum().over(ibis.cumulative_window(group_by="user", order_by=_ORDER))
    )


def with_queries(rows: ir.Table, texts: ir.Table) -> ir.Table:
    """Adds `query` (normal form) and `cause` (why it is dropped, or null) of each `text`."""
    return rows.join(texts, "text").select(*(name for name in rows.columns if name != "text"), "query", "cause")


def user_counts(rows: ir.Table) -> ir.Table:
    """`query` and `users`, the number of different users who issued it."""
    pairs = rows.select("query", "user").distinct()
    return pairs.group_by("query").agg(users=pairs.count())


def of_many_users(rows: ir.Table, min_users: int) -> ir.Table:
    """The rows whose query at least `min_users` different users issued."""
    if min_users <= 1:
        return rows
    counts = user_counts(rows)
    return rows.semi_join(counts.filter(counts.users >= min_users), "query")


def fold(rows: ir.Table) -> ir.Table:
    """One event for each run of the same query in a session: several clicks on it, its next pages.

    Columns: `user`, `visit`, `event` (its number, ascending), `query`, `clicks`, `time`, `file`, `line` (of its start).
    """
    import ibis

    keys = ["user", "visit"]
    before = rows.query.lag().over(ibis.window(group_by=keys, order_by=_ORDER))
    changed = (before.isnull() | (before != rows.query)).cast("int64")
    runs = rows.mutate(changed=changed).mutate(
        event=lambda t: t.changed.sum().over(ibis.cumulative_window(group_by=keys, order_by=_ORDER))
    )
    return runs.group_by([*keys, "event"]).agg(
        query=runs["query"].max(),
        clicks=runs.clicks.sum().cast("int32"),
        time=runs.time.min(),
        file=runs.file.min(),
        line=runs.line.min(),
    )


def gather(events: ir.Table) -> ir.Table:
    """One row a session: `user`, `start`, `queries`, `clicks`, and `session`, its number in order of start."""
    import ibis

    item = ibis.struct({"event": events.event, "query": events["query"], "clicks": events.clicks})
    # Collected and then sorted: an ordered collect does not exist on every engine.
    sessions = events.group_by("user", "visit").agg(
        start=events.time.min(), file=events.file.min(), line=events.line.min(), items=item.collect()
    )
    sessions = sessions.mutate(items=sessions["items"].sort())
    order = ibis.window(order_by=["start", "file", "line", "user"])
    return sessions.select(
        "user",
        "start",
        session=ibis.row_number().over(order).cast("int64"),
        queries=sessions["items"].map(lambda entry: entry["query"]),
        clicks=sessions["items"].map(lambda entry: entry["clicks"]),
    )


def split_by_time(sessions: ir.Table, valid_from: object, test_from: object) -> ir.Table:
    """Adds `split`: `test` for sessions that start at `test_from` or later, `valid` from `valid_from`, else `train`."""
    import ibis

    return sessions.mutate(
        split=ibis.cases(
            (sessions.start >= ibis.literal(test_from, "timestamp"), "test"),
            (sessions.start >= ibis.literal(valid_from, "timestamp"), "valid"),
            else_="train",
        )
    )


def split_by_hash(sessions: ir.Table, seed: int, *, by_user: bool) -> ir.Table:
    """Adds `split` by a hash of the user, or of the queries, so that equal sessions stay together.

    The hash is MD5 of `seed:key`, read as a fraction of its range: the same on every engine and machine.
    """
    import ibis

    key = sessions.user if by_user else sessions.queries.join("\t")
    place = (ibis.literal(f"{seed}:") + key).hexdigest("md5").substr(0, 8)
    return sessions.mutate(
        split=ibis.cases((place >= _hex(TEST_FROM), "test"), (place >= _hex(VALID_FROM), "valid"), else_="train")
    )


def _hex(fraction: float) -> str:
    """The first eight hexadecimal digits of a fraction of the hash range; texts compare as the numbers do."""
    return f"{round(fraction * 2**32):08x}"


def number_users(sessions: ir.Table) -> ir.Table:
    """Puts a number in place of `user`: 0, 1, 2, ... in the order of the users' first sessions.

    So the numbers say nothing about the log's own.
    """
    import ibis

    firsts = sessions.group_by("user").agg(first=sessions.session.min())
    # Row numbers start at 0.
    numbers = firsts.select("user", number=ibis.row_number().over(ibis.window(order_by="first")).cast("int64"))
    return sessions.join(numbers, "user").drop("user").rename(user="number")


def query_counts(sessions: ir.Table) -> ir.Table:
    """`query` and `count`, the most frequent first."""
    import ibis

    queries = sessions.select(query=sessions.queries.unnest())
    counts = queries.group_by("query").agg(count=queries.count().cast("int64"))
    return counts.order_by(ibis.desc("count"), "query")
