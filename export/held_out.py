"""What quantization changes, on sessions and next queries that no training saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from export.checks import Check, at_least, at_most
from mtn_edge.runtime.suggester import Session, Suggester
from quantize.plan import Precision

LIST = 8
"""Suggestions that are compared."""
MIN_AGREEMENT = 0.9
"""Smallest share of lists with the same first suggestion in int8 as in float32."""
MAX_MRR_DROP = 0.02
"""Largest loss of mean reciprocal rank."""
MAX_NATS = 0.02
"""Largest rise of the loss of a token, in nats."""
WIDER = 4.0
"""By how much the three are wider for four-bit weights, which are offered for their size and not for their quality."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Pair:
    """A session, the query that came next, and how much of it was typed."""

    session: tuple[str, ...]
    query: str
    typed: str


@dataclass(frozen=True)
class Quality:
    """What one precision gives on some pairs."""

    mrr: float
    """Mean reciprocal rank of the next query, something of it typed, among `LIST` suggestions."""
    nats: float
    """Loss of a token of the next query (with `<eos>`), nothing typed."""
    first: list[str]
    """The first suggestion of each list, as typed and continued; empty where there is none."""


def dataset_pairs(sessions: Sequence[Sequence[str]], count: int, seed: int) -> list[Pair]:
    """`count` pairs at random, from as many different sessions (fewer when there are not so many)."""
    rng = np.random.default_rng(seed)
    pairs = []
    for place in rng.permutation(len(sessions))[:count].tolist():
        queries = sessions[place]
        position = int(rng.integers(len(queries)))
        pairs.append(_pair(rng, tuple(queries[:position]), queries[position]))
    return pairs


def own_pairs(suggester: Suggester, count: int, seed: int) -> list[Pair]:
    """`count` pairs out of sessions that the model itself writes, each query beginning with a letter at random."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        session = suggester.session()
        for _ in range(int(rng.integers(2, 6))):
            letter = LETTERS[rng.integers(len(LETTERS))]
            found = session.suggest(letter, LIST).suggestions
            session.append(found[rng.integers(len(found))].text if found else letter)
        *earlier, query = session.queries
        pairs.append(_pair(rng, tuple(earlier), query))
    return pairs


def measure(suggester: Suggester, pairs: Sequence[Pair]) -> Quality:
    """Suggestions and losses on `pairs`."""
    ranks, first, nats, tokens = [], [], 0.0, 0
    for pair in pairs:
        session = suggester.session(pair.session)
        rank, best = _rank_and_first(session, pair)
        ranks.append(rank)
        first.append(best)
        log_probability, count = session.log_probability(pair.query)
        nats -= log_probability
        tokens += count
    return Quality(float(np.mean(ranks)), nats / tokens, first)


def mean_reciprocal_rank(suggester: Suggester, pairs: Sequence[Pair]) -> float:
    """MRR of the next query, something of it typed, among `LIST` suggestions."""
    return float(np.mean([_rank_and_first(suggester.session(pair.session), pair)[0] for pair in pairs]))


def compare(
    precision: Precision,
    suggester: Suggester,
    reference: Suggester,
    exact: Suggester,
    samples: Mapping[str, Sequence[Pair]],
) -> tuple[dict[str, Any], list[Check]]:
    """Measures what a precision changes.

    Args:
        precision: of `suggester`.
        suggester: what was made.
        reference: the checkpoint in float32.
        exact: the weights that were quantized, in float32: those of the checkpoint, unless it was trained on.
        samples: pairs by where they come from.

    Returns:
        Figures of each sample for the manifest, and the gate, which looks at the first sample.
    """
    quality: dict[str, Any] = {}
    checks: list[Check] = []
    for source, pairs in samples.items():
        measured = {"fp32": measure(reference, pairs)}
        if exact is not reference:
            measured["fp32_trained"] = measure(exact, pairs)
        if precision != "fp32":
            measured[precision] = measure(suggester, pairs)
            near = replace(measured["fp32"], first=measured.get("fp32_trained", measured["fp32"]).first)
            checks = checks or check_precision(near, measured[precision], precision)
        quality[source] = {"pairs": len(pairs)} | {
            name: {f"mrr@{LIST}": round(q.mrr, 4), "nats_per_token": round(q.nats, 4)} for name, q in measured.items()
        }
    return quality, checks


def check_precision(fp32: Quality, found: Quality, precision: Precision) -> list[Check]:
    """The gate between float32 and another precision."""
    same = np.mean([one == other for one, other in zip(fp32.first, found.first, strict=True)])
    wider = WIDER if precision == "int4" else 1.0
    names = f"{precision} ~ fp32"
    return [
        at_least(f"{names}: lists with the same first suggestion", float(same), 1 - wider * (1 - MIN_AGREEMENT)),
        at_most(f"{names}: loss of MRR@{LIST}", fp32.mrr - found.mrr, wider * MAX_MRR_DROP),
        at_most(f"{names}: nats per token more", found.nats - fp32.nats, wider * MAX_NATS),
    ]


def _rank_and_first(session: Session, pair: Pair) -> tuple[float, str]:
    """1 / rank of the next query (0 when it is not in the list), and the first suggestion."""
    texts = [suggestion.text for suggestion in session.suggest(pair.typed, LIST).suggestions]
    rank = 1 / (1 + texts.index(pair.query)) if pair.query in texts else 0.0
    return rank, texts[0] if texts else ""


def _pair(rng: np.random.Generator, session: tuple[str, ...], query: str) -> Pair:
    """The query with a part of it typed: nothing up to all but its last character."""
    return Pair(session, query, query[: int(rng.integers(len(query)))])
