"""A teacher's own answers on training sessions, as a user would meet them (Kim & Rush 2016, section 3.2).

For some sessions every query is asked for again: with nothing typed, or with one of the prefixes that the evaluation
types (`evaluation.prefixes`); the first query of a session always with something typed. The best answer of the
teacher's constrained beam search takes the query's place as a target. The context stays what was really searched, so a
session costs one row of a batch, like any other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from mtn_edge.console import progress
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.errors import InterruptedRunError
from mtn_edge.evaluation.prefixes import prefix_lengths
from mtn_edge.runtime.search import Decoding, Search
from mtn_edge.training.checkpoint import Checkpoint
from mtn_edge.training.objective import Clock, Rewritten
from quantize.teacher_folder import ANSWERS, SAVE_SECONDS, TeacherFolder

NOTHING_TYPED = 0.5
"""Probability that nothing is typed, from the second query on."""


def teacher_answers(
    teacher: Checkpoint,
    sessions: Sequence[Sequence[str]],
    folder: TeacherFolder,
    *,
    share: float,
    beam: int,
    seed: int,
    clock: Clock,
) -> Rewritten:
    """Asks for the answers, or for those that an earlier command has not saved.

    Args:
        teacher: on the CPU.
        sessions: of the training split.
        folder: where to keep the answers, open.
        share: of the sessions.
        beam: hypotheses of a search.
        seed: of the choice of sessions and prefixes.
        clock: how long that may take.

    Raises:
        UserError: the time is up.
        InterruptedRunError: Ctrl-C; the answers so far are saved.
    """
    chosen = choose(sessions, share, seed, longest=teacher.model.max_queries + 1)
    with (folder.path / ANSWERS).open("a+b") as file:
        answers = _whole_lines(file)
        if len(answers) < len(chosen):
            engine = TorchEngine(teacher.model, teacher.sources)
            search = Search(engine, teacher.tokenizer, Decoding(beam=beam, max_steps=engine.max_tokens + 1))
            answers += _ask(search, chosen[len(answers) :], len(answers), file, seed, clock)
    return Rewritten(chosen, answers)


def choose(sessions: Sequence[Sequence[str]], share: float, seed: int, *, longest: int) -> list[list[str]]:
    """A share of the sessions that have queries, without empty ones and cut to `longest` queries."""
    real = [queries for session in sessions if (queries := [query for query in session if query])]
    order = np.random.default_rng(seed).permutation(len(real))[: round(share * len(real))]
    return [real[number][:longest] for number in order.tolist()]


def typed_prefixes(session: Sequence[str], seed: int, number: int) -> list[str]:
    """What is typed of each query of the session with this number."""
    random = np.random.default_rng((seed, number))
    typed = []
    for place, query in enumerate(session):
        lengths = (0, *prefix_lengths(query))
        start = random.random() < NOTHING_TYPED if place else False
        length = 0 if start or len(lengths) == 1 else lengths[int(random.integers(1, len(lengths)))]
        typed.append(query[:length])
    return typed


def _ask(
    search: Search, sessions: Sequence[list[str]], first: int, file: BinaryIO, seed: int, clock: Clock
) -> list[list[str]]:
    found: list[list[str]] = []
    saved = time.monotonic()
    with progress("the teacher answers", first + len(sessions), "sessions", start=first) as report:
        try:
            for number, session in enumerate(sessions, start=first):
                answers = _answer(search, session, typed_prefixes(session, seed, number))
                file.write(json.dumps(answers, ensure_ascii=False).encode() + b"\n")
                found.append(answers)
                report(number + 1, "")
                if time.monotonic() - saved >= SAVE_SECONDS:
                    _flush(file)
                    saved = time.monotonic()
                    clock.check("the teacher was answering")
        except KeyboardInterrupt as error:
            raise InterruptedRunError(
                "distillation was interrupted while the teacher was answering, and its answers are kept",
                code="interrupted",
                hint="go on with the same command and --resume",
            ) from error
        finally:
            _flush(file)
    return found


def _answer(search: Search, session: Sequence[str], typed: Sequence[str]) -> list[str]:
    """The best ending of each prefix; the query itself where the teacher has none."""
    engine, answers = search.engine, []
    state = engine.start()
    for number, (query, prefix) in enumerate(zip(session, typed, strict=True)):
        if number:
            state = engine.append(search.tokenizer.encode(session[number - 1])[-engine.max_tokens :], state)
        found = search.endings(state, prefix, 1)
        endings = [ending.text for ending in found.endings if ending.text] if found else []
        answers.append(prefix + endings[0] if endings else query)
    return answers


def _whole_lines(file: BinaryIO) -> list[list[str]]:
    """The answers of a file; a last line that a kill has cut is cut off."""
    file.seek(0)
    raw = file.read()
    whole = raw[: raw.rfind(b"\n") + 1]
    file.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
