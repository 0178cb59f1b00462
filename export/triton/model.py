"""The model that Triton's Python backend serves: earlier queries and a typed text in, a list of suggestions out.

`mtn-edge export triton` copies this file into a model repository as `model.py`, beside the bundle that it opens. The
Python of Triton needs mtn-edge's base install. Nothing is kept between two requests but a cache: any instance of any
server gives the same answer.

Shapes: b rows of a request, q earlier queries, k suggestions of the request's longest list.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton brings it along

from mtn_edge.errors import UserError
from mtn_edge.runtime.session_cache import SessionCache
from mtn_edge.runtime.suggester import Suggester, SuggestResult

LONGEST_BYTES = 16_000
"""Bytes of a text: as many as the longest earlier query of which anything is read (`suggester.LONGEST_QUERY`)."""
MOST_QUERIES = 1_000
"""Earlier queries of a request, of which the model sees the last ones."""
MOST_SUGGESTIONS = 1_000
DEFAULT_COUNT = 8
CACHE_BYTES = 64 << 20
"""What the encoded sessions of one instance may weigh."""


class Row(NamedTuple):
    """One key press of one user."""

    session: list[str]
    typed: str
    wanted: int
    deadline_ms: float | None


class TritonPythonModel:
    """What the Python backend makes an object of for each instance."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 (the bundle lies beside this file)
        """Opens the bundle; a file that is not the one of its manifest keeps the model from being served."""
        try:
            suggester = Suggester.open(Path(__file__).parent / "bundle")
        except UserError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._suggester, self._sessions = suggester, SessionCache(suggester, CACHE_BYTES)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """A response for each request; what is wrong with one is told to that one alone."""
        began = time.monotonic()
        return [self._respond(request, began) for request in requests]

    def finalize(self) -> None:
        """Lets go of the model."""
        self._suggester.close()

    def _respond(self, request: Any, began: float) -> Any:
        try:
            return response([self._answer(row, began) for row in rows(request)])
        except UserError as error:
            return refusal(str(error), pb_utils.TritonError.INVALID_ARG)
        except Exception as error:  # its neighbours in the batch are still to be answered
            return refusal(f"unexpected fault: {error!r}", pb_utils.TritonError.INTERNAL)

    def _answer(self, row: Row, began: float) -> SuggestResult:
        """Answers one row; its deadline counts from when the batch came."""
        session = self._sessions.open(row.session)
        left = None if row.deadline_ms is None else row.deadline_ms - (time.monotonic() - began) * 1000
        return session.suggest(row.typed, row.wanted, deadline_ms=left)


def rows(request: Any) -> list[Row]:
    """Reads the tensors of a request.

    Raises:
        UserError: a text is no UTF-8 or too long, or a number is out of range.
    """
    typed = _tensor(request, "TYPED")  # [b, 1]
    sessions = _tensor(request, "SESSION")  # [b, q]
    counts = _tensor(request, "COUNT")  # [b, 1]
    deadlines = _tensor(request, "DEADLINE_MS")  # [b, 1]
    return [
        Row(
            session=[] if sessions is None else _session(sessions[number]),
            typed=_text("TYPED", typed[number, 0]),
            wanted=DEFAULT_COUNT if counts is None else _count(int(counts[number, 0])),
            deadline_ms=None if deadlines is None else _deadline(float(deadlines[number, 0])),
        )
        for number in range(len(typed))
    ]


def response(results: Sequence[SuggestResult]) -> Any:
    """The lists as tensors [b, k]; shorter ones end with empty texts, which no suggestion is."""
    width = max(len(result.suggestions) for result in results)
    texts, sources = (np.full((len(results), width), b"", dtype=np.object_) for _ in range(2))
    scores = np.zeros((len(results), width))
    for row, result in enumerate(results):
        for place, found in enumerate(result.suggestions):
            texts[row, place], sources[row, place] = found.text.encode(), found.source.encode()
            scores[row, place] = found.score
    reasons = np.array([[(result.reason or "").encode()] for result in results], dtype=np.object_)
    named = {"TEXTS": texts, "SCORES": scores, "SOURCES": sources, "REASON": reasons}
    return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(name, array) for name, array in named.items()])


def refusal(sentence: str, code: Any) -> Any:
    """The response to a request that cannot be answered."""
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(sentence, code))


def _tensor(request: Any, name: str) -> Any:
    """An input as an array; None when the request leaves it out."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def _session(raws: Sequence[bytes]) -> list[str]:
    if len(raws) > MOST_QUERIES:
        raise _refused(f"`SESSION` holds {len(raws):,} queries", f"at most {MOST_QUERIES:,}", "send the last ones")
    return [_text("SESSION", raw) for raw in raws]


def _text(name: str, raw: bytes) -> str:
    if len(raw) > LONGEST_BYTES:
        raise _refused(f"a text of `{name}` has {len(raw):,} bytes", f"at most {LONGEST_BYTES:,}", "send less of it")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"a text of `{name}` is no UTF-8", "UTF-8", "encode it so") from error


def _count(count: int) -> int:
    if not 0 <= count <= MOST_SUGGESTIONS:
        raise _refused(f"`COUNT` is {count:,}", f"0 to {MOST_SUGGESTIONS:,}", "ask for 1 or more")
    return count


def _deadline(milliseconds: float) -> float:
    if math.isnan(milliseconds) or milliseconds < 0:
        raise _refused(f"`DEADLINE_MS` is {milliseconds:g}", "0 or more", "leave it out for none")
    return milliseconds


def _refused(what: str, rule: str, hint: str) -> UserError:
    return UserError(f"{what}, and it must be {rule}", code="bad-argument", hint=hint)
