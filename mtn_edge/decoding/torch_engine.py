"""A checkpoint as an `Engine`: the same calls as a bundle answers, on PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.decoding.prefix_constraint import Constraint
from mtn_edge.models.build import Network
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import NO_FLOOR, Hypotheses, SessionState
from mtn_edge.tokenizer import BOS


class TorchEngine:
    """A network in evaluation mode, on the CPU in float32 (see `runtime.engine.Engine`)."""

    def __init__(self, model: Network) -> None:
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
    return {name: tensor.numpy() for name, tensor in (cache.session | cache.memory).items()}


def _to_cache(state: SessionState) -> SessionCache:
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    session = {name: tensor for name, tensor in tensors.items() if name.startswith("session_")}
    return SessionCache(session, {name: tensor for name, tensor in tensors.items() if name not in session})
