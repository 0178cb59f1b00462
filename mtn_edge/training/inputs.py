"""What a run learns from and what it is measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtn_edge.config import Config, ModelConfig, TrainConfig
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions
from mtn_edge.data.bpe_dropout import BpeDropout
from mtn_edge.data.dataset import Dataset, SplitName
from mtn_edge.errors import UserError
from mtn_edge.training.objective import Rewritten
from mtn_edge.training.ranking import RankingSample


@dataclass(frozen=True)
class Inputs:
    """The two splits of a run."""

    settings: TrainConfig
    learnt: TokenizedSessions
    """What the batches of the training split are made of."""
    train: Batches
    valid: list[Batch]
    ranking: RankingSample | None
    """None where the loss decides when to stop."""
    queries: int
    """Queries to learn from in an epoch."""
    total_steps: int


def read_inputs(
    data: Dataset,
    config: Config,
    *,
    world: int,
    rewrite: Callable[[Sequence[Sequence[str]]], Rewritten | None] = lambda _: None,
) -> Inputs:
    """Reads and tokenizes the training split and a sample of the validation split.

    Args:
        data: the dataset.
        config: the settings.
        world: processes that share a step.
        rewrite: what is learnt from beside the sessions of the training split, made from them.

    Raises:
        UserError: a split is empty.
    """
    model, train = config.model, config.train
    sessions, users = _read(data, "train", levels=model.levels)
    valid, valid_users = _sample(*_read(data, "valid", levels=model.levels), train.valid_queries)
    texts = [query for session in sessions for query in session if query] if train.bpe_dropout else []
    learnt = _tokenize(data, sessions, users, rewrite(sessions))
    batches = Batches(
        learnt,
        **context_of(model),
        batch_queries=train.batch_queries,
        batch_tokens=train.batch_tokens,
        parts=train.accumulate * world,
        respell=BpeDropout(data.tokenizer, texts, train.bpe_dropout) if train.bpe_dropout else None,
    )
    scored = Batches(
        TokenizedSessions(valid, data.tokenizer.encode_batch, valid_users),
        **context_of(model),
        batch_queries=max(256, train.batch_queries),
        batch_tokens=train.batch_tokens,
    )
    return Inputs(
        settings=train,
        learnt=learnt,
        train=batches,
        valid=list(scored.stream(0, 0)),
        ranking=RankingSample(valid, data.tokenizer, train.mrr_queries) if train.stop_on == "mrr" else None,
        queries=learnt.queries,
        total_steps=len(batches) * train.epochs,
    )


def context_of(model: ModelConfig) -> dict[str, Any]:
    """How much a network sees, as arguments of `Batches`."""
    return {
        "max_tokens": model.max_tokens,
        "max_queries": model.max_queries,
        "max_sessions": model.max_sessions if model.levels == 3 else None,
    }


def _tokenize(
    data: Dataset, sessions: list[list[str]], users: list[int] | None, more: Rewritten | None
) -> TokenizedSessions:
    if more is None:
        return TokenizedSessions(sessions, data.tokenizer.encode_batch, users)
    if users is not None:  # nobody's earlier sessions
        users = [*users, *range(max(users) + 1, max(users) + 1 + len(more.sessions))]
    read, targets = [*sessions, *more.sessions], [*sessions, *more.targets]
    return TokenizedSessions(read, data.tokenizer.encode_batch, users, targets)


def _read(data: Dataset, split: SplitName, *, levels: int) -> tuple[list[list[str]], list[int] | None]:
    """The sessions of a split, and with three levels their users."""
    sessions = data.sessions(split)
    if not any(map(any, sessions)):
        raise UserError(
            f"`{data.path}` has no sessions in its {split} split",
            code="no-sessions",
            hint="prepare it from a larger log, or with another --split or a lower --min-users",
        )
    return sessions, data.users(split) if levels == 3 else None


def _sample(
    sessions: list[list[str]], users: Sequence[int] | None, queries: int
) -> tuple[list[list[str]], list[int] | None]:
    """Whole sessions, or all sessions of some users, always the same ones, until they hold `queries` queries."""
    owner = np.arange(len(sessions)) if users is None else np.unique(users, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(int(owner.max()) + 1)
    counts = np.bincount(owner, [len(session) for session in sessions])
    chosen = order[: int(np.searchsorted(np.cumsum(counts[order]), queries)) + 1]
    # One user's sessions stay neighbours and in the order of time.
    kept = np.argsort(np.argsort(order)[owner], kind="stable")[: int(np.isin(owner, chosen).sum())].tolist()
    return [sessions[n] for n in kept], None if users is None else [users[n] for n in kept]
