"""The model in front of the engines in Triton: earlier queries and typed texts in, lists of suggestions out.

`mtn-edge export triton` copies this file into a model repository as `model.py`. It makes tensors of texts, calls the
encoder and the search, which Triton's TensorRT backend runs (business logic scripting), and reads what they found. All
key presses that Triton hands over together are one batch for the engines. What goes from the encoder to the search
stays on the GPU. Requests and answers are those of `export.triton.model`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton brings it along

from export.tensorrt.batch import MEMORY
from export.tensorrt.serving import open_engines
from export.triton.model import Row, refusal, response, rows
from mtn_edge.errors import UserError
from mtn_edge.runtime.suggester import SuggestResult

FOUND = ("tokens", "scores", "mass")
Outcome = SuggestResult | Exception


class TritonPythonModel:
    """What the Python backend makes an object of for each instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the lists; a file that is not the one of its manifest keeps the model from being served."""
        name = args["model_name"]
        try:
            self._served = open_engines(
                Path(__file__).parent / "engines",
                partial(_encode, f"{name}-encoder"),
                partial(_search, f"{name}-search"),
            )
        except UserError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """A response for each request; what is wrong with one is told to that one alone."""
        began = time.monotonic()
        read = [_rows(request) for request in requests]
        tasks = [
            partial(self._answer, row, began) for found in read if not isinstance(found, Exception) for row in found
        ]
        answers = iter(self._served.engine.run(tasks))
        return [
            _told(found) if isinstance(found, Exception) else _respond([next(answers) for _ in found]) for found in read
        ]

    def finalize(self) -> None:
        """Lets go of the lists."""
        self._served.suggester.close()

    def _answer(self, row: Row, began: float) -> Outcome:
        """Answers one row; its deadline counts from when the batch came."""
        try:
            session = self._served.suggester.session(row.session)
            left = None if row.deadline_ms is None else row.deadline_ms - (time.monotonic() - began) * 1000
            return session.suggest(row.typed, row.wanted, deadline_ms=left)
        except Exception as error:  # its neighbours in the batch are still to be answered
            return error


def _rows(request: Any) -> list[Row] | Exception:
    try:
        return rows(request)
    except Exception as error:  # told to this request alone
        return error


def _respond(outcomes: Sequence[Outcome]) -> Any:
    faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    return _told(faults[0]) if faults else response([each for each in outcomes if isinstance(each, SuggestResult)])


def _told(error: Exception) -> Any:
    if isinstance(error, UserError):
        return refusal(str(error), pb_utils.TritonError.INVALID_ARG)
    return refusal(f"unexpected fault: {error!r}", pb_utils.TritonError.INTERNAL)


def _encode(model: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The memory as Triton's own tensors, wherever the engine left them: on its GPU."""
    return _run(model, feeds, MEMORY)


def _search(model: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    in_memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
    found = _run(model, feeds, FOUND, preferred_memory=in_memory)
    arrays = {name: tensor.as_numpy() for name, tensor in found.items()}
    return arrays | {"mass": arrays["mass"].reshape(-1)}  # [B, 1] as Triton has it


def _run(model: str, feeds: Mapping[str, Any], outputs: Sequence[str], **options: Any) -> dict[str, Any]:
    request = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=list(outputs),
        inputs=[_tensor(name, values) for name, values in feeds.items()],
        **options,
    )
    answer = request.exec()
    if answer.has_error():
        raise RuntimeError(f"`{model}` did not answer: {answer.error().message()}")
    return {name: pb_utils.get_output_tensor_by_name(answer, name) for name in outputs}


def _tensor(name: str, values: Any) -> Any:
    """A tensor for a request: one that another model made goes on as it is; one number a row is [B, 1] to Triton."""
    if isinstance(values, pb_utils.Tensor):
        return values
    return pb_utils.Tensor(name, values[:, None] if values.ndim == 1 else values)
