"""The typed text as a constraint on tokens: every output spells it, character for character, and more.

Words that are finished, since a blank follows them, are settled: the tokenizer spells them in one way whatever comes
next, the network has only ever seen them so, and the search need not look for it. The rest, from the last blank on, is
a state table, a deterministic automaton over tokens, each a string of bytes. Its free states know UTF-8 (RFC 3629: no
overlong form, no surrogate), so that an output never ends inside a character; they forbid control characters, a blank
at the start or end, and two blanks in a row. In front of them stands one state for each position in the rest: there a
token is allowed when it is a prefix of what is left, or when what is left is a prefix of it. So every segmentation
that can reach the typed text stays open, not only the tokenizer's own.

Shapes: f tokens before the search, S states, V tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtn_edge.tokenizer import BOS, EOS

FORBIDDEN = 0
"""Entry of a table for a token that may not come; the others hold the number of the next state, and 1."""
MOST_STATES = 255
"""How many states a table of bytes can tell apart."""
FREE = 0
"""Between two characters: anything may come, and the output may end."""
SPACE = 1
"""After a blank or at the start: no blank and no end."""
_TAILS = {
    # Inside a character: which bytes may come, and the state after them.
    2: (range(0x80, 0xC0), FREE),
    3: (range(0x80, 0xC0), 2),
    4: (range(0x80, 0xC0), 3),
    5: (range(0xA0, 0xC0), 2),  # after E0: no overlong form
    6: (range(0x80, 0xA0), 2),  # after ED: no surrogate
    7: (range(0x90, 0xC0), 3),  # after F0: no overlong form
    8: (range(0x80, 0x90), 3),  # after F4: nothing above U+10FFFF
}
_HEADS = (
    # The first byte of a character, and the state after it.
    (range(0x21, 0x7F), FREE),
    (range(0xC2, 0xE0), 2),
    (range(0xE0, 0xF0), 3),
    (range(0xE0, 0xE1), 5),
    (range(0xED, 0xEE), 6),
    (range(0xF0, 0xF1), 7),
    (range(0xF1, 0xF4), 4),
    (range(0xF4, 0xF5), 8),
)
STATES = 2 + len(_TAILS)
"""How many free states there are: rows 0 to STATES - 1 of every table of `PrefixConstraint.table`."""
_DEAD = STATES


class Constraint(NamedTuple):
    """What a search must keep to."""

    start_tokens: NDArray[np.int64]
    """[f] `<bos>` and the tokens of what is settled."""
    next_state: NDArray[np.uint8]
    """[S, V] the state after each token, and 1; `FORBIDDEN` where it may not come."""
    start_state: int
    """The state before the first token that the search writes."""


class PrefixConstraint:
    """Makes constraints for one vocabulary.

    Args:
        token_bytes: the bytes of each token, all different; empty for the specials, of which only `<eos>` is ever
            allowed.
        encode: the tokenizer, for the words that are settled. Without it nothing is.
    """

    def __init__(self, token_bytes: Sequence[bytes], encode: Callable[[str], list[int]] | None = None) -> None:
        # One word is typed letter by letter: the words before it are encoded once.
        self._encode = lru_cache(maxsize=256)(encode) if encode is not None else None
        self._bytes = _byte_table()
        self._free = _free_table(token_bytes, self._bytes)  # [STATES, V]
        order = sorted((number for number, spelt in enumerate(token_bytes) if spelt), key=token_bytes.__getitem__)
        self._numbers = np.array(order, dtype=np.int64)
        self._spelt = [token_bytes[number] for number in order]
        self._longest = max(map(len, self._spelt), default=0)
        self._number_of = dict(zip(self._spelt, order, strict=True))

    def typed(self, prefix: str, most: int) -> Constraint | None:
        """The constraint whose outputs spell `prefix` and at least one character more, then `<eos>`.

        Args:
            prefix: `text.normalize_prefix` of the typed text.
            most: tokens that an output may have, with those that are settled and without `<eos>`.

        Returns:
            The constraint, with `STATES + 1` states and one more for each byte from the last blank of `prefix` on; None
            when `most` tokens cannot spell `prefix` and more, or its last word is longer than a table can hold.
        """
        if len(prefix.encode()) > self._longest * most:
            return None
        start_tokens = self.start_tokens(prefix)
        settled = len(start_tokens) - 1
        spelt = prefix[len(self.settled(prefix)) :].encode()
        # The shortest token has one byte and the longest `_longest`: most texts need no search for the fewest tokens.
        if settled + len(spelt) >= most and not self._reachable(spelt, most - settled):
            return None
        if STATES + 1 + len(spelt) > MOST_STATES:
            return None
        return Constraint(start_tokens, self._table(spelt, FREE if settled else SPACE), STATES)

    def start_tokens(self, prefix: str) -> NDArray[np.int64]:
        """[f] `<bos>` and the tokens of the finished words of `prefix`."""
        settled = self._encode(self.settled(prefix)) if self._encode is not None else []
        return np.array([BOS, *settled], dtype=np.int64)

    def settled(self, prefix: str) -> str:
        """The finished words of `prefix`: what stands before its last blank."""
        return prefix[: max(prefix.rfind(" "), 0)] if self._encode is not None else ""

    def exact(self, tokens: Sequence[int], settled: Sequence[int] = ()) -> Constraint:
        """The constraint that accepts `tokens` and then `<eos>` alone: a search with it gives their log-probability.

        Args:
            tokens: what the search writes.
            settled: tokens that stand before them.
        """
        table = np.full((len(tokens) + 1, self._free.shape[1]), FORBIDDEN, dtype=np.uint8)
        for place, token in enumerate(tokens):
            table[place, token] = place + 2
        table[len(tokens), EOS] = 1 + len(tokens)
        return Constraint(np.array([BOS, *settled], dtype=np.int64), table, 0)

    def _table(self, rest: bytes, before: int) -> NDArray[np.uint8]:
        """The state table [S, V] for `rest`, which stands in state `before`; it starts in state `STATES`."""
        states = [before]  # of the bytes before each position
        for byte in rest:
            states.append(int(self._bytes[states[-1], byte]))
        if states[-1] not in (FREE, SPACE):
            raise ValueError(f"`rest` must be UTF-8 of text in normal form, got {rest!r}")
        table = np.empty((STATES + len(rest) + 1, self._free.shape[1]), dtype=np.uint8)
        table[:STATES] = self._free
        table[STATES:-1] = FORBIDDEN
        for start in range(len(rest)):
            row = table[STATES + start]
            for stop, number in self._prefixes(rest, start):
                row[number] = 1 + STATES + stop
            longer = self._longer(rest[start:])
            row[longer] = self._free[states[start]][longer]
        # The typed text and nothing more: going on is free, but to end here would be an echo.
        table[-1] = self._free[states[-1]]
        table[-1, EOS] = FORBIDDEN
        return table

    def _reachable(self, rest: bytes, tokens: int) -> bool:
        """Whether `tokens` tokens can spell `rest` and more."""
        if len(rest) > self._longest * tokens:
            return False
        fewest = [0] + [tokens + 1] * len(rest)
        for start in range(len(rest)):
            if fewest[start] >= tokens:
                continue
            for stop, _ in self._prefixes(rest, start):
                fewest[stop] = min(fewest[stop], fewest[start] + 1)
            if self._longer(rest[start:]).size:
                return True
        return fewest[-1] < tokens

    def _prefixes(self, rest: bytes, start: int) -> list[tuple[int, int]]:
        """The tokens that `rest` goes on with from `start`: where each spelling ends, and its token number."""
        stops = range(start + 1, min(start + self._longest, len(rest)) + 1)
        return [(stop, number) for stop in stops if (number := self._number_of.get(rest[start:stop])) is not None]

    def _longer(self, rest: bytes) -> NDArray[np.int64]:
        """The tokens that begin with `rest` and go on after it."""
        if len(rest) >= self._longest:
            return self._numbers[:0]
        above = rest + b"\xff" * self._longest
        return self._numbers[bisect_right(self._spelt, rest) : bisect_right(self._spelt, above)]


def _byte_table() -> NDArray[np.int32]:
    """The state after each byte [STATES + 1, 256]: a dead state comes last."""
    table = np.full((STATES + 1, 256), _DEAD, dtype=np.int32)
    for heads, after in _HEADS:
        table[:2, heads] = after
    table[FREE, ord(" ")] = SPACE
    for state, (tails, after) in _TAILS.items():
        table[state, tails] = after
    return table


def _free_table(token_bytes: Sequence[bytes], byte_table: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The free states' rows [STATES, V]: the state after all bytes of each token."""
    lengths = np.array([len(spelt) for spelt in token_bytes])
    longest = int(lengths.max())
    joined = b"".join(spelt.ljust(longest, b"\0") for spelt in token_bytes)
    padded = np.frombuffer(joined, dtype=np.uint8).reshape(-1, longest)  # [V, longest]
    states = np.repeat(np.arange(STATES, dtype=np.int32)[:, None], len(token_bytes), axis=1)  # [STATES, V]
    for place, column in enumerate(padded.T):
        still = np.flatnonzero(lengths > place)  # most tokens are short
        states[:, still] = byte_table[states[:, still], column[still]]
    table = np.where(states == _DEAD, np.uint8(FORBIDDEN), (states + 1).astype(np.uint8))
    table[:, [number for number, spelt in enumerate(token_bytes) if not spelt]] = FORBIDDEN
    table[FREE, EOS] = 1 + FREE
    return table
