"""Inputs and outputs of the graphs of a model: what every runtime relies on."""

from __future__ import annotations

from typing import Any, NamedTuple

from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, memory_heads, stacks

Shape = list[int | str]
Port = tuple[str, Shape]
"""Element type as ONNX Runtime names it, and shape; a text is a dynamic axis."""
REAL, WHOLE, BYTE = "tensor(float)", "tensor(int64)", "tensor(uint8)"


class Part(NamedTuple):
    """A part of a session's state."""

    shape: Shape
    """Before a query of t tokens; a dynamic axis has length 0 before the start query."""
    new_shape: Shape | None
    """After it; None where a query leaves it alone."""
    is_read: bool
    """Whether `encode.onnx` needs it."""
    element: str = REAL


def state_parts(model: dict[str, Any]) -> dict[str, Part]:
    """What `encode.onnx` and `suggest.onnx` know of a session by name, for the `model` section of a manifest.

    Letters: q queries so far with the start query, m tokens of the memory, n tokens that are encoded anew.
    """
    copied = {"memory_text": Part(["text"], ["new_text"], True, WHOLE)} if _copies(model) else {}
    return _network_parts(model) | copied


def _copies(model: dict[str, Any]) -> bool:
    return model["fusion"] in ("copy", "all")


def _network_parts(model: dict[str, Any]) -> dict[str, Part]:
    match model["arch"]:
        case "mtn":
            return _mtn(model)
        case "transformer":
            return _transformer(model)
        case "seq2seq":
            units = model["units"]
            return {
                "session_hidden": Part([units], [units], True),
                "memory_keys": Part(["m", units], ["m + t + 1", units], True),
                "memory_hidden": Part([units], [units], False),
            }
        case "hred":
            units, d = model["units"], model["d_model"]
            return {
                "session_hidden": Part([units], [units], True),
                "memory_hidden": Part([units], [units], False),
                "memory_context": Part([d], [d], False),
            }
        case "tail-lstm":
            d = model["d_model"]
            return {"memory_context": Part([d], [d], False)}
    raise ValueError(f"no architecture `{model['arch']}`")


def contract(model: dict[str, Any]) -> dict[str, dict[str, Port]]:
    """Inputs and outputs of every graph by name, for the `model` section of a manifest."""
    parts = state_parts(model)
    d, v = model["d_model"], model["vocab_size"]
    history: dict[str, Port] = {
        "session_earlier": (REAL, ["s", d]),
        "session_summary": (REAL, [d]),
        "new_session_earlier": (REAL, ["s'", d]),
        "new_session_history": (REAL, [d]),
    }
    return {
        **({"history.onnx": history} if model["levels"] == 3 else {}),
        "encode.onnx": {
            **({"tokens": (WHOLE, ["t"])} if _copies(model) else {}),
            "embedded": (REAL, ["t", d]),
            **{name: (part.element, part.shape) for name, part in parts.items() if part.is_read},
            **{
                f"new_{name}": (part.element, part.new_shape)
                for name, part in parts.items()
                if part.new_shape is not None
            },
        },
        "suggest.onnx": {
            **{name: (part.element, part.shape) for name, part in parts.items() if name.startswith("memory_")},
            "start_tokens": (WHOLE, ["f"]),
            "next_state": (BYTE, ["S", v]),
            "start_state": (WHOLE, [1]),
            "beam": (WHOLE, [1]),
            "max_steps": (WHOLE, []),
            "floor": (REAL, []),
            "tokens": (WHOLE, ["beam", "steps"]),
            "scores": (REAL, ["beam"]),
            "mass": (REAL, []),
            "embedded": (REAL, ["f", d]),
        },
    }


def _mtn(model: dict[str, Any]) -> dict[str, Part]:
    config = ModelConfig(**model)
    e, layers, decoders = head_width(config), config.session_layers, config.decoder_weights
    own, cross = stacks(config)["session"][0].heads, memory_heads(config)
    session = Part([layers, own, "q", e], [layers, own, "q + 1", e], True)
    memory = Part([decoders, cross, "m", e], [decoders, cross, "m + t", e], config.memory == "all")
    parts = {"session_keys": session, "session_values": session, "memory_keys": memory, "memory_values": memory}
    parts["memory_state"] = Part([model["d_model"]], [model["d_model"]], False)
    if model["memory"] == "all":
        parts["memory_query"] = Part(["m"], ["m + t"], True)
    return parts | (_history(model) if model["levels"] == 3 else {})


def _history(model: dict[str, Any]) -> dict[str, Part]:
    d = model["d_model"]
    return {"session_summary": Part([d], [d], True), "session_history": Part([d], None, True)}


def _transformer(model: dict[str, Any]) -> dict[str, Part]:
    config = ModelConfig(**model)
    d, e, shape = config.d_model, head_width(config), [config.decoder_layers, memory_heads(config)]
    memory = Part([*shape, "m", e], [*shape, "n", e], False)
    return {"session_embedded": Part(["m", d], ["n", d], True), "memory_keys": memory, "memory_values": memory}
