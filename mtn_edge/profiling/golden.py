"""A bundle's golden vectors, held against what another device answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mtn_edge.errors import UserError

Scored = tuple[str, float]
"""A suggestion and its score (nats)."""


@dataclass(frozen=True)
class GoldenPress:
    """One key press and its expected answer.

    Attributes:
        session: the earlier queries.
        typed: what stands in the search box.
        suggestions: the expected list, best first.
    """

    session: list[str]
    typed: str
    suggestions: list[Scored]


def golden_presses(bundle: Path) -> tuple[list[GoldenPress], float]:
    """The golden key presses, and how far a score may lie from the expected one (nats).

    Raises:
        UserError: the bundle holds none.
    """
    file = bundle / "golden.json"
    try:
        document = json.loads(file.read_bytes())
        vectors = [
            GoldenPress(
                [*map(str, vector["session"])],
                str(vector["typed"]),
                [(str(entry["text"]), float(entry["score"])) for entry in vector["suggestions"]],
            )
            for vector in document["vectors"]
        ]
        return vectors, float(document["tolerance"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"`{file}` does not hold golden vectors ({error!r})", code="bad-golden", hint="make the bundle again"
        ) from error


def agrees(wanted: Sequence[Scored], found: Sequence[Scored], *, places: int, tolerance: float) -> bool:
    """Whether a list is the expected one: the same texts in the same order with the same scores.

    Args:
        wanted: the expected list.
        found: the list to judge.
        places: how many entries a list holds at most.
        tolerance: how far scores may lie apart; so near, two entries may swap, and the last one may be missing.
    """
    scores = dict(found)
    last = min(scores.values(), default=0.0) + tolerance if len(found) == places else -float("inf")
    for text, score in wanted:
        if text not in scores:
            if score > last:
                return False
        elif abs(scores[text] - score) > tolerance:
            return False
    both = [(score, scores[text]) for text, score in wanted if text in scores]
    return not any(
        one_wanted - next_wanted > tolerance and one < following
        for (one_wanted, one), (next_wanted, following) in pairwise(both)
    )
