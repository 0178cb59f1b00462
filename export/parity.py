"""PyTorch = graph: the same sessions and typed texts through both, hypothesis by hypothesis.

Reference cases cover the shapes that a device meets: queries of one token to the longest, sessions of no query to the
longest, narrow and wide beams, nothing typed and something typed. What PyTorch gave is kept in `golden.json`, so that
a device without PyTorch can repeat the comparison.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from export.checks import Check, at_least, at_most
from mtn_edge.decoding.prefix_constraint import Constraint, PrefixConstraint
from mtn_edge.errors import UserError
from mtn_edge.runtime.engine import DEAD, Engine, Hypotheses, SessionState
from mtn_edge.tokenizer import BOS, EOS, PAD, SPECIALS
from quantize.plan import Precision

FP32_BOUND = 1e-4
"""Largest difference of a score per token, and of a cached key or value, between PyTorch and a float32 graph."""
INT8_BOUND = 0.06
"""Largest mean difference per token between PyTorch's score of a hypothesis and an int8 graph's. Sessions of random
tokens are harder on rounding than those of users are: what these lose is held to closer bounds (`export.held_out`)."""
INT4_BOUND = 0.3
"""The same for an int4 graph."""
BEAMS = (1, 4, 8)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Reference:
    """One search and what PyTorch in float32 found."""

    session: list[list[int]]
    """Tokens of the earlier queries."""
    prefix: str
    """Typed text in normal form."""
    beam: int
    max_steps: int
    tokens: list[list[int]]
    """Live hypotheses, best first, without `<pad>`."""
    scores: list[float]


def record_references(
    engine: Engine, constraint: PrefixConstraint, *, prefixes: Sequence[str], max_steps: int, seed: int
) -> list[Reference]:
    """Searches with `engine` (PyTorch) for every session length, beam and prefix."""
    references = []
    sessions = [random_session(engine, queries, seed + queries) for queries in _session_lengths(engine)]
    for session in sessions:
        state = state_of(engine, session)
        for prefix in prefixes:
            typed = _typed(constraint, prefix, engine)
            for beam in BEAMS:
                steps = _steps(engine, typed, max_steps)
                found = live_rows(engine.search(state, typed, beam=beam, max_steps=steps))
                references.append(
                    Reference(session, prefix, beam, steps, [list(row) for row in found], list(found.values()))
                )
    return references


def check_states(reference: Engine, engine: Engine, *, seed: int) -> Check:
    """Compares cached keys and values for queries of every length, and through a session of the greatest length."""
    sessions = [[query] for query in _every_length(reference, seed)]
    sessions.append(random_session(reference, reference.max_queries, seed))
    # Two sessions of one user (to a model of two levels the start query is a query like others).
    before, after = (random_session(reference, reference.max_queries // 2, seed + place) for place in (1, 2))
    sessions.append([*before[1:], [BOS], *after[:-1]])
    differences = []
    for session in sessions:
        wanted, got = reference.start(), engine.start()
        differences.append(_state_difference(wanted, got))
        for query in session:
            wanted, got = reference.append(query, wanted), engine.append(query, got)
            differences.append(_state_difference(wanted, got))
    return at_most("PyTorch = graph: cached keys and values", largest(differences), FP32_BOUND)


def check_searches(engine: Engine, constraint: PrefixConstraint, references: Sequence[Reference]) -> list[Check]:
    """Repeats the searches on a float32 graph: the same hypotheses with the same scores.

    Hypotheses within the bound of each other may swap, at the end of the beam also with one that was left out.
    """
    missing, per_token = 0, [0.0]
    for case in references:
        typed = _typed(constraint, case.prefix, engine)
        state = state_of(engine, case.session)
        got = live_rows(engine.search(state, typed, beam=case.beam, max_steps=case.max_steps))
        wanted = {tuple(row): score for row, score in zip(case.tokens, case.scores, strict=True)}
        longest = max(map(len, wanted), default=1)
        lost, differences = match(wanted, got, places=case.beam, tie=FP32_BOUND * longest)
        missing += lost
        per_token += [difference / len(row) for row, difference in differences.items()]
    return [
        at_most("PyTorch = graph: hypotheses that differ", missing, 0),
        at_most("PyTorch = graph: score of a token", largest(per_token), FP32_BOUND),
        at_least("PyTorch = graph: hypotheses compared", sum(len(case.tokens) for case in references), 1),
    ]


def check_scores(
    engine: Engine, constraint: PrefixConstraint, references: Sequence[Reference], precision: Precision
) -> list[Check]:
    """What a graph of `precision` thinks of the best hypothesis that PyTorch found in each case."""
    differences = []
    for case in references:
        if case.tokens:
            settled = _typed(constraint, case.prefix, engine).start_tokens[1:].tolist()
            if len(settled) + len(case.tokens[0]) > engine.max_tokens + 1:
                raise _misfit(case.prefix, "the hypothesis after it is longer than the model writes")
            score = score_of(engine, constraint, state_of(engine, case.session), case.tokens[0], settled)
            differences.append(abs(score - case.scores[0]) / len(case.tokens[0]))
    bound = INT4_BOUND if precision == "int4" else INT8_BOUND
    return [at_most(f"PyTorch ~ {precision} graph: score of a token, mean", float(np.mean(differences)), bound)]


def match(
    wanted: Mapping[Key, float], got: Mapping[Key, float], *, places: int, tie: float
) -> tuple[int, dict[Key, float]]:
    """Compares two best-first lists by their entries' scores.

    Args:
        wanted: the expected entries.
        got: the list to judge.
        places: how many entries a list holds at most.
        tie: entries that lie this close to the last of a full list may be missing from it.

    Returns:
        How many entries are missing, and the absolute difference of the score of each of the others.
    """
    floor = min(got.values(), default=float("inf")) + tie if len(got) == places else -float("inf")
    missing = sum(score > floor for key, score in wanted.items() if key not in got)
    return missing, {key: abs(got[key] - score) for key, score in wanted.items() if key in got}


def largest(values: Iterable[float]) -> float:
    """The largest of some numbers, and no number when one of them is none (Python's `max` may lose it)."""
    return float(np.max(list(values)))


def score_of(
    engine: Engine,
    constraint: PrefixConstraint,
    state: SessionState,
    tokens: Sequence[int],
    settled: Sequence[int] = (),
) -> float:
    """Log p(tokens | session, settled) of one hypothesis, ended by `<eos>` or cut by the number of steps."""
    exact = constraint.exact([token for token in tokens if token != EOS], settled)
    return float(engine.search(state, exact, beam=1, max_steps=len(tokens)).scores[0])


def state_of(engine: Engine, session: Sequence[Sequence[int]]) -> SessionState:
    """The state after the queries of `session`."""
    state = engine.start()
    for query in session:
        state = engine.append(query, state)
    return state


def live_rows(found: Hypotheses) -> dict[tuple[int, ...], float]:
    """The hypotheses that keep to the constraint, without `<pad>`, best first."""
    return {
        tuple(token for token in row if token != PAD): score
        for row, score in zip(found.tokens.tolist(), found.scores.tolist(), strict=True)
        if score > DEAD
    }


def random_session(engine: Engine, queries: int, seed: int) -> list[list[int]]:
    """`queries` queries of random tokens, of 1 to 8 tokens (as far as the model reads so many)."""
    rng = np.random.default_rng([seed, queries])
    lengths = rng.integers(1, min(8, engine.max_tokens), size=queries, endpoint=True)
    return [rng.integers(len(SPECIALS), engine.vocab_size, size=length).tolist() for length in lengths]


def _every_length(engine: Engine, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    lengths = range(1, engine.max_tokens + 1)
    return [rng.integers(len(SPECIALS), engine.vocab_size, size=length).tolist() for length in lengths]


def _typed(constraint: PrefixConstraint, prefix: str, engine: Engine) -> Constraint:
    try:
        typed = constraint.typed(prefix, engine.max_tokens)
    except ValueError:  # not in normal form
        typed = None
    if typed is None:
        raise _misfit(prefix, "the model cannot write it")
    return typed


def _misfit(prefix: str, why: str) -> UserError:
    return UserError(
        f"a reference of the golden vectors types {prefix[:40]!a}, and {why}",
        code="bad-golden",
        hint="make the bundle again",
    )


def _steps(engine: Engine, constraint: Constraint, max_steps: int) -> int:
    return min(max_steps, engine.max_tokens + 2 - len(constraint.start_tokens))


def _session_lengths(engine: Engine) -> list[int]:
    return sorted({min(queries, engine.max_queries) for queries in (0, 1, 5, engine.max_queries)})


def _state_difference(one: SessionState, other: SessionState) -> float:
    if {name: part.shape for name, part in one.items()} != {name: part.shape for name, part in other.items()}:
        return float("inf")
    return largest(float(np.abs(part - other[name]).max(initial=0)) for name, part in one.items())
