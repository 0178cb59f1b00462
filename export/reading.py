"""Values of a JSON document that somebody else may have written: each of its type and in its range, or a sentence.

A reader takes what the document holds and gives it back typed. What is read so needs no further care, and a fault
further on is a fault of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Reader = Callable[[Any], T]
_LONGEST = 40
"""Characters of a wrong value that are shown."""


class WrongValueError(ValueError):
    """Something else stands in the document than must; the text says what and where."""


def whole(low: int, high: int) -> Reader[int]:
    """Reads an integer from `low` to `high`."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _wrong(value, f"a whole number from {low} to {high}")
        return value

    return read


def real(value: Any) -> float:
    """Reads a finite number."""
    if type(value) not in (int, float) or not abs(value) <= 1e30 or math.isnan(value):
        raise _wrong(value, "a number")
    return float(value)


def text(value: Any) -> str:
    """Reads a text without halves of surrogate pairs."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise _wrong(value, "a text")


def flag(value: Any) -> bool:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def one_of(*names: str) -> Reader[str]:
    """Reads one of `names`."""

    def read(value: Any) -> str:
        if value not in names or not isinstance(value, str):
            raise _wrong(value, f"one of {', '.join(names)}")
        return value

    return read


def each(read: Reader[T], *, length: int | None = None) -> Reader[list[T]]:
    """Reads a list, each entry with `read`; `length` is how many there must be, None for any number."""

    def read_all(value: Any) -> list[T]:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise _wrong(value, "a list" if length is None else f"a list of {length}")
        return [read(entry) for entry in value]

    return read_all


def by_name(read: Reader[T]) -> Reader[dict[str, T]]:
    """Reads a section with any names, each value with `read`."""

    def read_all(value: Any) -> dict[str, T]:
        if not isinstance(value, dict):
            raise _wrong(value, "a section")
        return {name: read(entry) for name, entry in value.items()}

    return read_all


def field(section: Any, name: str, read: Reader[T]) -> T:
    """Reads what stands at `name` in a section.

    Raises:
        WrongValueError: it is not there, or not what `read` takes.
    """
    if not isinstance(section, dict) or name not in section:
        raise WrongValueError(f"`{name}` is missing")
    try:
        return read(section[name])
    except WrongValueError as error:
        raise WrongValueError(f"`{name}`: {error}") from None


def _wrong(value: Any, rule: str) -> WrongValueError:
    shown = ascii(value)
    return WrongValueError(f"{shown[:_LONGEST]}{'...' if len(shown) > _LONGEST else ''} stands where {rule} must stand")
