"""The faults a user can meet, each one sentence: what was given, the rule, what to do."""

from __future__ import annotations

EXIT_FAULT = 1
"""A fault that the user can mend."""
EXIT_USAGE = 2
"""The command line itself is wrong."""
EXIT_GATE = 3
"""A gate failed: parity, budget, verify."""
EXIT_INTERRUPTED = 130
"""The user stopped it (Ctrl-C)."""


class UserError(Exception):
    """A fault that the user can mend.

    Args:
        message: what was given and the rule it breaks, one sentence without a final period.
        code: a stable word for scripts, for example `file-missing`.
        hint: what to do, one sentence without a final period.
    """

    exit_code = EXIT_FAULT

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}." if self.hint else f"{self.message}."


class GateError(UserError):
    """A check that guards the user failed: what was built is not good enough to keep."""

    exit_code = EXIT_GATE


class InterruptedRunError(UserError):
    """The user stopped a run that can go on later."""

    exit_code = EXIT_INTERRUPTED


def missing_extra(package: str, extra: str, purpose: str) -> UserError:
    """The error for an optional dependency that is not installed."""
    return UserError(
        f"{purpose} needs the package `{package}`, which is not installed",
        code="extra-missing",
        hint=f'install it with `pip install "mtn-edge[{extra}]"`',
    )
