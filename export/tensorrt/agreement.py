"""PyTorch's search = the networks': the same sessions and typed texts through both, hypothesis by hypothesis.

The reference is `mtn_edge.decoding.beam_search`, with one session and one typed text at a time; the networks answer
them as batches of every size up to their largest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from export.checks import Check, at_least, at_most
from export.parity import FP32_BOUND, INT8_BOUND, largest, live_rows, match, random_session, state_of
from export.tensorrt.batch import BatchEngine, KeyPress
from export.tensorrt.networks import Precision
from export.tensorrt.sizes import Sizes
from mtn_edge.decoding.prefix_constraint import PrefixConstraint
from mtn_edge.runtime.engine import NO_FLOOR, Engine, Hypotheses

FP16_BOUND = 0.01
"""Largest mean difference per token between PyTorch's score of a hypothesis in float32 and a network's in float16."""
FLOORS = (NO_FLOOR, -5.0)


class Case(NamedTuple):
    """A key press and what PyTorch in float32 found."""

    press: KeyPress
    found: Hypotheses


def record(
    reference: Engine,
    engine: BatchEngine,
    sizes: Sizes,
    constraint: PrefixConstraint,
    prefixes: Sequence[str],
    seed: int,
) -> list[Case]:
    """Searches with `reference` for every session length, typed text and floor.

    Args:
        reference: the model on PyTorch.
        engine: the networks, which say how a session is kept.
        sizes: theirs.
        constraint: makes constraints of typed texts.
        prefixes: typed texts in normal form.
        seed: of the sessions.
    """
    lengths = sorted({min(queries, sizes.max_queries) for queries in (0, 1, 3, sizes.max_queries)})
    cases = []
    for number, (queries, prefix, floor) in enumerate(itertools.product(lengths, prefixes, FLOORS)):
        typed = constraint.typed(prefix, sizes.max_tokens)
        if typed is None:
            continue
        session = random_session(reference, queries, seed + number)
        left = sizes.max_tokens + 2 - len(typed.start_tokens)
        steps = min(sizes.steps - number % 2, left) or 1
        found = reference.search(state_of(reference, session), typed, beam=sizes.beam, max_steps=steps, floor=floor)
        cases.append(Case(KeyPress(state_of(engine, session)["session_queries"], typed, steps, floor), found))
    return cases


def check(engine: BatchEngine, sizes: Sizes, cases: Sequence[Case], precision: Precision, where: str) -> list[Check]:
    """Repeats the searches.

    Args:
        engine: the networks in some precision, wherever they run.
        sizes: theirs.
        cases: what `record` gave.
        precision: of `engine`.
        where: what runs it, for the names of the checks.
    """
    missing, compared, broken, differences = 0, 0, 0, []
    for case, got in zip(cases, _answers(engine, sizes, cases), strict=True):
        wanted, rows = live_rows(case.found), live_rows(got)
        longest = max(map(len, wanted), default=1)
        lost, found = match(wanted, rows, places=sizes.beam, tie=FP32_BOUND * longest)
        missing += lost
        compared += len(found)
        differences += [difference / len(row) for row, difference in found.items()]
        differences.append(abs(got.mass - case.found.mass))
        broken += int((~np.isfinite(got.scores)).sum())
    name = f"PyTorch {'=' if precision == 'fp32' else '~'} {where}, {precision}"
    enough = [
        at_least(f"{name}: hypotheses compared", compared, 1),
        at_most(f"{name}: scores that are no number", broken, 0),  # half precision overflows
    ]
    if precision == "fp32":
        return [
            at_most(f"{name}: hypotheses that differ", missing, 0),
            at_most(f"{name}: score of a token, and mass", largest(differences), FP32_BOUND),
            *enough,
        ]
    bound = FP16_BOUND if precision == "fp16" else INT8_BOUND
    return [at_most(f"{name}: score of a token, mean", float(np.mean(differences)), bound), *enough]


def _answers(engine: BatchEngine, sizes: Sizes, cases: Sequence[Case]) -> list[Hypotheses]:
    """The cases in batches of 1, 2, 3, ... key presses."""
    answers: list[Hypotheses] = []
    size = 0
    while len(answers) < len(cases):
        size = size % sizes.max_batch + 1
        answers += engine.run([case.press for case in cases[len(answers) : len(answers) + size]])
    return answers
