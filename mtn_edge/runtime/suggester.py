"""Suggestions for a session and the characters typed so far: what every caller of a model uses.

What was typed is kept character for character; the model continues its normal form. Hypotheses are merged by the
string they spell, the echo of the typed text and its twins in case and blanks are left out, denied words too, and
popular completions fill what the model leaves open. A list that is short or filled up says why.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np

from mtn_edge.decoding.prefix_constraint import PrefixConstraint
from mtn_edge.errors import UserError
from mtn_edge.runtime.blocklist import Blocklist, fold
from mtn_edge.runtime.bundle import Bundle
from mtn_edge.runtime.completions import FILE, Completions
from mtn_edge.runtime.context import context_start
from mtn_edge.runtime.engine import DEAD, Engine, OnnxEngine, SessionState
from mtn_edge.runtime.idle import ClosedEngine, IdleEngine, closed
from mtn_edge.runtime.typos import corrected
from mtn_edge.runtime.watched_blocklist import WatchedBlocklist
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import EOS, Tokenizer

WIDEST_BEAM = 64
"""Hypotheses at most, however many suggestions are asked for."""

NOTHING_ASKED = "no suggestions were asked for"
UNREADABLE = "the typed text holds a lone surrogate or a NUL character"
DENIED = "the typed text is on the block list"
TOO_LONG = "the typed text is longer than the model can write"
TOO_LATE = "the deadline passed before the model had answered"
FEW = "the model has fewer continuations than were asked for"


Source = Literal["model", "completions", "typo"]
"""Who found a suggestion: the model, the popular queries under the typed text, or those under a text near to it."""


@dataclass(frozen=True)
class Suggestion:
    """One line of the list."""

    text: str
    """What was typed, character for character, and more; from the source `typo`, a popular query as it is."""
    score: float
    """Log-probability: of the text given the session (`model`), or of its share of the popular queries."""
    source: Source


@dataclass(frozen=True)
class SuggestResult:
    """A list of suggestions, best first: the model's, then popular completions, then those for a text with a typo."""

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
    """A model with its lists; safe to use from several threads at once. As a context manager it closes itself.

    Args:
        engine: runs the model.
        tokenizer: its tokenizer.
        completions: popular queries.
        blocklist: what is never suggested; a watched one may change between two calls.
        beam: hypotheses of a search; more when more suggestions are asked for.
        max_steps: tokens that a search writes at most, with `<eos>`.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        tokenizer: Tokenizer,
        completions: Completions,
        blocklist: Blocklist | WatchedBlocklist,
        beam: int,
        max_steps: int,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.constraint = PrefixConstraint(tokenizer.token_bytes)
        self._completions = completions
        self._blocklist = blocklist
        self._beam, self._max_steps = beam, max_steps
        self._closed = False

    @classmethod
    def open(
        cls, path: Path, *, threads: int = 1, blocklist: Path | None = None, close_after: float | None = None
    ) -> Suggester:
        """Opens a bundle.

        Args:
            path: its folder.
            threads: threads of one search.
            blocklist: a file of words and phrases that are denied besides the bundle's own; it may be edited while the
                suggester is open (see `WatchedBlocklist`).
            close_after: seconds without a call after which the graphs leave memory, until the next call; None keeps
                them.

        Raises:
            UserError: it is no bundle, or one of its files is damaged; `blocklist` cannot be read.
        """
        bundle = Bundle.open(path)

        def make() -> Engine:
            bundle.check_unchanged()
            return OnnxEngine(path, bundle.model, threads=threads)

        own = Blocklist.load(path / "blocklist.txt")
        return cls(
            engine=make() if close_after is None else IdleEngine(make, close_after),
            tokenizer=Tokenizer.load(path / "tokenizer.json"),
            completions=Completions.load(path / FILE),
            blocklist=own if blocklist is None else WatchedBlocklist(blocklist, own),
            beam=bundle.beam,
            max_steps=bundle.max_steps,
        )

    def close(self) -> None:
        """Lets go of the model; every later call, of its sessions too, raises a UserError with the code `closed`."""
        engine, self.engine, self._closed = self.engine, cast("Engine", ClosedEngine()), True
        if isinstance(engine, IdleEngine):
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, queries: Sequence[str] = ()) -> Session:
        """A session that begins with `queries`."""
        session = Session(self)
        for query in queries:
            session.append(query)
        return session

    def suggest(
        self, state: SessionState, typed: str, k: int, deadline: float | None, *, typos: bool = False
    ) -> tuple[list[Suggestion], str | None]:
        """The list of one key press and its reason (see `Session.suggest`); `deadline` as `time.monotonic` counts."""
        if self._closed:
            raise closed()
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
        blocklist = self._blocklist.current()
        if blocklist.denies(prefix):
            return [], DENIED
        merged, reason = self._search(state, prefix, k, deadline)
        chosen = _Chosen(typed, prefix, k, blocklist)
        for ending, score in sorted(merged.items(), key=lambda item: (-item[1], item[0])):
            chosen.add(prefix + ending, score, "model")
        if not chosen.full:
            reason = reason or FEW
            self._fill_up(chosen, lambda wanted: self._completions.top(prefix, wanted), "completions")
            if typos:
                self._fill_up(chosen, lambda wanted: corrected(prefix, self._completions, wanted), "typo")
        return chosen.suggestions, reason

    def _search(
        self, state: SessionState, prefix: str, k: int, deadline: float | None
    ) -> tuple[dict[str, float], str | None]:
        """What the model adds to `prefix`, with log-probabilities summed over segmentations, or why it adds nothing."""
        spelt = prefix.encode()
        if not self.constraint.reachable(spelt, self._max_steps - 1):
            return {}, TOO_LONG
        next_state, start = self.constraint.table(spelt)
        beam = min(max(self._beam, min(k, WIDEST_BEAM)), self.engine.vocab_size)
        try:
            rows, scores = self.engine.search(
                state, next_state, start, beam=beam, max_steps=self._max_steps, deadline=deadline
            )
        except TimeoutError:
            return {}, TOO_LATE
        merged: dict[str, float] = {}
        for tokens, score in zip(rows.tolist(), scores.tolist(), strict=True):
            if EOS not in tokens or score <= DEAD:
                continue
            text = self.tokenizer.decode_bytes(tokens).decode()
            # A combining mark would change what was typed, and some marks and blanks are no normal form.
            if normalize(text) == text:
                ending = text[len(prefix) :]
                merged[ending] = float(np.logaddexp(merged.get(ending, -math.inf), score))
        return merged, None

    def _fill_up(self, chosen: _Chosen, top: Callable[[int], list[tuple[str, int]]], source: Source) -> None:
        """Adds popular queries, of which `top` gives the first few, until the list is full or there are no more."""
        seen, wanted = 0, 2 * chosen.k
        while not chosen.full:
            found = top(wanted)
            for query, count in found[seen:]:
                chosen.add(query, math.log(count / self._completions.total), source)
            if len(found) < wanted:
                return
            seen, wanted = wanted, 2 * wanted


class _Chosen:
    """The list as it grows: no echo, no twins, nothing that is denied, `k` at most."""

    def __init__(self, typed: str, prefix: str, k: int, blocklist: Blocklist) -> None:
        self.k = k
        self.suggestions: list[Suggestion] = []
        self._typed, self._prefix, self._blocklist = typed, prefix, blocklist
        self._taken = {fold(prefix)}

    @property
    def full(self) -> bool:
        return len(self.suggestions) == self.k

    def add(self, query: str, score: float, source: Source) -> None:
        """Takes `query`, in normal form; what was typed stays in it as it was typed."""
        if self.full:
            return
        twin = fold(query)
        if twin not in self._taken and not self._blocklist.denies(twin):
            self._taken.add(twin)
            text = query if source == "typo" else self._typed + query[len(self._prefix) :]
            self.suggestions.append(Suggestion(text, score, source))


class Session:
    """One user's queries in order, and suggestions for the next one. Made by `Suggester.session`."""

    def __init__(self, suggester: Suggester) -> None:
        self._suggester = suggester
        self._queries: list[str] = []
        self._state = suggester.engine.start()
        self._first = 0  # of the queries that the context holds

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

    def suggest(self, prefix: str = "", k: int = 8, *, deadline_ms: float | None = None) -> SuggestResult:
        """Up to `k` suggestions for what is being typed; with nothing typed, for the next query.

        Args:
            prefix: what was typed so far, as it was typed.
            k: suggestions wanted; fewer is an honest answer.
            deadline_ms: milliseconds after which the popular completions answer instead of the model.

        Raises:
            UserError: `k` is negative.
        """
        began = time.monotonic()
        deadline = None if deadline_ms is None else began + deadline_ms / 1000
        suggestions, reason = self._suggester.suggest(self._state, prefix, k, deadline)
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
        next_state, start = suggester.constraint.exact(kept)
        _, scores = suggester.engine.search(self._state, next_state, start, beam=1, max_steps=steps)
        return float(scores[0]), steps
