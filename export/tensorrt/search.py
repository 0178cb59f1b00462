"""The search engine's network: the whole constrained beam search for a batch of key presses, its steps unrolled.

`mtn_edge.decoding.beam_search` is its reference, hypothesis by hypothesis. All shapes but the batch, the memory, the
settled tokens and the states are fixed: every slot of the beam is computed at every step, and one that has ended keeps
its place and score. Keys and values of all tokens written so far are kept once, in the order of their birth, and a
bound on attention shows each hypothesis its own alone: nothing but a few numbers is ever reordered.

Shapes: B key presses, k slots of the beam, F settled tokens of the longest one with `<bos>`, r rows decoded at once
(F, then k), N tokens decoded so far, M tokens of the memory, S states, L decoder layers with weights of their own, d
width, h heads, e width of a head, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.tensorrt.blocks import at, attend, before, bound, memory_block, queries_keys_values
from mtn_edge.models.layers import DecoderLayer, KeysValues, SelfAttention, add, join_heads
from mtn_edge.models.mtn import MTN
from mtn_edge.runtime.engine import IMPOSSIBLE
from mtn_edge.tokenizer import EOS, PAD

INPUTS = (
    *("memory_keys", "memory_values", "memory_bias", "memory_state"),
    *("start_tokens", "next_state", "start_state", "max_steps", "floor"),
)
OUTPUTS = ("tokens", "scores", "mass")
_CONTEXT = 2
"""Tokens before the last one that its embedding looks at."""


class _Memory(NamedTuple):
    """What is read of the sessions."""

    keys: Tensor
    """[B, L, h, M, e]."""
    values: Tensor
    """[B, L, h, M, e]."""
    bias: Tensor
    """[B, h, 1, M]."""
    state: Tensor
    """[B, 1, d]."""


class _Settled(NamedTuple):
    """The settled tokens, decoded."""

    state: Tensor
    """[B, 1, d] the decoder's state at the last one."""
    nodes: list[KeysValues]
    """Keys and values [B, h, F, e] of each layer that was run."""
    ends: Tensor
    """[B, 2] the last two tokens, `<pad>` before `<bos>`."""
    length: Tensor
    """[B, 1] how many there are."""
    hidden: Tensor
    """[B, 1, F] bound on attention to them."""


class _Beam(NamedTuple):
    """The hypotheses after a step."""

    written: Tensor
    """[B, k, 2 + steps] the last two settled tokens, and what the search wrote; `<pad>` after the end."""
    scores: Tensor
    """[B, k] float32."""
    states: Tensor
    """[B, k] of the constraint."""


class SearchNetwork(nn.Module):
    """Searches with a beam of fixed width and a fixed number of steps.

    Args:
        model: an MTN of two levels whose decoder has self-attention, in evaluation mode.
        beam: hypotheses, k.
        steps: tokens written at most, with `<eos>`.
    """

    def __init__(self, model: MTN, *, beam: int, steps: int) -> None:
        super().__init__()
        self.model, self.beam, self.steps = model, beam, steps
        self.scores = nn.Linear(model.d_model, model.embedding.num_embeddings, bias=False)
        self.scores.weight = model.embedding.weight

    def forward(
        self,
        memory_keys: Tensor,
        memory_values: Tensor,
        memory_bias: Tensor,
        memory_state: Tensor,
        start_tokens: Tensor,
        next_state: Tensor,
        start_state: Tensor,
        max_steps: Tensor,
        floor: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Searches for a batch.

        Args:
            memory_keys: [B, L, h, M, e], with the three that follow from `EncoderNetwork`.
            memory_values: [B, L, h, M, e].
            memory_bias: [B, h, M].
            memory_state: [B, d].
            start_tokens: int64 [B, F] `<bos>` and the settled tokens, padded with `<pad>` at the end.
            next_state: uint8 [B, S, V] the state after each token and 1; 0 where it may not come.
            start_state: int64 [B].
            max_steps: int64 [B] tokens written at most, 1 or more.
            floor: float32 [B] log-probability, relative to the mass, at which a hypothesis is given up.

        Returns:
            Tokens int64 [B, k, steps], scores float32 [B, k], best first, and the mass float32 [B].
        """
        memory = _Memory(memory_keys, memory_values, memory_bias[:, :, None], memory_state[:, None])
        settled = self._settle(start_tokens, memory)
        table = next_state.to(torch.int32)  # [B, S, V]
        beam, mass = self._begin(settled, table, start_state[:, None])
        itself = bound(torch.eye(self.beam, dtype=torch.bool, device=floor.device), memory_state.dtype)[None]
        itself = itself.expand(floor.shape[0], -1, -1)  # [B, k, k]
        hidden = torch.cat([settled.hidden.expand(-1, self.beam, -1), itself], dim=2)  # [B, k, N]
        nodes = settled.nodes
        for step in range(1, self.steps):
            # Only what has not ended and can still be shown goes on.
            hopeful = (beam.scores > (mass + floor)[:, None]) & (max_steps > step)[:, None]
            alive = (beam.written[:, :, -1] > EOS) & hopeful  # [B, k]
            x = self._embed(beam.written, settled.length + (step - 1), memory.state)
            states, nodes = self._decode(x, nodes, hidden[:, None], memory)
            beam, parent = self._choose(beam, alive, states, table)
            hidden = torch.cat([_rows(hidden, parent), itself], dim=2)
        return beam.written[:, :, _CONTEXT:], beam.scores, mass

    def _settle(self, start_tokens: Tensor, memory: _Memory) -> _Settled:
        """Decodes the settled tokens [B, F] in one pass."""
        f = start_tokens.shape[1]
        real = start_tokens != PAD
        length = real.sum(dim=1, keepdim=True)  # [B, 1]
        padded = F.pad(start_tokens, (_CONTEXT, 0), value=PAD)
        windows = torch.stack([padded[:, start : start + f] for start in range(_CONTEXT + 1)], dim=2)  # [B, F, 3]
        place = torch.arange(f, device=start_tokens.device)
        causal = bound(place[:, None] >= place, memory.state.dtype)  # [F, F]
        x = self._embed(windows, place, memory.state)
        states, nodes = self._decode(x, None, causal, memory)
        tip = length[:, 0] - 1
        ends = at(windows, tip)[:, 1:]
        return _Settled(at(states, tip)[:, None], nodes, ends, length, bound(real, x.dtype)[:, None])

    def _embed(self, written: Tensor, places: Tensor, state: Tensor) -> Tensor:
        """What the decoder reads of the last tokens of `written` [B, r, 3 or more] at `places` [B or 1, r or 1]."""
        model = self.model
        convolution = cast(nn.Linear, model.decoder_convolution)
        last, *earlier = (written[:, :, -back] for back in range(1, _CONTEXT + 2))
        context = torch.cat([self._scaled(tokens) * _is_token(tokens, state) for tokens in earlier], dim=2)
        places = places.clamp(max=model.decoder_positions.num_embeddings - 1)
        return self._scaled(last) + model.decoder_positions(places) + state + convolution(context)  # type: ignore[no-any-return]

    def _scaled(self, tokens: Tensor) -> Tensor:
        return self.model.embedding(tokens) * math.sqrt(self.model.d_model)  # type: ignore[no-any-return]

    def _decode(
        self, x: Tensor, nodes: list[KeysValues] | None, hidden: Tensor, memory: _Memory
    ) -> tuple[Tensor, list[KeysValues]]:
        """The decoder on [B, r, d].

        Args:
            x: what `_embed` gave.
            nodes: keys and values [B, h, N, e] of what was decoded before, for each layer that is run; None for
                nothing.
            hidden: broadcast to [B, h, r, N + r], added to the scores of self-attention.
            memory: of the sessions.

        Returns:
            States [B, r, d], and `nodes` with those of `x`.
        """
        layers = [cast(DecoderLayer, layer) for layer in self.model.decoder_layers]
        grown: list[KeysValues] = []
        for run in range(self.model.decoder_runs):
            number = run % len(layers)
            layer = layers[number]
            attention = cast(SelfAttention, layer.attention)
            query, keys, values = queries_keys_values(attention, before(layer, layer.attention_norm, x))
            if nodes is not None:
                keys, values = (torch.cat(pair, dim=2) for pair in zip(nodes[run], (keys, values), strict=True))
            grown.append((keys, values))
            mixed = attention.out(join_heads(attend(query, keys, values, hidden)))
            x = add(x, mixed, layer.attention_norm, layer.norm)
            x = memory_block(layer, x, memory.keys[:, number], memory.values[:, number], memory.bias)
        return self.model.decoder_norm(x), grown

    def _allowed(self, states: Tensor, table: Tensor, at_states: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B, r, V] of what may come after decoder states [B, r, d], and the rows of the table."""
        b, s, v = table.shape
        row = at_states + torch.arange(b, device=table.device)[:, None] * s  # [B, r]
        entries = table.reshape(b * s, v).index_select(0, row.flatten()).reshape(b, -1, v)
        log_probs = torch.log_softmax(self.scores(states).float(), dim=-1)
        return torch.where(entries == 0, IMPOSSIBLE, log_probs), entries

    def _begin(self, settled: _Settled, table: Tensor, start_state: Tensor) -> tuple[_Beam, Tensor]:
        """The first step, which one hypothesis takes, and the mass [B]."""
        allowed, entries = self._allowed(settled.state, table, start_state)  # [B, 1, V]
        best, choice = allowed.topk(self.beam)  # [B, 1, k]
        written = torch.cat([settled.ends[:, None].expand(-1, self.beam, -1), choice.transpose(1, 2)], dim=2)
        beam = _Beam(written, best[:, 0], _next_states(entries, choice)[:, 0])
        largest = best[:, 0, 0]
        return beam, largest + (allowed[:, 0] - largest[:, None]).exp().sum(dim=1).log()

    def _choose(self, beam: _Beam, alive: Tensor, states: Tensor, table: Tensor) -> tuple[_Beam, Tensor]:
        """One more token for what is `alive`; the best of all stay. Also the slot [B, k] that each one comes from."""
        allowed, entries = self._allowed(states, table, beam.states)  # [B, k, V]
        best, choice = allowed.topk(self.beam)  # [B, k, k]
        on = alive[:, :, None]
        # What does not go on is its own only candidate.
        rest = torch.full((self.beam,), IMPOSSIBLE, device=best.device)
        rest = torch.cat([torch.zeros_like(rest[:1]), rest[1:]])
        candidates = beam.scores[:, :, None] + torch.where(on, best, rest)
        scores, place = candidates.flatten(1).topk(self.beam)  # [B, k] of [B, k * k]
        tokens = torch.where(on, choice, PAD).flatten(1).gather(1, place)
        next_states = _next_states(entries, choice).flatten(1).gather(1, place)
        parent = place // self.beam
        written = torch.cat([_rows(beam.written, parent), tokens[:, :, None]], dim=2)
        return _Beam(written, scores, next_states), parent


def _next_states(entries: Tensor, choice: Tensor) -> Tensor:
    """The state after each chosen token, int64; where it is forbidden, any state."""
    return (entries.gather(2, choice).long() - 1).clamp(min=0)


def _is_token(tokens: Tensor, like: Tensor) -> Tensor:
    """[B, r] to [B, r, 1]: 1, or 0 for `<pad>`."""
    return (tokens != PAD).to(like.dtype)[:, :, None]


def _rows(x: Tensor, parent: Tensor) -> Tensor:
    """[B, k, n] with row `parent` [B, k] at each place."""
    return torch.gather(x, 1, parent[:, :, None].expand(-1, -1, x.shape[2]))
