"""A checkpoint as an `Engine`: the same calls as a bundle answers, on PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.decoding.prefix_constraint import Constraint
from mtn_edge.models.layers import KeysValues
from mtn_edge.models.mtn import MTN, SessionCache
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import NO_FLOOR, Floats, Hypotheses, SessionState
from mtn_edge.tokenizer import BOS


class TorchEngine:
    """A network in evaluation mode, on the CPU in float32 (see `runtime.engine.Engine`)."""

    def __init__(self, model: MTN) -> None:
        self.vocab_size = model.embedding.num_embeddings
        self.max_tokens, self.max_queries = model.max_tokens, model.max_queries
        self._model = model
        with torch.inference_mode():
            self._start = _to_state(model.append(torch.tensor([BOS]), model.start()))

    def start(self) -> SessionState:
        """See `Engine.start`."""
        return self._start

    @torch.inference_mode()
    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        return _to_state(self._model.append(torch.tensor(tokens), _to_cache(state)))

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
        """See `Engine.search`; the call is looked at between steps."""
        memory = _to_cache(state).memory
        tokens, scores, mass = beam_search(
            self._model, memory, constraint, beam=beam, max_steps=max_steps, floor=floor, call=call
        )
        return Hypotheses(tokens.numpy(), scores.numpy(), mass)


def _to_state(cache: SessionCache) -> SessionState:
    return SessionState(*_stack(cache.session), *_stack(cache.memory))


def _to_cache(state: SessionState) -> SessionCache:
    return SessionCache(
        _unstack(state.session_keys, state.session_values), _unstack(state.memory_keys, state.memory_values)
    )


def _stack(layers: list[KeysValues]) -> tuple[Floats, Floats]:
    """[1, h, t, e] for each layer to [layers, h, t, e]."""
    keys, values = (torch.cat(part).numpy() for part in zip(*layers, strict=True))
    return keys, values


def _unstack(keys: Floats, values: Floats) -> list[KeysValues]:
    """The inverse of `_stack`."""
    layers = zip(torch.from_numpy(keys), torch.from_numpy(values), strict=True)
    return [(layer_keys[None], layer_values[None]) for layer_keys, layer_values in layers]
