"""A check with its value and its bound, and the gate that a list of them makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mtn_edge.errors import GateError


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        name: what was checked.
        ok: whether it holds.
        value: what was found.
        bound: what the value is held against, as a rule: `<= 0.0001`.
    """

    name: str
    ok: bool
    value: float | str
    bound: str

    def to_json(self) -> dict[str, Any]:
        """The check as manifests and `verify --json` show it."""
        return asdict(self)


def at_most(name: str, value: float, bound: float) -> Check:
    """A check that `value` is no number above `bound` (NaN fails)."""
    return Check(name, bool(value <= bound), _short(value), f"<= {bound:.8g}")


def at_least(name: str, value: float, bound: float) -> Check:
    """A check that `value` is no number below `bound` (NaN fails)."""
    return Check(name, bool(value >= bound), _short(value), f">= {bound:.8g}")


def equal(name: str, value: str, wanted: str) -> Check:
    """A check that `value` is `wanted`."""
    return Check(name, value == wanted, value, f"= {wanted}")


def require(checks: Sequence[Check], what: str) -> None:
    """Lets nothing pass that failed.

    Args:
        checks: the checks.
        what: what they guard, for the sentence.

    Raises:
        GateError: a check failed; the sentence names the first.
    """
    failed = [check for check in checks if not check.ok]
    if failed:
        first = failed[0]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise GateError(
            f"{what}: `{first.name}` is {first.value}, and it must be {first.bound}{more}",
            code="gate",
            hint="nothing was written; the checkpoint or this version of mtn-edge is at fault",
        )


def table(checks: Sequence[Check]) -> str:
    """The checks as lines for people."""
    width = max(len(check.name) for check in checks)
    return "\n".join(
        f"{'ok  ' if check.ok else 'FAIL'}  {check.name:{width}}  {check.value}  ({check.bound})" for check in checks
    )


def _short(value: float) -> float | str:
    """Six digits are enough to read; what is no number is said in words, because JSON has none for it."""
    if isinstance(value, int):
        return value
    number = float(f"{value:.6g}")
    return number if abs(number) < float("inf") else str(number)
