"""Fusion: the network's distribution, an n-gram's and three ways of copying, mixed token by token by a learned gate.

After the tokens of a hypothesis the next one is w with the probability

    p(w) = g_model p_model(w) + g_ngram (S(w) + L p_model(w)) + sum over l of g_copy_l C_l(w)

S are the n-gram's shares in the tokens that followed the last one, two or three tokens in the log, and L what is left
(`NGram.evidence`): the network stands in for the n-gram's shortest context, so that everything but the network is
sparse. C_l, l = 0, 1, 2, are the tokens of the session's earlier queries whose l tokens before equal the last l of the
hypothesis, each with its share. The weights g come from a softmax of a linear map of how sure each source is, and of
the decoder's state; a source that has nothing to say gets none. (After pointer networks, See et al. 2017 equation 9,
and the neural mixtures of n-grams, Neubig and Dyer 2016.)

Shapes: n tokens to predict, or hypotheses, w width of a state, v vocabulary, t tokens of a session's text, b sessions,
q queries, u tokens of a predicted query, s sources.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import Fusion, ModelConfig
from mtn_edge.ngram.model import NGram
from mtn_edge.tokenizer import BOS, EOS, PAD

ORDERS = 4
"""How many orders of the n-gram may know a context: none, and orders 2, 3 and 4."""
COPIES = 3
"""Copying after no, one and two equal tokens."""


class NgramEvidence(NamedTuple):
    """What the n-gram says about one token each."""

    share: Tensor
    """[n] S of the token."""
    left: Tensor
    """[n] L."""
    matched: Tensor
    """[n] int64: how many orders know the context."""
    top: Tensor
    """[n] the largest share of any token there."""


class Copies(NamedTuple):
    """Where a session's text can be copied from."""

    share: Tensor
    """[..., l] the share of a token among what followed, for each length of the match."""
    places: Tensor
    """[..., l] how many places matched."""


class Gate(nn.Module):
    """The weights of the sources, named in `names`.

    Args:
        width: of the decoder's states.
        fusion: which sources there are.
    """

    def __init__(self, width: int, fusion: Fusion) -> None:
        super().__init__()
        self.has_ngram, self.has_copies = fusion in ("ngram", "all"), fusion in ("copy", "all")
        self.names = ["network", *["ngram"] * self.has_ngram]
        self.names += [f"copy_{length}" for length in range(COPIES * self.has_copies)]
        features = 2 + (ORDERS + 2) * self.has_ngram + COPIES * self.has_copies
        self.linear = nn.Linear(width + features, len(self.names))
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        with torch.no_grad():
            self.linear.bias[0] = 1.0  # the network is the only source that always speaks

    def forward(self, states: Tensor, top: Tensor, ngram: NgramEvidence | None, copies: Copies | None) -> Tensor:
        """Log of the weights [n, s]: the network's, the n-gram's, those of copying after 0, 1, 2 equal tokens.

        Args:
            states: [n, w] decoder states.
            top: [n] the log-probability of the network's best token.
            ngram: what the n-gram knows; only with that source.
            copies: what matches; only with that source.
        """
        parts = [states, top[:, None], top.exp()[:, None]]
        silent = [torch.zeros_like(states[:, :1], dtype=torch.bool)]
        if self.has_ngram:
            assert ngram is not None
            parts += [F.one_hot(ngram.matched, ORDERS).to(states.dtype), ngram.left[:, None], ngram.top[:, None]]
            silent.append(torch.zeros_like(silent[0]))
        if self.has_copies:
            assert copies is not None
            parts.append(torch.log1p(copies.places))
            silent.append(copies.places == 0)
        scores = self.linear(torch.cat(parts, dim=1)).masked_fill(torch.cat(silent, dim=1), -torch.inf)
        return scores.log_softmax(dim=1)  # type: ignore[no-any-return]


class Sources(NamedTuple):
    """What a network is mixed with."""

    gate: Gate
    ngram: NGram | None


def make_gate(config: ModelConfig) -> Gate:
    """A gate that prefers the network, for the network of `config`."""
    return Gate(config.units if config.arch == "tail-lstm" else config.d_model, config.fusion)


def mixed(
    gate: Gate, states: Tensor, top: Tensor, log_probs: Tensor, ngram: NgramEvidence | None, copies: Copies | None
) -> Tensor:
    """Log p [n] of one token each.

    Args:
        gate: the weights.
        states: [n, w] decoder states.
        top: [n] the log-probability of the network's best token.
        log_probs: [n] the network's log-probabilities of those tokens.
        ngram: what the n-gram says about them.
        copies: what the session offers of them.
    """
    weights = gate(states, top, ngram, copies)
    network, extra = weights[:, 0], torch.zeros_like(log_probs)
    place = 1
    if ngram is not None:
        network = torch.logaddexp(network, weights[:, 1] + ngram.left.clamp(min=_TINY).log())
        extra = weights[:, 1].exp() * ngram.share
        place = 2
    if copies is not None:
        extra = extra + (weights[:, place:].exp() * copies.share).sum(dim=1)
    return torch.logaddexp(network + log_probs, extra.clamp(min=_TINY).log())


_TINY = 1e-30


def copies_of_targets(source: Tensor, target_in: Tensor, target_out: Tensor) -> Copies:
    """What each session offers of the tokens to predict, from its earlier queries alone: [n, 3], for every token of
    `target_in` that is no padding, in order.

    Args:
        source: [b, q, t] tokens of the start query and of q_1 to q_(r-1).
        target_in: [b, q, u] `<bos>` and tokens of q_1 to q_r.
        target_out: [b, q, u] those tokens and `<eos>`.
    """
    text = _text(source)  # [b, k]
    written = target_in != PAD
    row, query, place = written.nonzero(as_tuple=True)
    last = target_in[written]
    before = torch.where(place > 0, target_in[row, query, (place - 1).clamp(min=0)], PAD)
    earlier = (text.query[None] <= query[:, None]) & text.offered[row]  # the start query has number 0
    matches = _matches(text.tokens[row], earlier, last, before)
    same = text.tokens[row] == target_out[written][:, None]
    return _shares(matches, same)


class _Text(NamedTuple):
    """Sessions as text: `<bos>`, tokens and `<eos>` of each query of `source`, padded."""

    tokens: Tensor
    """[b, k]."""
    query: Tensor
    """[k] the number of the query in `source`."""
    offered: Tensor
    """[b, k] whether the token can be copied: it is no `<bos>`, no padding, and the query is not the start query."""


def _text(source: Tensor) -> _Text:
    q, t = source.shape[1:]
    real = source != PAD  # [b, q, t]
    # <eos> follows the last token directly, so that what stands before a place is what was before it in the session.
    tokens = F.pad(source, (1, 1), value=PAD)  # [b, q, t + 2]
    tokens[:, :, 0] = torch.where(real[:, :, 0], BOS, PAD)
    end = real.sum(2, keepdim=True) + 1
    tokens.scatter_(2, end, torch.where(real[:, :, :1], EOS, PAD))
    offered = (tokens != PAD) & (tokens != BOS)
    offered[:, 0] = False
    query = torch.arange(q, device=source.device).repeat_interleave(t + 2)
    return _Text(tokens.flatten(1), query, offered.flatten(1))


def _matches(text: Tensor, offered: Tensor, last: Tensor, before: Tensor) -> Tensor:
    """Whether each place of a text follows the same 0, 1 and 2 tokens: [n, 3, k].

    Args:
        text: [n, k] the session of each.
        offered: [n, k] which places can be copied.
        last: [n] the last token.
        before: [n] the one before that, `<pad>` where there is none.
    """
    one = F.pad(text, (1, 0), value=PAD)[:, :-1] == last[:, None]
    two = one & (F.pad(text, (2, 0), value=PAD)[:, :-2] == before[:, None]) & (before != PAD)[:, None]
    return torch.stack([offered, offered & one, offered & two], dim=1)


def _shares(matches: Tensor, same: Tensor) -> Copies:
    """What share of the matching places [n, 3, k] hold the token that is asked for, of `same` [n, k]."""
    places = matches.sum(2).float()
    found = (matches & same[:, None]).sum(2).float()
    return Copies(found / places.clamp(min=1), places)


class Offer(NamedTuple):
    """What the sources beside the network say about all tokens, for each hypothesis: sparse, as places and values."""

    tokens: Tensor
    """[n, k] int64; a token may stand there several times, and its values are added."""
    values: Tensor
    """[n, k] what they add to its probability, weighted."""
    network: Tensor
    """[n] log of the network's weight."""


def fuse(log_probs: Tensor, offer: Offer) -> Tensor:
    """Log p of all tokens [n, v] from the network's log-probabilities [n, v]."""
    extra = torch.zeros_like(log_probs).scatter_add(1, offer.tokens, offer.values)
    mine = log_probs + offer.network[:, None]
    return torch.where(extra > 0, torch.logaddexp(mine, extra.clamp(min=_TINY).log()), mine)


def copy_offer(text: Tensor, last: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """The places of a session's text that each hypothesis may copy, by length of the match.

    Args:
        text: [t] the session's earlier queries, each between `<bos>` and `<eos>`.
        last: [n] the last token of each hypothesis.
        before: [n] the one before that, `<pad>` where there is none.

    Returns:
        Shares [n, 3, t] of the places, which sum to one where any matches, and how many match [n, 3].
    """
    n = len(last)
    matches = _matches(text.expand(n, -1), (text != BOS).expand(n, -1), last, before)
    places = matches.sum(2).float()
    return matches / places.clamp(min=1)[:, :, None], places
