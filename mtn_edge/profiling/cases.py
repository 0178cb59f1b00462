"""What is typed while a bundle is measured: every key press of real queries in their sessions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mtn_edge.errors import UserError

KEY_PRESSES = 2000
"""Key presses measured at most, about: sessions are drawn whole until there are as many."""


class Press(NamedTuple):
    """One request for suggestions."""

    session: int
    """Number of the session."""
    earlier: int
    """Queries searched before in it."""
    prefix: str
    """What stands in the search box; empty before the first key."""


def draw_sessions(sessions: Sequence[list[str]], *, seed: int, key_presses: int = KEY_PRESSES) -> list[list[str]]:
    """Whole sessions at random until their queries take `key_presses` keys."""
    order = np.random.default_rng(seed).permutation(len(sessions)).tolist()
    chosen: list[int] = []
    keys = 0
    for number in order:
        if keys >= key_presses:
            break
        chosen.append(number)
        keys += sum(map(len, sessions[number]))
    return [sessions[number] for number in sorted(chosen)]


def golden_sessions(bundle: Path) -> list[list[str]]:
    """The sessions of a bundle's golden vectors, each with the query it expects most as the one being typed.

    Raises:
        UserError: the bundle holds no golden vectors.
    """
    file = bundle / "golden.json"
    try:
        vectors = json.loads(file.read_bytes())["vectors"]
        sessions = [[*each["session"], each["suggestions"][0]["text"]] for each in vectors if each["suggestions"]]
        "".join(itertools.chain(*sessions)).encode()  # texts, all of them
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise UserError(
            f"`{file}` does not hold golden vectors ({error!r})", code="bad-golden", hint="give `--data`"
        ) from error
    return sessions


def presses(sessions: Sequence[Sequence[str]]) -> Iterator[Press]:
    """Every request of the sessions in order: before each query's first key, then after each of its keys."""
    for number, queries in enumerate(sessions):
        for earlier, query in enumerate(queries):
            for typed in range(len(query) + 1):
                yield Press(number, earlier, query[:typed])
