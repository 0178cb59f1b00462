"""The n-gram baselines: estimated on the training split, weighed on the validation split, decoded like a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mtn_edge.data.batches import TokenizedSessions
from mtn_edge.evaluation import metrics
from mtn_edge.evaluation.copying import SessionCopies, Shares
from mtn_edge.evaluation.ngram_engine import NgramEngine
from mtn_edge.evaluation.prefixes import prefix_lengths
from mtn_edge.evaluation.systems import Model
from mtn_edge.ngram.counting import count
from mtn_edge.ngram.model import NGram
from mtn_edge.ngram.pruning import fit
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.tokenizer import BOS, EOS, Tokenizer

FACTORS = (1.0, 0.5, 0.25)
"""Factors of all shares that are tried."""
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Shares of copying that are tried."""
WEIGHED_QUERIES = 5000
"""Queries of the validation split at most on which shares are tried."""
RANKED_QUERIES = 200
"""Queries of the validation split at most on which factors are tried."""


def estimate_ngram(sessions: Sequence[Sequence[str]], tokenizer: Tokenizer, max_bytes: int | None) -> NGram:
    """The 4-gram of the queries of some sessions, pruned until it fits."""
    tokens = TokenizedSessions(sessions, tokenizer.encode_batch)
    counts = count(tokens.tokens, tokens.query_offsets)
    return fit(counts, len(tokenizer), max_bytes, most_followers=None)


def ngram_system(model: NGram, tokenizer: Tokenizer, shares: Shares | None = None) -> Model:
    """The n-gram with the search, the merging and the rules of the product, without a list of popular completions."""
    suggester = Suggester(
        engine=NgramEngine(model, shares),
        tokenizer=tokenizer,
        completions=Completions(()),
        blocklist=Blocklist(),
        decoding=Decoding(),
    )
    settings: dict[str, Any] = {"entries": [len(level.tokens) for level in model.levels]}
    return Model(suggester, model.nbytes, settings if shares is None else settings | {"copy_shares": list(shares)})


def choose_shares(model: NGram, sessions: Sequence[Sequence[str]], tokenizer: Tokenizer) -> Shares:
    """How much `ngram+copy` copies: the shares that are most likely, times the factor that ranks best.

    A search looks for the most probable text, and what is right on the average copies too much for that.

    Args:
        model: the n-gram.
        sessions: the validation split.
        tokenizer: of both.
    """
    likely = weigh_copying(model, sessions, tokenizer)
    if not any(likely):
        return likely
    asked = [session for session in sessions if len(session) > 1]
    tried = [(likely[0] * factor, likely[1] * factor, likely[2] * factor) for factor in FACTORS]
    return max(tried, key=lambda shares: _gain(ngram_system(model, tokenizer, shares), asked))


def _gain(system: Model, sessions: Sequence[Sequence[str]]) -> float:
    """Sum of 1/rank of completing the second and later queries of sessions, the first `RANKED_QUERIES` or so."""
    ranks: list[int] = []
    asked = 0
    for queries in sessions:
        if asked >= RANKED_QUERIES:
            break
        session = system.start()
        for last, query in pairwise(queries):
            session.append(last)
            asked += 1
            ranks += [metrics.rank(query, session.candidates(query[:length]).texts) for length in prefix_lengths(query)]
    return float(metrics.reciprocal(np.array(ranks, dtype=np.int64)).sum())


def weigh_copying(model: NGram, sessions: Sequence[Sequence[str]], tokenizer: Tokenizer) -> Shares:
    """The shares of copying that give the second and later queries of some sessions the highest likelihood.

    One share for each length of the longest match, each the best of `SHARES`: no token is in two of them, so they are
    chosen apart.
    """
    tokens = TokenizedSessions(sessions, tokenizer.encode_batch)
    rows: list[tuple[int, float, float, float]] = []
    for first, last in zip(tokens.session_offsets[:-1], tokens.session_offsets[1:], strict=True):
        if first >= WEIGHED_QUERIES:
            break
        rows += _scored(model, tokens, int(first), int(last))
    if not rows:
        return 0.0, 0.0, 0.0
    table = np.array(rows)
    longest, own, copied, left = table.T
    best = []
    for length in range(3):
        part = longest == length
        gains = [
            float(np.log((1 - share) * own[part] + share * (copied[part] + left[part] * own[part])).sum())
            for share in SHARES
        ]
        best.append(SHARES[int(np.argmax(gains))])
    return best[0], best[1], best[2]


def _scored(model: NGram, tokens: TokenizedSessions, first: int, last: int) -> list[tuple[int, float, float, float]]:
    """For each token of the second and later queries of a session: the length of the longest match, the n-gram's
    probability, what is copied, and the weight that the matches leave to the n-gram."""
    text: list[int] = []
    rows = []
    for query in range(first, last):
        part = tokens.tokens[tokens.query_offsets[query] : tokens.query_offsets[query + 1]].tolist()
        spelt = [*part, EOS]
        if query > first:
            copies = SessionCopies(text, (1.0, 1.0, 1.0))
            own = model.probabilities(*model.walk(np.array(part), np.array([0, len(part)])))
            column = {token: number for number, token in enumerate(copies.tokens.tolist())}
            before: tuple[int, ...] = (BOS,)
            for token, chance in zip(spelt, own.tolist(), strict=True):
                left, copied = copies.mix(before)
                there = float(copied[column[token]]) if token in column else 0.0
                rows.append((copies.longest(before), chance, there, left))
                before = (before[-1], token)
        text += [BOS, *spelt]
    return rows
