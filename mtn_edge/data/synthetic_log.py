"""A simulated log in the AOL format: click rows, next pages, empty queries, and the mess of real logs.

Each query of `synthetic.simulate` becomes one row, or more when results are clicked or a next page is asked. A few rows
are `-`, differ in capitals and blanks, hold made-up addresses and numbers, or are cut short.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mtn_edge.data.synthetic import Phrases, Simulation, simulate
from mtn_edge.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = "AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n"
FIRST_DAY, DAYS = np.datetime64("2006-03-01", "s"), 92
CLICKS = (0.45, 0.40, 0.10, 0.05)
"""Probability of 0, 1, 2, 3 clicks on a query; the first click shares the row of the query."""
NEXT_PAGE, EMPTY, UNTIDY, PRIVATE, CUT = 0.12, 0.01, 0.03, 0.002, 0.0003
PAUSE_SECONDS = (15, 400)
"""Shortest and longest pause between the queries of a session; evenly spread in its logarithm."""


def write_log(output: Path, sessions: int, seed: int, *, force: bool = False) -> dict[str, int]:
    """Writes the log of `sessions` simulated sessions and returns what it holds.

    Args:
        output: a new file.
        sessions: how many.
        seed: the same seed gives the same file.
        force: replace an existing file.

    Raises:
        UserError: `output` exists or cannot be written.
    """
    if output.is_dir() or (output.exists() and not force):
        raise UserError(
            f"`{output}` exists already and nothing is overwritten",
            code="exists",
            hint="choose another name with -o" + ("" if output.is_dir() else ", or replace it with --force"),
        )
    rng = np.random.default_rng(seed)
    simulation = simulate(sessions, rng)
    lines = _lines(simulation, rng)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(HEADER)
                file.writelines(lines)
            Path(name).chmod(0o644)
            Path(name).replace(output)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"`{output}` cannot be written ({error.strerror})", code="not-writable", hint="choose another file with -o"
        ) from error
    return {
        "sessions": sessions,
        "users": len(np.unique(simulation.user)),
        "queries": len(simulation.session),
        "rows": len(lines),
        "seed": seed,
    }


def _lines(simulation: Simulation, rng: np.random.Generator) -> list[str]:
    """The rows of the log, by user and time."""
    phrases = Phrases()
    query = phrases.index(simulation.states)
    total = len(query)
    time = _times(simulation, rng)
    clicks = np.searchsorted(np.cumsum(CLICKS)[:-1], rng.random(total), side="right")
    pages = (rng.random(total) < NEXT_PAGE).astype(np.int64)
    copies = np.maximum(clicks, 1) + pages
    row = np.repeat(np.arange(total), copies)
    place = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)  # 0, 1, ... within a query
    # A next page comes a few seconds later; clicks bear the time of their query, as in the real logs.
    is_page = place >= np.maximum(clicks, 1)[row]
    seconds = time[row] + np.where(is_page, 7, 0)
    clicked = (place < clicks[row]) & ~is_page
    rank = np.where(clicked, 1 + 2 * place + rng.integers(0, 2, len(row)), 0)
    site = rng.integers(0, 400, len(row))
    stamp = np.datetime_as_string(FIRST_DAY + seconds.astype("timedelta64[s]"), unit="s")
    user = simulation.user[simulation.session[row]] + 1001
    mess = rng.random(len(row))
    private = rng.integers(0, 10_000, len(row))
    lines: list[str] = []
    for number, text, moment, position, host, luck, digits in zip(
        user.tolist(),
        phrases.texts[query[row]].tolist(),
        stamp.tolist(),
        rank.tolist(),
        site.tolist(),
        mess.tolist(),
        private.tolist(),
        strict=True,
    ):
        moment = moment.replace("T", " ")
        click = f"{position}\thttp://www.site{host}.example" if position else "\t"
        lines.append(f"{number}\t{_untidy(text, luck)}\t{moment}\t{click}\n")
        lines += _mess(number, moment, luck, digits)
    return lines


def _times(simulation: Simulation, rng: np.random.Generator) -> NDArray[np.int64]:
    """Seconds since the first day of each query; a user's sessions in turn, on days of their own if possible."""
    first = np.searchsorted(simulation.user, simulation.user)
    turn = np.arange(len(simulation.user)) - first
    of_user = np.bincount(simulation.user)[simulation.user]
    day = ((turn + rng.random(len(turn))) * DAYS / of_user).astype(np.int64)
    # Round the clock, with a hump in the evening.
    second = (rng.normal(17.0, 5.0, len(day)) % 24 * 3600).astype(np.int64)
    low, high = np.log(PAUSE_SECONDS)
    pause = np.exp(rng.uniform(low, high, len(simulation.session))).astype(np.int64)
    begins = np.flatnonzero(np.diff(simulation.session, prepend=-1))
    elapsed = np.cumsum(pause)
    elapsed -= np.repeat(elapsed[begins], np.diff([*begins, len(pause)]))
    return np.asarray((day * 86400 + second)[simulation.session] + elapsed)


def _untidy(text: str, luck: float) -> str:
    if luck >= UNTIDY:
        return text
    return text.title() if luck < UNTIDY / 2 else f" {text.replace(' ', '  ')} "


def _mess(user: int, moment: str, luck: float, digits: int) -> list[str]:
    """Rows that no query stands behind, after about one row in a hundred."""
    luck = 1 - luck
    if luck < CUT:
        return [f"{user}\t{moment[:7]}\n"]
    if luck < PRIVATE / 2:
        return [f"{user}\tuser{digits:04d}@mail.example\t{moment}\t\t\n"]
    if luck < PRIVATE:
        return [f"{user}\t555-{digits:04d}\t{moment}\t\t\n"]
    if luck < PRIVATE + EMPTY:
        return [f"{user}\t-\t{moment}\t\t\n"]
    return []
