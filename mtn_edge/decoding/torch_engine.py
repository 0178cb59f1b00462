"""A checkpoint as an `Engine`: the same calls as a bundle answers, on PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.decoding.prefix_constraint import Constraint
from mtn_edge.models.build import Network
from mtn_edge.models.fusion import Sources
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import NO_FLOOR, Hypotheses, SessionState
from mtn_edge.tokenizer import BOS, EOS


class TorchEngine:
    """A network in evaluation mode, on the CPU in float32 (see `runtime.engine.Engine`).

    Args:
        model: the network.
        sources: what it is mixed with; None for nothing.
    """

    def __init__(self, model: Network, sources: Sources | None = None) -> None:
        self.vocab_size = model.embedding.num_embeddings
        self.max_tokens, self.max_queries = model.max_tokens, model.max_queries
        self._model, self._sources = model, sources
        self._copies = sources is not None and sources.gate.has_copies
        with torch.inference_mode():
            self._start = self.append([BOS], _to_state(model.start()))

    def start(self) -> SessionState:
        """See `Engine.start`."""
        return self._start

    @torch.inference_mode()
    def append(self, tokens: Sequence[int], state: SessionState) -> SessionState:
        """See `Engine.append`."""
        after = _to_state(self._model.append(torch.tensor(tokens), _to_cache(state)))
        if not self._copies:
            return after
        if list(tokens) == [BOS]:  # nothing to copy, and what comes after it is a session of its own
            return {**after, "memory_text": np.zeros(0, np.int64)}
        return {**after, "memory_text": np.concatenate([state["memory_text"], [BOS, *tokens, EOS]])}

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
            self._model,
            memory,
            constraint,
            beam=beam,
            max_steps=max_steps,
            floor=floor,
            sources=self._sources,
            call=call,
        )
        return Hypotheses(tokens.numpy(), scores.numpy(), mass)


def _to_state(cache: SessionCache) -> SessionState:
    return {name: tensor.numpy() for name, tensor in (cache.session | cache.memory).items()}


def _to_cache(state: SessionState) -> SessionCache:
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    session = {name: tensor for name, tensor in tensors.items() if name.startswith("session_")}
    return SessionCache(session, {name: tensor for name, tensor in tensors.items() if name not in session})
