"""A checkpoint as an `Engine`: the same calls as a bundle answers, on PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.models.layers import KeysValues
from mtn_edge.models.mtn import MTN, SessionCache
from mtn_edge.runtime.engine import Floats, SessionState
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
        next_state: NDArray[np.int32],
        start_state: int,
        *,
        beam: int,
        max_steps: int,
        deadline: float | None = None,
    ) -> tuple[NDArray[np.int64], Floats]:
        """See `Engine.search`; the deadline is looked at between steps."""
        memory = _to_cache(state).memory
        tokens, scores = beam_search(
            self._model, memory, next_state, start_state, beam=beam, max_steps=max_steps, deadline=deadline
        )
        return tokens.numpy(), scores.numpy()


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
