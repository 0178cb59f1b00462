"""The distribution after each hypothesis of a search: the network's, or the mixture of `mtn_edge.models.fusion`.

Shapes: n hypotheses, w width of a state, v vocabulary, t tokens of the session's text, k tokens that are offered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mtn_edge.models.build import Network
from mtn_edge.models.fusion import Copies, NgramEvidence, Offer, Sources, copy_offer, fuse
from mtn_edge.tokenizer import PAD


class Ends(NamedTuple):
    """How hypotheses end: all that the sources beside the network look at."""

    last: Tensor
    """[n] the last token."""
    before: Tensor
    """[n] the token before, `<pad>` after `<bos>`."""
    contexts: NDArray[np.int64]
    """[n, order - 1] of the n-gram; no columns without one."""


class Mixture:
    """What comes next after hypotheses of one session.

    Args:
        model: the network.
        sources: what it is mixed with; None for nothing.
        text: [t] the session's earlier queries, each between `<bos>` and `<eos>`.
    """

    def __init__(self, model: Network, sources: Sources | None, text: Tensor) -> None:
        self._model, self._text = model, text
        self._gate = sources.gate if sources is not None else None
        self._ngram = sources.ngram if sources is not None else None

    def start(self, tokens: list[int]) -> Ends:
        """The end of the settled tokens, of which the first is `<bos>`: [1]."""
        ends = Ends(torch.tensor(tokens[:1]), torch.tensor([PAD]), self._first())
        for token in tokens[1:]:
            ends = self.advance(ends, torch.tensor([0]), torch.tensor([token]))
        return ends

    def advance(self, ends: Ends, rows: Tensor, tokens: Tensor) -> Ends:
        """The ends of hypotheses that add `tokens` [n'] to those of numbers `rows` [n']."""
        contexts = ends.contexts[rows.numpy()]
        if self._ngram is not None:
            contexts = self._ngram.advance(contexts, tokens.numpy())
        return Ends(tokens, ends.last[rows], contexts)

    def log_probs(self, states: Tensor, ends: Ends) -> Tensor:
        """[n, v] from the decoder's states [n, w]."""
        log_probs = self._model.logits(states).log_softmax(dim=1)
        gate = self._gate
        if gate is None:
            return log_probs
        offered: list[tuple[Tensor, Tensor]] = []
        ngram, copies, left = None, None, torch.ones(len(states))
        if gate.has_ngram:
            assert self._ngram is not None
            tokens, shares, left, matched = map(torch.from_numpy, self._ngram.entries(ends.contexts))
            offered.append((tokens, shares))
            ngram = NgramEvidence(shares, left, matched, F.pad(shares, (0, 1)).amax(dim=1))
        if gate.has_copies:
            shares, places = copy_offer(self._text, ends.last, ends.before)  # [n, 3, t], [n, 3]
            offered += [(self._text.expand(len(states), -1), part) for part in shares.unbind(1)]
            copies = Copies(shares, places)
        weights = gate(states, log_probs.amax(dim=1), ngram, copies)  # [n, s]
        network = weights[:, 0]
        if gate.has_ngram:
            network = torch.logaddexp(network, weights[:, 1] + left.log())
        others = weights[:, 1:].exp().unbind(1)
        values = [weight[:, None] * share for weight, (_, share) in zip(others, offered, strict=True)]
        tokens = torch.cat([tokens for tokens, _ in offered], dim=1)
        return fuse(log_probs, Offer(tokens, torch.cat(values, dim=1), network))

    def _first(self) -> NDArray[np.int64]:
        return self._ngram.start if self._ngram is not None else np.zeros((1, 0), np.int64)
