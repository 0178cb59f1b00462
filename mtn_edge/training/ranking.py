"""MRR@10 of a few validation queries, as a user would meet them: through the beam search, with the whole session."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import Network
from mtn_edge.runtime.search import Decoding, Search
from mtn_edge.tokenizer import Tokenizer

LIST = 10
"""Texts of a list, and hypotheses of a search."""


class RankingSample:
    """The queries that are asked for, always the same ones.

    Args:
        sessions: queries in normal form; those beyond the network's context are left out.
        tokenizer: the dataset's.
        queries: how many, at most.
    """

    def __init__(self, sessions: Sequence[Sequence[str]], tokenizer: Tokenizer, queries: int) -> None:
        self._tokenizer = tokenizer
        self._sessions: list[list[str]] = []
        for session in sessions:
            real = [query for query in session if query][:queries]
            self._sessions.append(real)
            queries -= len(real)

    def mrr(self, model: Network) -> float:
        """Mean of 1 / rank over all queries, with nothing typed and half typed; 0 for one that is not among the ten."""
        # A copy: the search wants the network on the CPU, in float32 and without dropout.
        engine = TorchEngine(copy.deepcopy(model).cpu().float().eval())
        search = Search(engine, self._tokenizer, Decoding(beam=LIST, max_steps=engine.max_tokens + 1))
        ranks = [rank for session in self._sessions for rank in _session_ranks(search, session)]
        return sum(1 / rank for rank in ranks if rank) / len(ranks)


def _session_ranks(search: Search, session: Sequence[str]) -> list[int]:
    """Rank of each query with nothing typed and with its first half typed; 0 where it is not found."""
    ranks: list[int] = []
    engine = search.engine
    state = engine.start()
    for number, query in enumerate(session[: engine.max_queries + 1]):
        if number:
            state = engine.append(search.tokenizer.encode(session[number - 1])[-engine.max_tokens :], state)
        for typed in ["", query[: len(query) // 2]][: len(query)]:  # one character has no half
            found = search.endings(state, typed, LIST)
            texts = [typed + ending.text for ending in found.endings[:LIST]] if found else []
            ranks.append(texts.index(query) + 1 if query in texts else 0)
    return ranks
