"""What runs a model: two graphs on ONNX Runtime (or anything else that keeps to `Engine`).

Shapes: S states, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mtn_edge.decoding.prefix_constraint import FORBIDDEN, Constraint
from mtn_edge.errors import UserError
from mtn_edge.runtime.call import Call, CallEndedError
from mtn_edge.tokenizer import BOS

Floats = NDArray[np.float32]

IMPOSSIBLE = -1e9
"""Log-probability of a forbidden token."""
DEAD = -1e8
"""A hypothesis with this log-probability or less broke the table's rules somewhere."""
NO_FLOOR = DEAD
"""A floor that gives up dead hypotheses only."""
NEW = "new_"
"""What `encode.onnx` calls a part of the state after the query: this and the part's name."""
HISTORY = "session_history"
"""A part of the state of models that remember a user's earlier sessions: the start query closes a session for them."""
_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
_FATAL = 4
"""The one severity of ONNX Runtime's own log that is shown."""

SessionState = Mapping[str, NDArray[Any]]
"""All that a session leaves behind for its next query (`session_...`) and its next key press (`memory_...`), by name;
never changed in place."""


class Hypotheses(NamedTuple):
    """What a search found, best first."""

    tokens: NDArray[np.int64]
    """[beam, steps], with `<eos>`, then `<pad>`; without the settled tokens."""
    scores: Floats
    """[beam] log-probabilities of these tokens, given the session and the settled ones.

    Rows without `<eos>` did not end in time or were given up, and rows at or below `DEAD` break the constraint: the
    caller drops both.
    """
    mass: float
    """Log-probability of all tokens that the first step allows: how much of what could come the typed text leaves."""


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
        constraint: Constraint,
        *,
        beam: int,
        max_steps: int,
        floor: float = NO_FLOOR,
        call: Call | None = None,
    ) -> Hypotheses:
        """The best token sequences under a constraint (see `decoding.prefix_constraint`).

        Args:
            state: the session.
            constraint: what outputs must spell.
            beam: hypotheses kept at each step, at most `vocab_size`.
            max_steps: tokens written at most, with `<eos>`; with the settled ones at most `max_tokens + 1`.
            floor: log-probability, relative to the mass, at which a hypothesis is given up.
            call: the request, which can be ended from outside.

        Raises:
            CallEndedError: the call was ended.
        """
        ...


def next_session(engine: Engine, state: SessionState) -> SessionState:
    """The state in which the same user's next session begins, after the session of `state`."""
    return engine.append([BOS], state) if HISTORY in state else engine.start()


def graph_file(folder: Path, name: str) -> Path:
    """Where a graph of a bundle lies: as ONNX, or in ONNX Runtime's own format (`export mobile --ort-format`)."""
    ort = folder / f"{name}.ort"
    return ort if ort.is_file() else folder / f"{name}.onnx"


class OnnxEngine:
    """`encode.onnx` and `suggest.onnx`, or the same as `.ort`, on ONNX Runtime's CPU provider.

    Args:
        folder: where the two graphs lie.
        model: the `model` section of the bundle's manifest.
        threads: threads of one call; they sleep between calls instead of spinning.
    """

    def __init__(self, folder: Path, model: dict[str, Any], *, threads: int = 1) -> None:
        self.vocab_size: int = model["vocab_size"]
        self.max_tokens: int = model["max_tokens"]
        self.max_queries: int = model["max_queries"]
        self._encode = _session(graph_file(folder, "encode"), threads)
        self._suggest = _session(graph_file(folder, "suggest"), threads)
        self._history = _session(graph_file(folder, "history"), threads) if model["levels"] == 3 else None
        self._remembers = [entry.name for entry in self._suggest.get_inputs() if entry.name.startswith("memory_")]
        graphs = [graph for graph in (self._encode, self._suggest, self._history) if graph is not None]
        self._nothing = _nothing(entry for graph in graphs for entry in graph.get_inputs())
        self._no_memory = {name: self._nothing[name] for name in self._remembers}
        self._no_states = np.full((1, self.vocab_size), FORBIDDEN, dtype=np.uint8)
        try:
            self._start = self.append([BOS], self._nothing)
        except Exception as error:  # the library has no common exception for inputs that do not fit
            raise UserError(
                f"the graphs in `{folder}` do not fit the manifest's section `model` ({error!r})",
                code="bad-graph",
                hint="make the bundle again",
            ) from error

    def start(self) -> SessionState:
        """See `Engine.start`: computed once, when the engine is made."""
        return self._start

    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        if self._history is not None and list(tokens) == [BOS] and state["session_keys"].shape[2]:
            state = self._nothing | _run(self._history, state)
        query: dict[str, NDArray[Any]] = {"tokens": np.asarray(tokens, dtype=np.int64), "embedded": self._embed(tokens)}
        return {**state, **_run(self._encode, {**state, **query})}

    def search(
        self,
        state: SessionState,
        constraint: Constraint,
        *,
        beam: int,
        max_steps: int,
        floor: float = NO_FLOOR,
        call: Call | None = None,
    ) -> Hypotheses:
        """See `Engine.search`."""
        feeds = {
            **{name: state[name] for name in self._remembers},
            "start_tokens": constraint.start_tokens,
            "next_state": constraint.next_state,
            "start_state": np.array([constraint.start_state], dtype=np.int64),
            "beam": np.array([beam], dtype=np.int64),
            "max_steps": np.array(max_steps, dtype=np.int64),
            "floor": np.array(floor, dtype=np.float32),
        }
        names = ["tokens", "scores", "mass"]
        tokens, scores, mass = self._suggest.run(names, feeds) if call is None else self._run_until(call, names, feeds)
        return Hypotheses(tokens, scores, float(mass))

    def _embed(self, tokens: Sequence[int]) -> Floats:
        """Embeddings [t, d]: the table is in the search's graph alone, which gives them before its first step."""
        feeds = {
            **self._no_memory,
            "start_tokens": np.asarray(tokens, dtype=np.int64),
            "next_state": self._no_states,
            "start_state": np.array([0], dtype=np.int64),
            "beam": np.array([1], dtype=np.int64),
            "max_steps": np.array(0, dtype=np.int64),
            "floor": np.array(0, dtype=np.float32),
        }
        embedded: Floats = self._suggest.run(["embedded"], feeds)[0]
        return embedded

    def _run_until(self, call: Call, names: list[str], feeds: dict[str, Any]) -> Any:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = _FATAL  # a run that was ended on purpose is no news
        call.attach(lambda: setattr(options, "terminate", True))
        try:
            call.check()
            return self._suggest.run(names, feeds, options)
        except CallEndedError:
            raise
        except Exception:  # the library has no exception of its own for a run that was ended
            call.check()
            raise
        finally:
            call.detach()


def _run(graph: Any, values: SessionState) -> dict[str, NDArray[Any]]:
    """The parts of a session's state that `graph` makes of `values`, of which it takes what it needs."""
    written = [entry.name for entry in graph.get_outputs()]
    made = graph.run(written, {entry.name: values[entry.name] for entry in graph.get_inputs()})
    return {name.removeprefix(NEW): array for name, array in zip(written, made, strict=True)}


def _nothing(inputs: Iterable[Any]) -> dict[str, NDArray[Any]]:
    """The state before the start query: zeros, none of them along a dynamic axis."""
    return {
        entry.name: np.zeros([side if isinstance(side, int) else 0 for side in entry.shape], dtype=_DTYPES[entry.type])
        for entry in inputs
        if entry.name.startswith(("session_", "memory_"))
    }


def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = False  # half a megabyte less, and no slower
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
