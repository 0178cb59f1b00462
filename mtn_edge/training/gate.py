"""What a trained network is mixed with: the n-gram of the training queries, and a gate fitted on the validation split.

The gate is fitted after the network, on queries that neither the network nor the n-gram has learnt from. Fitted with
the network on the training split it trusts a network that knows its training queries by heart; on the validation split
it sees how sure each source may be. It has few weights: they are found by L-BFGS, and how far they may go is chosen by
two-fold cross-validation over the sessions.

Shapes: n tokens to predict, w width of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtn_edge.config import Config
from mtn_edge.data.batches import IGNORE, Batch, Batches, TokenizedSessions
from mtn_edge.data.dataset import Dataset
from mtn_edge.models.build import Network
from mtn_edge.models.fusion import Copies, Gate, NgramEvidence, Sources, copies_of_targets, make_gate, mixed
from mtn_edge.ngram.counting import count_files
from mtn_edge.ngram.model import NGram
from mtn_edge.ngram.pruning import fit
from mtn_edge.tokenizer import PAD, Tokenizer

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
"""Weights of the squared gate that are tried, in nats a token."""
QUERIES = 20_000
"""Queries of the validation split that the gate is fitted on, at most."""
_ITERATIONS = 100


class Scored(NamedTuple):
    """All that the gate needs to know about some tokens."""

    session: Tensor
    """[n] int64: the session of each."""
    states: Tensor
    """[n, w]."""
    top: Tensor
    """[n] the network's best log-probability."""
    log_probs: Tensor
    """[n] the network's of the token itself."""
    ngram: NgramEvidence | None
    copies: Copies | None


def count_ngram(
    data: Dataset, tokenizer: Tokenizer, config: Config, *, allowed: Callable[[str], bool] | None = None
) -> NGram:
    """The n-gram of a dataset's training queries, as large as `train.ngram_mb` allows.

    Args:
        data: the dataset; its own tokenizer does not matter.
        tokenizer: the network's.
        config: the settings.
        allowed: whether a query may be counted; None takes all.
    """
    counts = count_files(data.files("train"), tokenizer.encode_batch, allowed=allowed)
    return fit(counts, config.model.vocab_size, round(config.train.ngram_mb * 1e6))


def learn_sources(model: Network, data: Dataset, config: Config) -> tuple[Sources, dict[str, Any]]:
    """Counts the n-gram and fits the gate.

    Args:
        model: the trained network, on the CPU, in evaluation mode.
        data: the dataset that it was trained on.
        config: the settings; `model.fusion` says which sources there are.

    Returns:
        The sources; and nats a token of the validation queries, of the network alone and of the mixture (each half by
        the gate that was fitted on the other), and the mean weight of each source there.
    """
    ngram = count_ngram(data, data.tokenizer, config) if config.model.fusion in ("ngram", "all") else None
    scored = score(model, data, config, ngram)
    penalty, nats = _choose_penalty(config, scored)
    gate = fit_gate(config, scored, penalty)
    with torch.inference_mode():
        weights = gate(scored.states, scored.top, scored.ngram, scored.copies).exp().mean(0)
    about = {
        "tokens": len(scored.top),
        "penalty": penalty,
        "nats_alone": round(-float(scored.log_probs.mean()), 4),
        "nats": None if nats is None else round(nats, 4),
        "weights": dict(zip(gate.names, (round(weight, 3) for weight in weights.tolist()), strict=True)),
    }
    return Sources(gate, ngram), about


def _choose_penalty(config: Config, scored: Scored) -> tuple[float, float | None]:
    """The penalty with which a gate fitted on half of the sessions suits the other half best, and nats a token there.

    Of one session there are no halves: then the highest penalty, and nothing is known.
    """
    halves = [scored.session % 2 == half for half in (0, 1)]
    if not all(bool(half.any()) for half in halves):
        return PENALTIES[-1], None
    losses = {}
    for penalty in PENALTIES:
        gates = [fit_gate(config, pick(scored, mine), penalty) for mine in halves]
        with torch.no_grad():
            held = [loss(gate, pick(scored, other)) for gate, other in zip(gates, halves[::-1], strict=True)]
        losses[penalty] = float(torch.cat(held).mean())
    best = min(PENALTIES, key=losses.__getitem__)
    return best, losses[best]


@torch.no_grad()
def score(model: Network, data: Dataset, config: Config, ngram: NGram | None) -> Scored:
    """What the network, the n-gram and the session say about validation queries."""
    sessions = data.sessions("valid")
    order = np.random.default_rng(0).permutation(len(sessions))
    sizes = np.cumsum([len(sessions[number]) for number in order])
    chosen = [sessions[number] for number in order[: int(np.searchsorted(sizes, QUERIES)) + 1]]
    tokenized = TokenizedSessions(chosen, data.tokenizer.encode_batch)
    batches = Batches(
        tokenized, max_tokens=config.model.max_tokens, max_queries=config.model.max_queries, batch_queries=256
    )
    parts, before = [], 0
    for batch in batches.stream(0, 0):
        parts.append(score_batch(model, batch, ngram, copying=config.model.fusion in ("copy", "all"), first=before))
        before += len(batch.source)
    return _joined(parts)


def score_batch(model: Network, batch: Batch, ngram: NGram | None, *, copying: bool, first: int) -> Scored:
    """The same of one batch, whose sessions are numbered from `first` on."""
    written = batch.target_in != PAD
    targets = batch.target_out[written]
    states = model.states(batch.source, batch.target_in, batch.user)
    log_probs = model.logits(states).log_softmax(1)
    evidence = copies = None
    if ngram is not None:
        lengths = written.sum(2)[written[:, :, 0]] - 1
        tokens = batch.target_in[:, :, 1:][written[:, :, 1:]].numpy()
        contexts, _ = ngram.walk(tokens, np.cumsum([0, *lengths.tolist()]))
        share, left, matched = ngram.evidence(contexts, targets.clamp(min=PAD).numpy())
        top = ngram.top_shares(contexts)
        evidence = NgramEvidence(*map(torch.from_numpy, (share, left, matched.astype(np.int64), top)))
    if copying:
        copies = copies_of_targets(batch.source, batch.target_in, batch.target_out)
    scored = Scored(
        first + written.nonzero()[:, 0],
        states,
        log_probs.amax(1),
        log_probs.gather(1, targets.clamp(min=0)[:, None])[:, 0],
        evidence,
        copies,
    )
    return pick(scored, targets != IGNORE)


def pick(scored: Scored, chosen: Tensor) -> Scored:
    """Some of the tokens, by a mask [n]."""
    return _each(scored, lambda part: part[chosen])


def _each(scored: Scored, change: Callable[[Tensor], Tensor]) -> Scored:
    session, states, top, log_probs = map(change, (scored.session, scored.states, scored.top, scored.log_probs))
    ngram = None if scored.ngram is None else NgramEvidence(*map(change, scored.ngram))
    copies = None if scored.copies is None else Copies(*map(change, scored.copies))
    return Scored(session, states, top, log_probs, ngram, copies)


def _joined(parts: Sequence[Scored]) -> Scored:
    """All tokens of some batches."""
    leaves = [iter([*part[:4], *(part.ngram or ()), *(part.copies or ())]) for part in parts]  # in the order of `_each`
    return _each(parts[0], lambda _: torch.cat([next(leaf) for leaf in leaves]))


def loss(gate: Gate, scored: Scored) -> Tensor:
    """Nats [n] of each token."""
    return -mixed(gate, scored.states, scored.top, scored.log_probs, scored.ngram, scored.copies)


def fit_gate(config: Config, scored: Scored, penalty: float) -> Gate:
    """The gate that makes some tokens most likely, less `penalty` times its squared weights."""
    gate = make_gate(config.model)
    optimizer = torch.optim.LBFGS(gate.parameters(), max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        value = loss(gate, scored).mean() + penalty * gate.linear.weight.square().sum()
        torch.autograd.backward(value)
        return float(value.detach())

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    gate.eval()
    return gate
