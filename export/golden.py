"""Golden vectors: what a bundle answers, written down where it was made and repeated where it lands.

`golden.json` holds `references` (see `export.parity`), `vectors` (a session, a typed text, and the hypotheses and
suggestions expected) with their tolerance, and `effect`: held-out queries with their sessions, and how much the session
changed their log-probability in the float32 graphs. Scores that lie within the tolerance of their successor are marked
as near ties and may swap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from export.checks import Check, at_least, at_most
from export.held_out import LIST, Pair
from export.parity import Reference, largest, live_rows, match
from export.reading import Reader, WrongValueError, each, field, flag, real, text, whole
from mtn_edge.errors import UserError
from mtn_edge.runtime.search import WIDEST_BEAM
from mtn_edge.runtime.suggester import Session, Suggester
from mtn_edge.text import normalize_prefix
from mtn_edge.tokenizer import EOS

FORMAT_VERSION = 1
TOLERANCE = {"fp32": 1e-3, "int8": 0.25, "int4": 0.25}
"""How far a suggestion's score may lie from the expected one, in nats: kernels of other processors round otherwise."""
KEPT_EFFECT = 0.5
"""Share of the float32 graphs' session effect that must be left."""
LEAST_EFFECT = 1e-3
"""Mean change of a score (nats) below which a model does not read the session at all."""
LONGEST_SESSION = 50
"""Queries of the longest session among the vectors: more than most models read."""
AWKWARD = (
    "",
    "a",
    "new ",
    "NEW",
    '20" t',
    "café",
    "東京",
    "new 🎉",
    "\uff21\uff2f\uff2c",
    "مطعم",
    "how do i find out wh",
    "zq",
)
"""Typed texts beside those of the dataset: nothing, blanks, capitals, other scripts, half a phrase, nonsense."""


@dataclass(frozen=True)
class Vector:
    """One key press and its expected answer."""

    session: list[str]
    typed: str
    tokens: list[list[int]]
    """Finished hypotheses of the search, best first, with `<eos>`, without the tokens of finished words."""
    scores: list[float]
    suggestions: list[dict[str, Any]]
    """`text`, `score`, `margin` to the next one (None for the last), `near_tie`."""


class Effect(NamedTuple):
    """Mean absolute change of the log-probability (nats) of the next query of a session."""

    swapped: float
    """With the session of another query in place of its own."""
    cut: float
    """With no session at all."""


Asked = tuple[list[str], str]
"""A session and its next query."""


@dataclass(frozen=True)
class Golden:
    """The contents of `golden.json`."""

    tolerance: float
    references: list[Reference]
    vectors: list[Vector]
    asked: list[Asked]
    effect: Effect

    def save(self, path: Path) -> None:
        """Writes the file, a case a line."""
        parts = {
            "format_version": json.dumps(FORMAT_VERSION),
            "tolerance": json.dumps(self.tolerance),
            "effect": json.dumps(self.effect._asdict()),
            "asked": _lines(self.asked),
            "references": _lines([vars(case) for case in self.references]),
            "vectors": _lines([vars(vector) for vector in self.vectors]),
        }
        body = ",\n".join(f"{json.dumps(name)}: {text}" for name, text in parts.items())
        path.write_text("{" + body + "}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path, model: dict[str, Any]) -> Golden:
        """Reads the file.

        Args:
            path: the file.
            model: the `model` section of the bundle's manifest, whose sizes bound tokens, beams and sessions.

        Raises:
            UserError: it is not there, is no JSON, or something in it is missing or not what it must be.
        """
        try:
            document = json.loads(path.read_bytes())
            return cls(
                tolerance=field(document, "tolerance", real),
                references=field(document, "references", each(partial(_reference, model))),
                vectors=field(document, "vectors", each(partial(_read_vector, model))),
                asked=field(document, "asked", each(_asked)),
                effect=field(document, "effect", _effect),
            )
        except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no JSON, a wrong value
            raise UserError(
                f"`{path}` does not hold golden vectors ({error or type(error).__name__})",
                code="bad-golden",
                hint="make the bundle again",
            ) from error


def _tokens(model: dict[str, Any]) -> Reader[list[int]]:
    """Reads what a search or a query can be: 1 to `max_tokens` + 1 tokens."""

    def read(value: Any) -> list[int]:
        tokens = each(whole(0, model["vocab_size"] - 1))(value)
        if not 1 <= len(tokens) <= model["max_tokens"] + 1:
            raise WrongValueError(f"{len(tokens)} tokens stand where 1 to {model['max_tokens'] + 1} must stand")
        return tokens

    return read


def _rows(model: dict[str, Any], section: Any) -> tuple[list[list[int]], list[float]]:
    """Hypotheses and their scores, of both the same number."""
    tokens = field(section, "tokens", each(_tokens(model)))
    return tokens, field(section, "scores", each(real, length=len(tokens)))


def _reference(model: dict[str, Any], value: Any) -> Reference:
    session = field(value, "session", each(_tokens(model)))
    if len(session) > model["max_queries"] or any(len(query) > model["max_tokens"] for query in session):
        raise WrongValueError("`session`: it is longer than the model reads")
    return Reference(
        session,
        field(value, "prefix", text),
        field(value, "beam", whole(1, min(WIDEST_BEAM, model["vocab_size"]))),
        field(value, "max_steps", whole(1, model["max_tokens"] + 1)),
        *_rows(model, value),
    )


def _read_vector(model: dict[str, Any], value: Any) -> Vector:
    return Vector(
        field(value, "session", each(text)),
        field(value, "typed", text),
        *_rows(model, value),
        field(value, "suggestions", each(_suggestion)),
    )


def _suggestion(value: Any) -> dict[str, Any]:
    margin = field(value, "margin", lambda margin: None if margin is None else real(margin))
    found = {"text": field(value, "text", text), "score": field(value, "score", real)}
    return found | {"margin": margin, "near_tie": field(value, "near_tie", flag)}


def _asked(value: Any) -> Asked:
    pair = each(lambda entry: entry, length=2)(value)
    return each(text)(pair[0]), text(pair[1])


def _effect(value: Any) -> Effect:
    return Effect(field(value, "swapped", real), field(value, "cut", real))


def make_vectors(suggester: Suggester, pairs: Sequence[Pair], *, tolerance: float) -> list[Vector]:
    """Records what `suggester` answers to `pairs` and to awkward texts (in the sessions of the first pairs)."""
    sessions = [pair.session for pair in pairs] or [()]
    asked = [(pair.session, pair.typed) for pair in pairs]
    asked += [(sessions[number % len(sessions)], typed) for number, typed in enumerate(AWKWARD)]
    every = [query for session in sessions for query in session]
    if every:
        longest = tuple(every[place % len(every)] for place in range(LONGEST_SESSION))
        asked += [(longest, typed) for typed in ("", "n")]
    return [_vector(suggester, list(session), typed, tolerance) for session, typed in asked]


def check_vectors(suggester: Suggester, golden: Golden) -> list[Check]:
    """Repeats the key presses: the same hypotheses and suggestions with the same scores, near ties in any order."""
    missing, disordered, apart = 0, 0, [0.0]
    for vector in golden.vectors:
        session = suggester.session(vector.session)
        rows = _finished(suggester, session, vector.typed)
        texts = _texts(session, vector.typed)
        wanted_rows = {tuple(row): score for row, score in zip(vector.tokens, vector.scores, strict=True)}
        wanted_texts: dict[str, float] = {entry["text"]: entry["score"] for entry in vector.suggestions}
        for lost, differences in (
            match(wanted_rows, rows, places=len(wanted_rows), tie=golden.tolerance),
            match(wanted_texts, texts, places=len(wanted_texts), tie=golden.tolerance),
        ):
            missing += lost
            apart += differences.values()
        order = [score for text, score in wanted_texts.items() if text in texts]
        found = [texts[text] for text in wanted_texts if text in texts]
        disordered += sum(
            wanted_margin > golden.tolerance and margin < 0
            for wanted_margin, margin in zip(_margins(order), _margins(found), strict=True)
        )
    return [
        at_least("golden vectors: key presses", len(golden.vectors), 1),
        at_most("golden vectors: hypotheses and suggestions missing", missing, 0),
        at_most("golden vectors: suggestions out of order", disordered, 0),
        at_most("golden vectors: score", largest(apart), golden.tolerance),
    ]


def session_effect(suggester: Suggester, asked: Sequence[Asked]) -> Effect:
    """How much log p(next query) hangs on the session (zero when no query has one)."""
    swapped, cut = [0.0], [0.0]
    for place, (queries, query) in enumerate(asked):
        following = [session for session, _ in (*asked[place + 1 :], *asked[:place])]
        other = next((session for session in following if session != queries), [])
        own, foreign, none = (suggester.session(session).log_probability(query)[0] for session in (queries, other, []))
        swapped.append(abs(own - foreign))
        cut.append(abs(own - none))
    count = max(len(asked), 1)
    return Effect(sum(swapped) / count, sum(cut) / count)


def check_effect(found: Effect, recorded: Effect) -> list[Check]:
    """A session that is swapped or cut must be noticed, as much as the float32 graphs noticed it."""
    return [
        at_least(
            "session swapped: change of a score", found.swapped, max(KEPT_EFFECT * recorded.swapped, LEAST_EFFECT)
        ),
        at_least("session cut: change of a score", found.cut, max(KEPT_EFFECT * recorded.cut, LEAST_EFFECT)),
    ]


def _vector(suggester: Suggester, queries: list[str], typed: str, tolerance: float) -> Vector:
    session = suggester.session(queries)
    rows = _finished(suggester, session, typed)
    texts = _texts(session, typed)
    suggestions = [
        {"text": text, "score": score, "margin": margin, "near_tie": margin is not None and margin <= tolerance}
        for (text, score), margin in zip(texts.items(), [*_margins(list(texts.values())), None], strict=False)
    ]
    return Vector(queries, typed, [list(row) for row in rows], list(rows.values()), suggestions)


def _finished(suggester: Suggester, session: Session, typed: str) -> dict[tuple[int, ...], float]:
    """Hypotheses with `<eos>`, best first."""
    found = suggester.search.hypotheses(session.state, normalize_prefix(typed), LIST)
    rows = live_rows(found) if found is not None else {}
    return {row: score for row, score in rows.items() if row[-1] == EOS}


def _texts(session: Session, typed: str) -> dict[str, float]:
    """The suggestions, best first, without the floor: at its edge kernels of other processors may differ.

    Whoever gave most of a suggestion's probability: that too may differ.
    """
    return {s.text: s.score for s in session.suggest(typed, LIST, min_probability=0).suggestions}


def _margins(scores: Sequence[float]) -> list[float]:
    """By how much each score lies above the next."""
    return [one - other for one, other in pairwise(scores)]


def _lines(cases: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]"
