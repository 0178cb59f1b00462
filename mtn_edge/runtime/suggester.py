"""Suggestions for a session and the characters typed so far: what every caller of a model uses.

What was typed is kept character for character; the model continues its normal form. Hypotheses are merged by the
string they spell, the echo of the typed text and its twins in case and blanks are left out, denied words too, and
popular completions fill what the model leaves open. A list that is short or filled up says why.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mtn_edge.errors import UserError
from mtn_edge.runtime.blocklist import Blocklist, fold
from mtn_edge.runtime.bundle import Bundle
from mtn_edge.runtime.call import Call, CallEndedError
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.context import context_start
from mtn_edge.runtime.engine import Engine, OnnxEngine, SessionState
from mtn_edge.runtime.search import Decoding, Search
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import Tokenizer

NOTHING_ASKED = "no suggestions were asked for"
UNREADABLE = "the typed text holds a lone surrogate or a NUL character"
DENIED = "the typed text is on the block list"
TOO_LONG = "the typed text is longer than the model can write"
STALE = "a newer key press came before the model had answered"
DOUBTFUL = "the model is not sure enough of more"
FEW = "the model has fewer continuations than were asked for"


@dataclass(frozen=True)
class Suggestion:
    """One line of the list."""

    text: str
    """What was typed, character for character, and more."""
    score: float
    """Log-probability given the session and the typed text (`model`), or of the share of all popular queries.

    Given the typed text: among all that could follow its finished words and the letters of the one being typed.
    """
    source: Literal["model", "completions"]


@dataclass(frozen=True)
class SuggestResult:
    """A list of suggestions, best first: the model's, then popular completions."""

    suggestions: list[Suggestion]
    prefix: str
    """What was typed."""
    session: list[str]
    """The earlier queries, in normal form."""
    reason: str | None
    """Why the list is short or filled up from the popular completions; None when the model gave all of it."""
    elapsed_ms: float

    def to_json(self) -> dict[str, Any]:
        """The document that `suggest --json` prints; half a surrogate pair, which no JSON text can hold, is a `?`."""
        return {**asdict(self), "prefix": self.prefix.encode("utf-8", "replace").decode()}


class Suggester:
    """A model with its lists; safe to use from several threads at once.

    Args:
        engine: runs the model.
        tokenizer: its tokenizer.
        completions: popular queries.
        blocklist: what is never suggested.
        decoding: how to search.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        tokenizer: Tokenizer,
        completions: Completions,
        blocklist: Blocklist,
        decoding: Decoding,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.search = Search(engine, tokenizer, decoding)
        self._completions = completions
        self._blocklist = blocklist

    @classmethod
    def open(cls, path: Path, *, threads: int = 1) -> Suggester:
        """Opens a bundle.

        Raises:
            UserError: it is no bundle, or one of its files is damaged.
        """
        bundle = Bundle.open(path)
        return cls(
            engine=OnnxEngine(path, bundle.model, threads=threads),
            tokenizer=Tokenizer.load(path / "tokenizer.json"),
            completions=Completions.load(path / "completions.tsv"),
            blocklist=Blocklist.load(path / "blocklist.txt"),
            decoding=bundle.decoding,
        )

    def session(self, queries: Sequence[str] = ()) -> Session:
        """A session that begins with `queries`."""
        session = Session(self)
        for query in queries:
            session.append(query)
        return session

    def suggest(
        self, state: SessionState, typed: str, k: int, *, min_probability: float | None, call: Call | None
    ) -> tuple[list[Suggestion], str | None]:
        """The list of one key press and its reason (see `Session.suggest`)."""
        if k < 0:
            raise UserError(f"`k` is {k}, and it must be at least 0", code="bad-argument", hint="ask for 1 or more")
        if k == 0:
            return [], NOTHING_ASKED
        try:
            prefix = normalize_prefix(typed)
        except ValueError:
            return [], UNREADABLE
        if "\0" in typed:
            return [], UNREADABLE
        if self._blocklist.denies(prefix):
            return [], DENIED
        chosen = _Chosen(typed, prefix, k, self._blocklist)
        reason = self._ask_model(state, chosen, min_probability, call)
        if chosen.full:
            return chosen.suggestions, None
        self._fill_up(chosen)
        return chosen.suggestions, reason

    def _ask_model(self, state: SessionState, chosen: _Chosen, min_probability: float | None, call: Call | None) -> str:
        """Adds what the model gives; returns why there is no more of it."""
        try:
            found = self.search.endings(state, chosen.prefix, chosen.k, min_probability=min_probability, call=call)
        except CallEndedError as ended:
            return str(ended)
        if found is None:
            return TOO_LONG
        for ending in found.endings:
            chosen.add(ending.text, ending.log_probability, "model")
        return DOUBTFUL if found.doubtful else FEW

    def _fill_up(self, chosen: _Chosen) -> None:
        """Adds popular completions until the list is full or there are no more."""
        seen, wanted = 0, 2 * chosen.k
        while not chosen.full:
            found = self._completions.top(chosen.prefix, wanted)
            for query, count in found[seen:]:
                chosen.add(query[len(chosen.prefix) :], math.log(count / self._completions.total), "completions")
            if len(found) < wanted:
                return
            seen, wanted = wanted, 2 * wanted


class _Chosen:
    """The list as it grows: no echo, no twins, nothing that is denied, `k` at most."""

    def __init__(self, typed: str, prefix: str, k: int, blocklist: Blocklist) -> None:
        self.prefix, self.k = prefix, k
        self.suggestions: list[Suggestion] = []
        self._typed, self._blocklist = typed, blocklist
        self._taken = {fold(prefix)}

    @property
    def full(self) -> bool:
        return len(self.suggestions) == self.k

    def add(self, ending: str, score: float, source: Literal["model", "completions"]) -> None:
        twin = fold(self.prefix + ending)
        if not self.full and twin not in self._taken and not self._blocklist.denies(twin):
            self._taken.add(twin)
            self.suggestions.append(Suggestion(self._typed + ending, score, source))


class Session:
    """One user's queries in order, and suggestions for the next one. Made by `Suggester.session`.

    A key press may come while the list of the last one is still being made, from another thread: the older request is
    ended and answers with what it has.
    """

    def __init__(self, suggester: Suggester) -> None:
        self._suggester = suggester
        self._queries: list[str] = []
        self._state = suggester.engine.start()
        self._first = 0  # of the queries that the context holds
        self._newest, self._lock = Call(), threading.Lock()

    @property
    def queries(self) -> list[str]:
        """The queries so far, in normal form."""
        return list(self._queries)

    @property
    def state(self) -> SessionState:
        """What the engine keeps of the queries so far."""
        return self._state

    def append(self, query: str) -> None:
        """Adds a query that was issued, at the price of encoding that query; one without any letter is left out.

        Of a long query the last tokens are read; of a long session its last queries (`context.context_start`).

        Raises:
            UserError: `query` holds a lone surrogate.
        """
        try:
            normal = normalize(query)
        except ValueError as error:
            raise UserError(
                "an earlier query holds a lone surrogate, which is no text", code="bad-text", hint="leave it out"
            ) from error
        if not normal:
            return
        self._queries.append(normal)
        first = context_start(len(self._queries), self._suggester.engine.max_queries)
        if first != self._first:
            self._first, self._state, new = first, self._suggester.engine.start(), self._queries[first:]
        else:
            new = [normal]
        for text in new:
            tokens = self._suggester.tokenizer.encode(text)[-self._suggester.engine.max_tokens :]
            self._state = self._suggester.engine.append(tokens, self._state)

    def suggest(
        self,
        prefix: str = "",
        k: int = 8,
        *,
        deadline_ms: float | None = None,
        min_probability: float | None = None,
    ) -> SuggestResult:
        """Up to `k` suggestions for what is being typed; with nothing typed, for the next query.

        Args:
            prefix: what was typed so far, as it was typed.
            k: suggestions wanted; fewer is an honest answer.
            deadline_ms: milliseconds after which the popular completions answer instead of the model.
            min_probability: the model's suggestions that are less probable are left out; None takes the bundle's
                calibrated floor, 0 lets everything pass.

        Raises:
            UserError: `k` is negative, or `min_probability` is no probability.
        """
        began = time.monotonic()
        if min_probability is not None and not 0 <= min_probability < 1:
            raise UserError(
                f"`min_probability` is {min_probability}, and it must be at least 0 and below 1",
                code="bad-argument",
                hint="give 0 to let everything pass",
            )
        call = Call()
        if deadline_ms is not None:
            call.end_at(began + deadline_ms / 1000)
        with self._lock:
            older, self._newest = self._newest, call
        older.end(STALE)
        try:
            suggestions, reason = self._suggester.suggest(
                self._state, prefix, k, min_probability=min_probability, call=call
            )
        finally:
            call.done = True
        elapsed = (time.monotonic() - began) * 1000
        return SuggestResult(suggestions, prefix, self.queries, reason, round(elapsed, 3))

    def log_probability(self, query: str) -> tuple[float, int]:
        """Log-probability (nats) of the tokenizer's own tokens of `query` and `<eos>`, and how many tokens that is.

        A query of more than `max_tokens` tokens counts with its first ones and without an end, as in training.
        """
        suggester = self._suggester
        tokens = suggester.tokenizer.encode(normalize(query))
        kept = tokens[: suggester.engine.max_tokens]
        steps = len(kept) + (len(kept) == len(tokens))
        return suggester.search.log_probability(self._state, kept, steps), steps
