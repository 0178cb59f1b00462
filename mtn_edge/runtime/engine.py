"""What runs a model: two graphs on ONNX Runtime (or anything else that keeps to `Engine`).

Shapes: Ls session layers, Ld decoder layers, h heads, q queries so far with the start query, m tokens of the memory,
e width of a head, S states, V vocabulary.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError
from mtn_edge.tokenizer import BOS

Floats = NDArray[np.float32]

DEAD = -1e8
"""A hypothesis with this log-probability or less broke the table's rules somewhere."""
_FATAL = 4
"""The one severity of ONNX Runtime's own log that is shown."""


@dataclass(frozen=True)
class SessionState:
    """All that a session leaves behind for its next query and its next key press; never changed in place."""

    session_keys: Floats
    """[Ls, h, q, e]"""
    session_values: Floats
    """[Ls, h, q, e]"""
    memory_keys: Floats
    """[Ld, h, m, e]"""
    memory_values: Floats
    """[Ld, h, m, e]"""


class Engine(Protocol):
    """A model that encodes queries and searches; safe to call from several threads at once."""

    vocab_size: int
    max_tokens: int
    max_queries: int

    def start(self) -> SessionState:
        """The state of a session without queries: the start query is in it already."""
        ...

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """The state after one more query, 1 to `max_tokens` tokens long."""
        ...

    def search(
        self,
        state: SessionState,
        next_state: NDArray[np.int32],
        start_state: int,
        *,
        beam: int,
        max_steps: int,
        deadline: float | None = None,
    ) -> tuple[NDArray[np.int64], Floats]:
        """The best token sequences under a state table (see `decoding.prefix_constraint`).

        Args:
            state: the session.
            next_state: [S, V] the state after each token, negative where it is forbidden.
            start_state: the state before the first token.
            beam: hypotheses kept at each step, at most `vocab_size`.
            max_steps: tokens written at most, with `<eos>`; at most `max_tokens + 1`.
            deadline: the value of `time.monotonic` at which to give up.

        Returns:
            Tokens [beam, steps] (with `<eos>`, then `<pad>`) and log-probabilities [beam], best first. Rows without
            `<eos>` did not end in time, and rows at or below `DEAD` break the table's rules: the caller drops both.

        Raises:
            TimeoutError: the deadline passed.
        """
        ...


class OnnxEngine:
    """`encode.onnx` and `suggest.onnx` on ONNX Runtime's CPU provider.

    Args:
        folder: where the two graphs lie.
        model: the `model` section of the bundle's manifest.
        threads: threads of one call; they sleep between calls instead of spinning.
    """

    def __init__(self, folder: Path, model: dict[str, Any], *, threads: int = 1) -> None:
        self.vocab_size: int = model["vocab_size"]
        self.max_tokens: int = model["max_tokens"]
        self.max_queries: int = model["max_queries"]
        self._memory: Literal["all", "last"] = model["memory"]
        self._encode = _session(folder / "encode.onnx", threads)
        self._suggest = _session(folder / "suggest.onnx", threads)
        nothing = np.zeros(
            (model["session_layers"], model["heads"], 0, model["d_model"] // model["heads"]), dtype=np.float32
        )
        no_memory = np.zeros((model["decoder_layers"], *nothing.shape[1:]), dtype=np.float32)
        self._start = self.append([BOS], SessionState(nothing, nothing, no_memory, no_memory))

    def start(self) -> SessionState:
        """See `Engine.start`: computed once, when the engine is made."""
        return self._start

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        memory_keys, memory_values, session_keys, session_values = self._encode.run(
            ["memory_keys", "memory_values", "new_session_keys", "new_session_values"],
            {
                "tokens": np.asarray(tokens, dtype=np.int64),
                "session_keys": state.session_keys,
                "session_values": state.session_values,
            },
        )
        if self._memory == "all":
            memory_keys = np.concatenate([state.memory_keys, memory_keys], axis=2)
            memory_values = np.concatenate([state.memory_values, memory_values], axis=2)
        return SessionState(session_keys, session_values, memory_keys, memory_values)

    def search(
        self,
        state: SessionState,
        next_state: NDArray[np.int32],
        start_state: int,
        *,
        beam: int,
        max_steps: int,
        deadline: float | None = None,
    ) -> tuple[NDArray[np.int64], Floats]:
        """See `Engine.search`."""
        feeds = {
            "memory_keys": state.memory_keys,
            "memory_values": state.memory_values,
            "next_state": next_state,
            "start_state": np.asarray(start_state, dtype=np.int64),
            "beam": np.asarray([beam], dtype=np.int64),
            "max_steps": np.asarray(max_steps, dtype=np.int64),
        }
        if deadline is None:
            tokens, scores = self._suggest.run(["tokens", "scores"], feeds)
            return tokens, scores
        return self._search_until(deadline, feeds)

    def _search_until(self, deadline: float, feeds: dict[str, Any]) -> tuple[NDArray[np.int64], Floats]:
        import onnxruntime

        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        options = onnxruntime.RunOptions()
        options.log_severity_level = _FATAL  # a run that was ended on purpose is no news
        timer = threading.Timer(left, lambda: setattr(options, "terminate", True))
        timer.daemon = True
        timer.start()
        try:
            tokens, scores = self._suggest.run(["tokens", "scores"], feeds, options)
        except Exception as error:  # the library has no exception of its own for a run that was ended
            if options.terminate:
                raise TimeoutError from error
            raise
        finally:
            timer.cancel()
        return tokens, scores


def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = _FATAL  # faults come as exceptions
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has no common exception for graphs that it cannot load
        raise UserError(
            f"`{path}` cannot be loaded by ONNX Runtime {onnxruntime.__version__} ({str(error).splitlines()[0]})",
            code="bad-graph",
            hint="see `mtn-edge doctor` for the versions that go together",
        ) from error
