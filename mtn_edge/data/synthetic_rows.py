"""The rows that a log has of simulated sessions: laid out by numpy, joined to text by Arrow, none by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mtn_edge.data.synthetic import Chain
from mtn_edge.data.synthetic_draw import Sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = "AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n"
FIRST_DAY = np.datetime64("2006-03-01", "s")
CLICKS = (0.45, 0.40, 0.10, 0.05)
"""Probability of 0, 1, 2, 3 clicks on a query; the first click shares the row of the query."""
NEXT_PAGE = 0.12
NEXT_PAGE_SECONDS = 7
RANKS, SITES = 6, 400
UNTIDY = 0.03
"""Rows with capitals or with blanks that do not belong there."""
EMPTY, PRIVATE, CUT = 0.01, 0.002, 0.0003
"""Rows that no query stands behind, each after so many others: `-`, made-up addresses and numbers, cut short."""
MADE_UP = 10_000
"""Different addresses, and different telephone numbers."""


@dataclass(frozen=True)
class Rows:
    """Rows of a log; each array [rows] but the first."""

    of_session: NDArray[np.int64]
    """[sessions] rows of each session."""
    user: NDArray[np.int64]
    """From 0."""
    text: NDArray[np.int64]
    """Number of the text in `RowWriter`."""
    second: NDArray[np.int64]
    """Since the log begins."""
    click: NDArray[np.int64]
    """Number of the click in `RowWriter`: 0 none."""
    cut: NDArray[np.bool_]
    """Whether the row ends within its date."""

    def __len__(self) -> int:
        return len(self.user)

    def first(self, sessions: int) -> Rows:
        """The rows of the first of the sessions."""
        end = int(self.of_session[:sessions].sum())
        return Rows(
            of_session=self.of_session[:sessions],
            user=self.user[:end],
            text=self.text[:end],
            second=self.second[:end],
            click=self.click[:end],
            cut=self.cut[:end],
        )


class RowWriter:
    """Turns sessions of a chain into the bytes of a log."""

    def __init__(self, chain: Chain) -> None:
        import pyarrow as pa

        self._chain = chain
        texts = chain.texts
        tidy = [*texts, *(text.title() for text in texts), *(f" {text.replace(' ', '  ')} " for text in texts)]
        made_up = [f"user{number:04}@mail.example" for number in range(MADE_UP)]
        made_up += [f"555-{number:04}" for number in range(MADE_UP)]
        self._empty, self._made_up = len(tidy), len(tidy) + 1
        # The last piece of each kind is that of a row which is cut short.
        self._texts = pa.array([*(f"\t{text}\t" for text in (*tidy, "-", *made_up)), "\t"])
        clocks = [f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}" for second in range(86400)]
        self._clocks = pa.array([*clocks, ""])
        clicks = [f"\t{rank}\thttp://www.site{site}.example\n" for rank in range(1, RANKS + 1) for site in range(SITES)]
        self._clicks = pa.array(["\t\t\n", *clicks, "\n"])

    def lay_out(self, sessions: Sessions, rng: np.random.Generator) -> Rows:
        """Draws what is clicked, which next pages are asked, and the mess."""
        total = len(sessions.state)
        clicks = np.searchsorted(np.cumsum(CLICKS)[:-1], rng.random(total), side="right")
        copies = np.maximum(clicks, 1) + (rng.random(total) < NEXT_PAGE)
        query = np.repeat(np.arange(total), copies)
        place = np.arange(len(query)) - np.repeat(np.cumsum(copies) - copies, copies)  # 0, 1, ... within a query
        # A next page comes a few seconds later; clicks bear the time of their query, as in the real logs.
        is_page = place >= np.maximum(clicks, 1)[query]
        second = sessions.second[query] + np.where(is_page, NEXT_PAGE_SECONDS, 0)
        rank = 2 * place + rng.integers(0, 2, len(query))  # from 0
        site = rng.integers(0, SITES, len(query))
        click = np.where((place < clicks[query]) & ~is_page, 1 + rank * SITES + site, 0)
        luck = rng.random(len(query))
        style = np.where(luck < UNTIDY / 2, 1, np.where(luck < UNTIDY, 2, 0))
        text = self._chain.text[sessions.state][query] + style * len(self._chain.texts)

        bounds = np.array([CUT, PRIVATE, PRIVATE + EMPTY])
        kind = np.searchsorted(bounds, 1 - luck, side="right")  # 0 cut, 1 private, 2 empty, 3 nothing
        messy = np.flatnonzero(kind < len(bounds))
        mess = np.select(
            [kind[messy] == 0, kind[messy] == 1],
            [len(self._texts) - 1, self._made_up + rng.integers(0, 2 * MADE_UP, len(messy))],
            self._empty,
        )
        after = messy + 1
        query = np.insert(query, after, query[messy])
        owner = np.repeat(np.arange(len(sessions.user)), sessions.length)[query]
        return Rows(
            of_session=np.bincount(owner, minlength=len(sessions.user)),
            user=sessions.user[owner],
            text=np.insert(text.astype(np.int64), after, mess),
            second=np.insert(second, after, second[messy]),
            click=np.insert(click, after, np.where(kind[messy] == 0, len(self._clicks) - 1, 0)),
            cut=np.insert(np.zeros(len(text), np.bool_), after, kind[messy] == 0),
        )

    def text(self, rows: Rows, *, user: int) -> memoryview:
        """The rows as they stand in the log; `user` is the log's number of the first user."""
        import pyarrow as pa
        import pyarrow.compute as pc

        day, clock = np.divmod(rows.second, 86400)
        dates = np.datetime_as_string(FIRST_DAY + np.arange(day.max() + 1).astype("timedelta64[D]"), unit="D").tolist()
        dates = [*(f"{date} " for date in dates), *(date[:7] for date in dates)]
        pieces = [
            pa.array(rows.user + user).cast(pa.string()),
            self._texts.take(pa.array(rows.text)),
            pa.array(dates).take(pa.array(np.where(rows.cut, day + len(dates) // 2, day))),
            self._clocks.take(pa.array(np.where(rows.cut, len(self._clocks) - 1, clock))),
            self._clicks.take(pa.array(rows.click)),
        ]
        # Each row ends in its line feed, so the characters of the column are the text of the log.
        lines: Any = pc.binary_join_element_wise(*pieces, "")
        end = np.frombuffer(lines.buffers()[1], np.int32)[len(lines)]
        return memoryview(lines.buffers()[2])[: int(end)]
