"""The typed text as a state table: which tokens may follow, so that every output spells the typed text and more.

A deterministic automaton over tokens, each a string of bytes. Its free states know UTF-8 (RFC 3629: no overlong form,
no surrogate), so that an output never ends inside a character; they forbid control characters, a blank at the start or
end, and two blanks in a row. In front of them stands one state for each position in the typed bytes: there a token is
allowed when it is a prefix of the rest, or when the rest is a prefix of it. So every segmentation that can reach the
typed text stays open, not only the tokenizer's own.

Shapes: S states, V tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtn_edge.tokenizer import EOS

FORBIDDEN = -1
"""Entry of a table for a token that may not come."""
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
_NO_BYTE = 256


class PrefixConstraint:
    """Makes state tables for one vocabulary.

    Args:
        token_bytes: the bytes of each token; empty for the specials, of which only `<eos>` is ever allowed.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._bytes = _byte_table()
        self._free = _free_table(token_bytes, self._bytes)  # [STATES, V]
        order = sorted((number for number, spelt in enumerate(token_bytes) if spelt), key=token_bytes.__getitem__)
        self._numbers = np.array(order, dtype=np.int64)
        self._spelt = [token_bytes[number] for number in order]
        self._longest = max(map(len, self._spelt), default=0)
        self._places: dict[bytes, list[int]] = {}
        for number, spelt in zip(order, self._spelt, strict=True):
            self._places.setdefault(spelt, []).append(number)

    def table(self, prefix: bytes) -> tuple[NDArray[np.int32], int]:
        """The table whose accepted token sequences spell `prefix` and at least one character more, then `<eos>`.

        Args:
            prefix: UTF-8 of `text.normalize_prefix` of the typed text.

        Returns:
            The next state [S, V], negative where a token is forbidden, and the start state. S is
            `STATES + len(prefix) + 1`.

        Raises:
            ValueError: `prefix` is not UTF-8 of text in normal form.
        """
        states = [SPACE]  # of the bytes before each position
        for byte in prefix:
            states.append(int(self._bytes[states[-1], byte]))
        if states[-1] not in (FREE, SPACE):
            raise ValueError(f"`prefix` must be UTF-8 of text in normal form, got {prefix!r}")
        first, last = STATES, STATES + len(prefix)
        table = np.full((last + 1, self._free.shape[1]), FORBIDDEN, dtype=np.int32)
        table[:STATES] = self._free
        for start in range(len(prefix)):
            row = table[first + start]
            for stop, numbers in self._prefixes(prefix, start):
                row[numbers] = first + stop
            longer = self._longer(prefix[start:])
            row[longer] = self._free[states[start], longer]
        # The typed text and nothing more: going on is free, but to end here would be an echo.
        table[last] = self._free[states[-1]]
        table[last, EOS] = FORBIDDEN
        return table, first

    def reachable(self, prefix: bytes, tokens: int) -> bool:
        """Whether `tokens` tokens can spell `prefix` and more."""
        if len(prefix) > self._longest * tokens:
            return False
        fewest = [0] + [tokens + 1] * len(prefix)
        for start in range(len(prefix)):
            if fewest[start] >= tokens:
                continue
            for stop, _ in self._prefixes(prefix, start):
                fewest[stop] = min(fewest[stop], fewest[start] + 1)
            if self._longer(prefix[start:]).size:
                return True
        return fewest[-1] < tokens

    def exact(self, tokens: Sequence[int]) -> tuple[NDArray[np.int32], int]:
        """The table that accepts `tokens` and then `<eos>` alone: a search with it gives their log-probability.

        Returns:
            The next state [len(tokens) + 1, V] and the start state.
        """
        table = np.full((len(tokens) + 1, self._free.shape[1]), FORBIDDEN, dtype=np.int32)
        for place, token in enumerate(tokens):
            table[place, token] = place + 1
        table[len(tokens), EOS] = len(tokens)
        return table, 0

    def _prefixes(self, prefix: bytes, start: int) -> list[tuple[int, list[int]]]:
        """The tokens that `prefix` goes on with from `start`: where each spelling ends, and its token numbers."""
        stops = range(start + 1, min(start + self._longest, len(prefix)) + 1)
        return [(stop, numbers) for stop in stops if (numbers := self._places.get(prefix[start:stop])) is not None]

    def _longer(self, rest: bytes) -> NDArray[np.int64]:
        """The tokens that begin with `rest` and go on after it."""
        if len(rest) >= self._longest:
            return self._numbers[:0]
        above = rest + b"\xff" * self._longest
        return self._numbers[bisect_right(self._spelt, rest) : bisect_right(self._spelt, above)]


def _byte_table() -> NDArray[np.int32]:
    """The state after each byte [STATES + 1, 257]: a dead state comes last, and byte 256 changes nothing."""
    table = np.full((STATES + 1, 257), _DEAD, dtype=np.int32)
    for heads, after in _HEADS:
        table[:2, heads] = after
    table[FREE, ord(" ")] = SPACE
    for state, (tails, after) in _TAILS.items():
        table[state, tails] = after
    table[:, _NO_BYTE] = np.arange(STATES + 1)
    return table


def _free_table(token_bytes: Sequence[bytes], byte_table: NDArray[np.int32]) -> NDArray[np.int32]:
    """The free states' rows [STATES, V]: the state after all bytes of each token."""
    padded = np.full((len(token_bytes), max(map(len, token_bytes))), _NO_BYTE, dtype=np.int64)
    for number, spelt in enumerate(token_bytes):
        padded[number, : len(spelt)] = list(spelt)
    states = np.repeat(np.arange(STATES, dtype=np.int32)[:, None], len(token_bytes), axis=1)  # [STATES, V]
    for column in padded.T:
        states = byte_table[states, column]
    states[states == _DEAD] = FORBIDDEN
    states[:, [number for number, spelt in enumerate(token_bytes) if not spelt]] = FORBIDDEN
    states[FREE, EOS] = FREE
    return states
