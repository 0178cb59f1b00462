"""Beam search under a constraint: the reference that `suggest.onnx` must equal, hypothesis by hypothesis.

A hypothesis starts from the settled tokens. At each step each live one is continued by its best allowed tokens, and the
best of all stay. A hypothesis that ended with `<eos>` keeps its place and score and costs nothing more; so does one
whose probability fell below the floor, for it can only fall further. The score is the sum of the log-probabilities of
the tokens after the settled ones: no length normalisation here.

Shapes: B hypotheses, n of them live, k = B tokens tried for each, S states, v vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtn_edge.decoding.mixture import Mixture
from mtn_edge.decoding.prefix_constraint import Constraint
from mtn_edge.models.build import Network
from mtn_edge.models.fusion import Sources
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import IMPOSSIBLE
from mtn_edge.tokenizer import EOS, PAD


@torch.inference_mode()
def beam_search(
    model: Network,
    memory: dict[str, Tensor],
    constraint: Constraint,
    *,
    beam: int,
    max_steps: int,
    floor: float,
    sources: Sources | None = None,
    call: Call | None = None,
) -> tuple[Tensor, Tensor, float]:
    """The best token sequences that the constraint accepts.

    Args:
        model: the network, in evaluation mode.
        memory: `SessionCache.memory` of the session, and with fusion its text: `memory_text` [t], the tokens of its
            queries, each between `<bos>` and `<eos>`.
        constraint: see `decoding.prefix_constraint`.
        beam: hypotheses kept at each step, at most v.
        max_steps: tokens written at most, with `<eos>`; with the settled ones at most `max_tokens + 1` of the model.
        floor: log-probability, relative to the mass, at which a hypothesis is given up.
        sources: what the network is mixed with.
        call: asked between steps whether to go on.

    Returns:
        Tokens [B, steps] (with `<eos>`, then `<pad>`), scores [B], best first, and the mass: the log-probability of all
        tokens that the first step allows. The caller drops rows without `<eos>` and dead ones.

    Raises:
        CallEndedError: the call was ended from outside.
    """
    table = torch.from_numpy(constraint.next_state).long() - 1  # [S, v] the next state, negative where forbidden
    bound = torch.where(table < 0, IMPOSSIBLE, 0.0)
    mixture = Mixture(model, sources, memory.get("memory_text", torch.zeros(0, dtype=torch.long)))
    outputs, past = _settle(model, memory, constraint)
    ends = mixture.start(constraint.start_tokens.tolist())
    position = len(constraint.start_tokens)
    tokens = torch.empty(beam, 0, dtype=torch.long)
    scores = torch.full((beam,), IMPOSSIBLE)
    live, live_scores, states = torch.tensor([0]), torch.zeros(1), torch.tensor([constraint.start_state])
    mass = 0.0
    for step in range(max_steps):
        if call is not None:
            call.check()
        log_probs = torch.minimum(mixture.log_probs(outputs, ends), bound[states])  # [n, v]
        if step == 0:
            mass = float(log_probs[0].logsumexp(dim=0))
        best, choice = log_probs.topk(beam)  # [n, k]
        candidates, picks = torch.full((beam, beam), IMPOSSIBLE), torch.full((beam, beam), PAD)
        candidates[:, 0] = scores
        candidates[live], picks[live] = live_scores[:, None] + best, choice

        scores, place = candidates.flatten().topk(beam)  # [B] of [B * k]
        parent, last = place // beam, picks.flatten()[place]
        tokens = torch.cat([tokens[parent], last[:, None]], dim=1)
        alive = (last > EOS) & (scores > mass + floor)
        if not bool(alive.any()) or step + 1 == max_steps:
            break
        rows = torch.searchsorted(live, parent[alive])
        live, live_scores, states = alive.nonzero()[:, 0], scores[alive], table[states[rows], last[alive]]
        ends = mixture.advance(ends, rows, last[alive])
        outputs, past = model.step(last[alive], position + step, memory, [x[rows] for x in past])
    return tokens, scores, mass


def _settle(model: Network, memory: dict[str, Tensor], constraint: Constraint) -> tuple[Tensor, list[Tensor]]:
    """The state [1, w] before the first token to write, and what the decoder keeps of the settled ones."""
    outputs, past = torch.empty(0), None
    for position, token in enumerate(constraint.start_tokens.tolist()):
        outputs, past = model.step(torch.tensor([token]), position, memory, past)
    assert past is not None
    return outputs, past
