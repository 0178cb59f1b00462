"""What may change between the parts of a resumed run, and what makes it another run."""

from __future__ import annotations

from typing import Any

from mtn_edge.console import say
from mtn_edge.errors import UserError

FREE = {"learning_rate", "clip_norm", "precision", "compile", "patience", "time_budget", "ngram_mb"}
"""Settings of `train` that do not say what step number n learns from: the run goes on with the new ones."""
SIZE = {"batch_queries", "accumulate"}
"""Settings of `train` whose product, times the processes, says what a step learns from."""


def require_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Says which of the free settings have changed.

    Args:
        before: what the interrupted run was asked for (`TrainingState.run`).
        now: what is asked for.

    Raises:
        UserError: something else has changed; the sentence names it.
    """
    if before["dataset"] != now["dataset"]:
        raise UserError(
            "the interrupted run was training on another dataset",
            code="other-run",
            hint="name that dataset, or start anew with --force",
        )
    if before.get("teacher") != now["teacher"]:
        raise UserError(
            "the interrupted run was learning from another teacher, or from none",
            code="other-run",
            hint="give the same --teacher, or start anew with --force",
        )
    if before.get("beginning") != now["beginning"]:
        raise UserError(
            "the interrupted run began with other weights",
            code="other-run",
            hint="begin with those, or start anew with --force",
        )
    for section, settings in now["config"].items():
        for key, value in (settings or {}).items():
            was = before["config"][section].get(key)
            if was == (list(value) if isinstance(value, tuple) else value):
                continue
            free = key in FREE or (key in SIZE and _step_size(before) == _step_size(now))
            if section != "train" or not free:
                raise _other_run(f"`{section}.{key}`", was, value)
            say(f"`{section}.{key}` was {was!r} and is {value!r} from here on")
    if _step_size(before) != _step_size(now):
        raise _other_run("the number of processes", before["processes"], now["processes"])


def _step_size(run: dict[str, Any]) -> tuple[int, ...]:
    train, processes = run["config"]["train"], run["processes"]
    if train["batch_tokens"]:  # rounded for each part, so the product does not tell
        return train["batch_tokens"], train["accumulate"], processes
    return (train["batch_queries"] * train["accumulate"] * processes,)


def _other_run(what: str, was: Any, now: Any) -> UserError:
    return UserError(
        f"{what} was {was!r} in the interrupted run and is {now!r} now",
        code="other-run",
        hint="give the same settings, or start anew with --force",
    )
