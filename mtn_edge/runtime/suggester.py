"""Suggestions for a session and the characters typed so far: what every caller of a model uses.

What was typed is kept character for character; the model continues its normal form. Hypotheses are merged by the
string they spell, the echo of the typed text and its twins in case and blanks are left out, denied words too, and
popular completions fill what the model leaves open. A list that is short or filled up says why.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

from mtn_edge.errors import UserError
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.bundle import Bundle
from mtn_edge.runtime.call import Call, CallEndedError
from mtn_edge.runtime.choice import Choice, Source, Suggestion
from mtn_edge.runtime.completions import FILE, Completions
from mtn_edge.runtime.context import context_start
from mtn_edge.runtime.engine import Engine, OnnxEngine, SessionState, next_session
from mtn_edge.runtime.idle import ClosedEngine, IdleEngine, closed
from mtn_edge.runtime.lists import FOLLOWERS, followers_of, mix, offered
from mtn_edge.runtime.memory import give_back
from mtn_edge.runtime.search import Decoding, Found, Search
from mtn_edge.runtime.typos import corrected
from mtn_edge.runtime.watched_blocklist import WatchedBlocklist
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import Tokenizer

NOTHING_ASKED = "no suggestions were asked for"
UNREADABLE = "the typed text holds a lone surrogate or a NUL character"
DENIED = "the typed text is on the block list"
TOO_LONG = "the typed text is longer than the model can write"
STALE = "a newer key press came before the model had answered"
DOUBTFUL = "the model finds nothing more that is probable enough"
FEW = "the model has fewer continuations than were asked for"
FEW_ALLOWED = "the block list denies the rest"
NO_MORE_POPULAR = "no more popular queries begin with the typed text"
LONGEST_TEXT = 1000
"""Characters of a typed text beyond which it is not even brought into normal form, which takes long for some."""
LONGEST_QUERY = 4000
"""Characters of an earlier query of which the last tokens are looked for."""
GROUNDED = 128
"""Popular queries among which the model chooses in grounded mode, besides those that it finds by itself."""

Mode = Literal["generate", "grounded"]
"""Whether the model writes freely, or chooses among popular queries: nothing else can come out then."""


@dataclass(frozen=True)
class Request:
    """One key press: what was typed, and what is wanted (see `Session.suggest`)."""

    typed: str
    k: int
    mode: Mode = "generate"
    min_probability: float | None = None
    typos: bool = False

    def __post_init__(self) -> None:
        if self.k < 0:
            raise UserError(
                f"`k` is {self.k}, and it must be at least 0", code="bad-argument", hint="ask for 1 or more"
            )
        if self.min_probability is not None and not 0 <= self.min_probability < 1:
            raise UserError(
                f"`min_probability` is {self.min_probability}, and it must be at least 0 and below 1",
                code="bad-argument",
                hint="give 0 to let everything pass",
            )
        if self.mode not in get_args(Mode):  # a slip here would let everything through that `grounded` keeps back
            raise UserError(
                f"`mode` is {self.mode!r}, and there are {' and '.join(get_args(Mode))}",
                code="bad-argument",
                hint="give one of them",
            )


@dataclass(frozen=True)
class SuggestResult:
    """A list of suggestions, best first: what the model gives with what the lists add to it, then popular completions,
    then those for a text with a typo."""

    suggestions: list[Suggestion]
    prefix: str
    """What was typed."""
    session: list[str]
    """The earlier queries, in normal form."""
    reason: str | None
    """Why the list is short or filled up from the popular completions; None when it was full before."""
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
        decoding: how to search, and how much the lists count.
        followers: what followed which query (`lists.pair_entries`).
    """

    def __init__(
        self,
        *,
        engine: Engine,
        tokenizer: Tokenizer,
        completions: Completions,
        blocklist: Blocklist | WatchedBlocklist,
        decoding: Decoding,
        followers: Completions | None = None,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.search = Search(engine, tokenizer, decoding)
        self._completions = completions
        self._followers = followers if followers is not None else Completions(())
        self._blocklist = blocklist
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        threads: int = 1,
        blocklist: Path | None = None,
        close_after: float | None = None,
        key: Path | None = None,
    ) -> Suggester:
        """Opens a bundle.

        Args:
            path: its folder.
            threads: threads of one search.
            blocklist: a file of words and phrases that are denied besides the bundle's own; it may be edited while the
                suggester is open (see `WatchedBlocklist`).
            close_after: seconds without a call after which the graphs leave memory, until the next call; None keeps
                them.
            key: file of the public key that the bundle must be signed with; None asks for no signature.

        Raises:
            UserError: it is no bundle, one of its files is damaged, or it is not signed with the key; `blocklist`
                cannot be read.
        """
        bundle = Bundle.open(path, key=key)

        def make() -> Engine:
            return OnnxEngine(bundle.path, bundle.model, threads=threads)

        def make_again() -> Engine:
            bundle.check_unchanged()
            return make()

        own, tokenizer = Blocklist.load(path / "blocklist.txt"), Tokenizer.load(path / "tokenizer.json")
        if len(tokenizer) != bundle.model["vocab_size"]:
            raise UserError(
                f"the tokenizer of `{path}` has {len(tokenizer):,} tokens, and its graphs know"
                f" {bundle.model['vocab_size']:,}",
                code="bad-tokenizer",
                hint="make the bundle again",
            )
        opened = cls(
            tokenizer=tokenizer,
            completions=Completions.load(path / FILE),
            followers=Completions.load(path / FOLLOWERS),
            blocklist=own if blocklist is None else WatchedBlocklist(blocklist, own),
            decoding=bundle.decoding,
            # Last: nothing fails after it.
            engine=make() if close_after is None else IdleEngine(make_again, close_after),
        )
        give_back()  # what loading alone needed: a fifth of it
        return opened

    def close(self) -> None:
        """Lets go of the model; every later call, of its sessions too, raises a UserError with the code `closed`."""
        engine, self._closed = self.engine, True
        self.engine = self.search.engine = cast("Engine", ClosedEngine())
        if isinstance(engine, IdleEngine):
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, queries: Sequence[str] = ()) -> Session:
        """A session that begins with `queries`."""
        if isinstance(queries, str):
            raise UserError(
                "`queries` is one text, and it must be a list of them",
                code="bad-argument",
                hint='write session(["..."])',
            )
        session = Session(self)
        for query in queries:
            session.append(query)
        return session

    def answer(
        self, state: SessionState, last: str, request: Request, call: Call | None
    ) -> tuple[list[Suggestion], str | None]:
        """The list of one key press and its reason (see `Session.suggest`); `last` is the session's last query."""
        if self._closed:
            raise closed()
        if request.k == 0:
            return [], NOTHING_ASKED
        if len(request.typed) > LONGEST_TEXT:
            return [], TOO_LONG
        try:
            prefix = normalize_prefix(request.typed)
        except ValueError:
            return [], UNREADABLE
        if "\0" in request.typed:
            return [], UNREADABLE
        blocklist = self._blocklist.current()
        if blocklist.denies(prefix):
            return [], DENIED
        choice = Choice(request.typed, prefix, request.k, blocklist)
        reason = self._ask_model(state, last, choice, request, call)
        if choice.full:
            return choice.suggestions, None
        self._fill_up(choice, lambda wanted: self._completions.top(prefix, wanted), "completions")
        if request.mode == "grounded" and not choice.full and reason in (FEW, DOUBTFUL):
            reason = NO_MORE_POPULAR
        if request.typos:
            self._fill_up(choice, lambda wanted: corrected(prefix, self._completions, wanted), "typo")
        if choice.denied and not choice.full and reason in (FEW, DOUBTFUL, NO_MORE_POPULAR):
            reason = FEW_ALLOWED
        return choice.suggestions, reason

    def _ask_model(self, state: SessionState, last: str, choice: Choice, request: Request, call: Call | None) -> str:
        """Adds what the model gives, with what the lists add to it; returns why there is no more of it."""
        try:
            if request.mode == "grounded":
                found: Found | None = self._grounded(state, choice.prefix, request, call)
            else:
                found = self.search.endings(
                    state, choice.prefix, request.k, min_probability=request.min_probability, call=call
                )
        except CallEndedError as ended:
            return str(ended)
        if found is None:
            return TOO_LONG
        reason = DOUBTFUL if found.doubtful else FEW
        model = [(choice.prefix + ending.text, ending.log_probability) for ending in found.endings]
        mixing = self.search.decoding.mixing(choice.prefix)
        if request.mode == "grounded" or not (mixing.popular or mixing.followers):
            for text, score in model:
                choice.add(text, score, "model")
            return reason
        popular = offered(self._completions, choice.prefix, request.k)
        followers = followers_of(self._followers, last, choice.prefix, request.k)
        for text, score, source in mix(model, popular, followers, mixing):
            choice.add(text, score, source)
        return reason

    def _grounded(self, state: SessionState, prefix: str, request: Request, call: Call | None) -> Found:
        """The model's choice among popular queries: those that it would write anyway, and the most frequent ones."""
        free = self.search.endings(state, prefix, request.k, min_probability=0.0, call=call)
        written = [prefix + ending.text for ending in free.endings] if free is not None else []
        popular = [query for query, _ in self._completions.top(prefix, GROUNDED)]
        queries = dict.fromkeys([*(query for query in written if query in self._completions), *popular])
        queries.pop(prefix, None)
        least = request.min_probability or 0.0
        return self.search.among(state, prefix, list(queries), request.k, min_probability=least, call=call)

    def _fill_up(self, choice: Choice, top: Callable[[int], list[tuple[str, int]]], source: Source) -> None:
        """Adds popular queries, of which `top` gives the first few, until the list is full or there are no more."""
        # At most the echo and what the model gave are left out, unless the block list takes more.
        seen, wanted = 0, choice.k + 1
        while not choice.full:
            found = top(wanted)
            for query, count in found[seen:]:
                choice.add(query, math.log(count / self._completions.total), source)
            if len(found) < wanted:
                return
            seen, wanted = wanted, 2 * wanted


class Session:
    """One user's queries in order, and suggestions for the next one. Made by `Suggester.session`.

    A key press may come while the list of the last one is still being made, from another thread: the older request is
    ended and answers with what it has.
    """

    def __init__(self, suggester: Suggester) -> None:
        self._suggester = suggester
        self._queries: list[str] = []
        self._opening = self._state = suggester.engine.start()  # as the session began
        self._first = 0  # of the queries that the context holds
        self._newest, self._lock = Call(), threading.Lock()
        self._appending = threading.Lock()

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
        engine, tokenizer = self._suggester.engine, self._suggester.tokenizer
        with self._appending:
            queries, state = [*self._queries, normal], self._state
            first = context_start(len(queries), engine.max_queries)
            new = queries[-1:]
            if first != self._first:
                state, new = self._opening, queries[first:]
            for text in new:
                state = engine.append(tokenizer.encode(_end_of(text))[-engine.max_tokens :], state)
            # Only now: a fault on the way leaves the session as it was.
            self._queries, self._state, self._first = queries, state, first

    def fork(self) -> Session:
        """Another session that stands where this one does, and goes its own way from here; nothing is encoded again."""
        other = Session(self._suggester)
        with self._appending:
            other._queries, other._state, other._first = self._queries, self._state, self._first
            other._opening = self._opening
        return other

    def begin(self) -> None:
        """Ends the session and begins a new one of the same user, who was away for a while.

        A model of three levels remembers the sessions before; for any other this is an empty session.
        """
        with self._appending:
            if self._queries:
                self._queries, self._state, self._first = [], next_session(self._suggester.engine, self._state), 0
                self._opening = self._state

    def suggest(
        self,
        prefix: str = "",
        k: int = 8,
        *,
        deadline_ms: float | None = None,
        min_probability: float | None = None,
        mode: Mode = "generate",
        typos: bool = False,
    ) -> SuggestResult:
        """Up to `k` suggestions for what is being typed; with nothing typed, for the next query.

        Args:
            prefix: what was typed so far, as it was typed.
            k: suggestions wanted; fewer is an honest answer.
            deadline_ms: milliseconds after which the popular completions answer instead of the model.
            min_probability: the model's suggestions that are less probable are left out; None takes the bundle's
                calibrated floor, 0 lets everything pass.
            mode: `grounded` lets nothing come out but popular queries, which K people issued; the model chooses and
                ranks. The floor is off then, unless `min_probability` sets one.
            typos: whether a list that is short goes on with popular queries for a text one typo away (source `typo`).

        Raises:
            UserError: `k` is negative, `min_probability` is no probability, `mode` is unknown, or `deadline_ms` is
                no number.
        """
        began = time.monotonic()
        request = Request(prefix, k, mode, min_probability, typos)
        call = Call()
        if deadline_ms is not None:
            if math.isnan(deadline_ms):
                raise UserError(
                    "`deadline_ms` is nan, and it must be a number", code="bad-argument", hint="leave it out for none"
                )
            call.end_at(began + deadline_ms / 1000)
        with self._lock:
            older, self._newest = self._newest, call
        older.end(STALE)
        try:
            last = self._queries[-1] if self._queries else ""
            suggestions, reason = self._suggester.answer(self._state, last, request, call)
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


def _end_of(query: str) -> str:
    """The part of a query that is read: all of it, unless it is a whole document."""
    if len(query) <= LONGEST_QUERY:
        return query
    end = query[-LONGEST_QUERY:]
    return end[max(end.find(" "), 0) :]  # cut where the tokenizer cuts too
