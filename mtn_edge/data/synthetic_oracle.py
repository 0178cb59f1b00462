"""The file beside a simulated log: for every next query, and every prefix of it that the protocol asks, exact answers.

JSON lines. The first is the header: format, version, the equations, the log and its hash, what is covered, all texts.
Then one line a session, found in a prepared dataset by its start and queries:

    user, start      as they stand in the log
    queries          numbers of its texts in the header's `texts`
    log_probability  nats of each query given the queries before it
    top              for each query, for nothing typed and for each prefix that is asked: [characters typed, numbers of
                     the ten most probable texts that start so, their probabilities, 6 digits], see `OracleSession.top`
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from mtn_edge import console
from mtn_edge.data.oracle import FORMAT, VERSION, Oracle
from mtn_edge.data.pipeline import TEST_FROM
from mtn_edge.data.synthetic import Chain
from mtn_edge.data.synthetic_draw import Sessions
from mtn_edge.data.synthetic_rows import FIRST_DAY
from mtn_edge.evaluation.metrics import CUT
from mtn_edge.evaluation.prefixes import prefix_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

Coverage = Literal["test", "all", "none"]
COVERED_FROM = TEST_FROM - 0.02
"""`test` covers the sessions after this share of all, by start: those of the test split, and as many more as may
come into it when queries of few users are dropped."""


@dataclass(frozen=True)
class Source:
    """Some sessions of a log, one user after another."""

    sessions: Sessions
    user: int
    """The log's number of the first user."""


def write_oracle(
    file: IO[bytes],
    chain: Chain,
    sources: Iterable[Source],
    starts: NDArray[np.int64],
    coverage: Coverage,
    *,
    log: dict[str, Any],
) -> dict[str, Any]:
    """Writes the oracle's file and returns what it covers, and what the best answers reach there on each task.

    Every task is asked as `evaluation/protocol.py` has it: `suggest` from the second query on with nothing typed,
    `complete` at every query for each prefix of the rule.

    Args:
        file: a new file.
        chain: the simulator.
        sources: all sessions of the log.
        starts: second in which each begins, [sessions].
        coverage: which are covered.
        log: facts of the log for the header.
    """
    place = min(max(1, int(len(starts) * COVERED_FROM)), len(starts) - 1)
    begin = int(starts.min() if coverage == "all" else np.partition(starts, place)[place])
    covered = int((starts >= begin).sum())
    oracle = Oracle(chain)
    best = {"suggest": _Best(), "complete": _Best()}
    _put(file, _header(chain, log, coverage, _clock(begin)))
    done = 0
    with console.progress("oracle", covered, "sessions") as update:
        for source in sources:
            sessions = source.sessions
            at = sessions.begin
            for number in np.flatnonzero(sessions.second[at] >= begin).tolist():
                texts = chain.text[sessions.state[at[number] : at[number] + sessions.length[number]]].tolist()
                start = _clock(int(sessions.second[at[number]]))
                answers = _answers(oracle, texts, best)
                _put(file, f'{{"user":"{source.user + sessions.user[number]}","start":"{start}",{answers}}}')
                done += 1
                update(done, "")
    figures = {task: found.figures() for task, found in best.items()}
    return {"covered": coverage, "sessions": covered, **figures}


class _Best:
    """What the best lists reach on one task: how often the query that came stood where."""

    def __init__(self) -> None:
        self._at = np.zeros(CUT + 1, np.int64)
        """[rank] questions; 0: not in the list."""

    def add(self, rank: int) -> None:
        self._at[rank] += 1

    def figures(self) -> dict[str, Any]:
        """`n` questions, and the figures of the evaluation over them; without questions only `n`."""
        n = int(self._at.sum())
        if not n:
            return {"n": 0}
        return {
            "n": n,
            "mrr@10": float((self._at[1:] / np.arange(1, CUT + 1)).sum()) / n,
            "success@1": int(self._at[1]) / n,
            "success@10": int(self._at[1:].sum()) / n,
        }


def _header(chain: Chain, log: dict[str, Any], coverage: Coverage, begin: str) -> str:
    document = {
        "format": FORMAT,
        "version": VERSION,
        "equations": "docs/simulator.md",
        "difficulty": chain.world.difficulty,
        "seed": log["seed"],
        "log": {name: value for name, value in log.items() if name not in ("seed", "difficulty")},
        "covered": {"split": coverage, "from": begin},
        "texts": chain.texts,
    }
    return json.dumps(document, ensure_ascii=False)


def _answers(oracle: Oracle, texts: list[int], best: dict[str, _Best]) -> str:
    """The rest of a session's line; what its lists reach is added to `best`."""
    session = oracle.start()
    scores, tops = [], []
    for position, number in enumerate(texts):
        query = oracle.texts[number]
        scores.append(f"{session.log_probability(query):.6g}")
        lists = []
        for length in (0, *prefix_lengths(query)):
            found, probability = session.top(query[:length])
            numbers = found.tolist()
            if length or position:
                rank = numbers.index(number) + 1 if number in numbers else 0
                best["complete" if length else "suggest"].add(rank)
            listed = ",".join(f"{each:.6g}" for each in probability.tolist())
            lists.append(f"[{length},[{','.join(map(str, numbers))}],[{listed}]]")
        tops.append(f"[{','.join(lists)}]")
        session.append(query)
    return f'"queries":[{",".join(map(str, texts))}],"log_probability":[{",".join(scores)}],"top":[{",".join(tops)}]'


def _clock(second: int) -> str:
    return str(FIRST_DAY + np.timedelta64(second, "s")).replace("T", " ")


def _put(file: IO[bytes], line: str) -> None:
    file.write(line.encode() + b"\n")
