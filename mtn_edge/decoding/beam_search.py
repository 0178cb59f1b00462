"""Beam search under a state table, in PyTorch: the reference for the search that `suggest.onnx` holds as one loop.

The score of a hypothesis is log p(tokens | session), without length normalisation. A token that the table forbids has
log-probability -1e9; a hypothesis at or below -1e8 is dead, and a dead or finished one costs no further choice.

Shapes: n hypotheses of a step (1, then the beam), k tokens tried for each, v vocabulary, S states.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtn_edge.models.layers import KeysValues
from mtn_edge.models.mtn import MTN
from mtn_edge.runtime.engine import DEAD
from mtn_edge.tokenizer import BOS, EOS, PAD

IMPOSSIBLE = -1e9
"""Log-probability of a forbidden token."""


@torch.inference_mode()
def beam_search(
    model: MTN,
    memory: list[KeysValues],
    next_state: NDArray[np.int32],
    start_state: int,
    *,
    beam: int,
    max_steps: int,
    deadline: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The best token sequences that the table accepts.

    Args:
        model: the network, in evaluation mode.
        memory: `SessionCache.memory` of the session.
        next_state: [S, v] the state after each token, negative where it is forbidden.
        start_state: the state before the first token.
        beam: hypotheses kept at each step.
        max_steps: tokens written at most, with `<eos>`; at most `max_tokens + 1` of the model.
        deadline: the value of `time.monotonic` at which to give up.

    Returns:
        Tokens [beam, steps] (with `<eos>`, then `<pad>`) and scores [beam], best first. There are fewer rows only when
        so few sequences exist at all. The caller drops rows without `<eos>` and dead ones.

    Raises:
        TimeoutError: the deadline passed.
    """
    table = torch.from_numpy(next_state).long()
    tokens = torch.empty(1, 0, dtype=torch.long)
    last, state = torch.tensor([BOS]), torch.tensor([start_state])
    scores = torch.zeros(1)
    past: list[KeysValues] | None = None
    for position in range(max_steps):
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError
        logits, present = model.step(last, position, memory, past)
        log_probs = logits.log_softmax(dim=-1).masked_fill(table[state] < 0, IMPOSSIBLE)  # [n, v]
        best, choice = log_probs.topk(min(beam, log_probs.shape[1]))  # [n, k]
        candidates = scores[:, None] + best
        done = _done(last, scores)
        candidates[done], choice[done] = IMPOSSIBLE, PAD
        candidates[done, 0] = scores[done]

        scores, place = candidates.flatten().topk(min(beam, candidates.numel()))  # [beam] of [n * k]
        parent = place // candidates.shape[1]
        last = choice.flatten()[place]
        tokens = torch.cat([tokens[parent], last[:, None]], dim=1)
        state = table[state[parent], last]
        past = [(keys[parent], values[parent]) for keys, values in present]
        if bool(_done(last, scores).all()):
            break
    return tokens, scores


def _done(last: Tensor, scores: Tensor) -> Tensor:
    """Which hypotheses have ended or are dead (the first step's `<bos>` is neither)."""
    return (last == EOS) | (last == PAD) | (scores <= DEAD)
