"""Baselines that every model is compared with, by the names that `--baselines` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.evaluation.lists import (
    Adjacency,
    MostPopularCompletion,
    MostPopularSuffix,
    MostPopularWithTerms,
    Popularity,
)
from mtn_edge.evaluation.ngram_system import choose_shares, estimate_ngram, ngram_system
from mtn_edge.evaluation.systems import System
from mtn_edge.ngram.model import NGram


@dataclass(frozen=True)
class Evidence:
    """What baselines are made of; each part is read once, and when it is asked for."""

    dataset: Dataset
    max_bytes: int | None = None
    """Bytes that an n-gram may take; None for no limit."""

    @cached_property
    def popularity(self) -> Popularity:
        """See `Dataset.popularity`."""
        return self.dataset.popularity()

    @cached_property
    def sessions(self) -> list[list[str]]:
        """The training split."""
        return self.dataset.sessions("train")

    @cached_property
    def ngram(self) -> NGram:
        """The n-gram of the training split."""
        return estimate_ngram(self.sessions, self.dataset.tokenizer, self.max_bytes)


def _ngram(evidence: Evidence) -> System:
    return ngram_system(evidence.ngram, evidence.dataset.tokenizer)


def _ngram_and_copying(evidence: Evidence) -> System:
    model, tokenizer = evidence.ngram, evidence.dataset.tokenizer
    return ngram_system(model, tokenizer, choose_shares(model, evidence.dataset.sessions("valid"), tokenizer))


BASELINES: dict[str, Callable[[Evidence], System]] = {
    "mpc": lambda evidence: MostPopularCompletion(evidence.popularity),
    "mpc+terms": lambda evidence: MostPopularWithTerms(evidence.popularity),
    "adj": lambda evidence: Adjacency(evidence.popularity, evidence.sessions),
    "ngram": _ngram,
    "ngram+copy": _ngram_and_copying,
    "mcg": lambda evidence: MostPopularSuffix(evidence.popularity),
}
"""Every baseline by its name."""


def parse_names(text: str) -> list[str]:
    """The baselines that `--baselines` names, in its order; `none` names none.

    Raises:
        UserError: a name is unknown.
    """
    names = list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if names == ["none"]:
        return []
    for name in names:
        if name not in BASELINES:
            raise UserError(
                f"`--baselines` names `{name}`, which is not a baseline",
                code="unknown-baseline",
                hint=f"take any of {', '.join(BASELINES)}, or none",
            )
    return names
