"""A smaller vocabulary: tokens that are hardly used go, and every text stays encodable.

A token can go when no other token is made from it: the single bytes always stay, and so does whatever the merges of
the tokens that stay need. The token with the fewest occurrences goes first; its occurrences are those of its two parts
from then on. Without counts the token that was learnt last goes first.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence

from mtn_edge.errors import UserError
from mtn_edge.tokenizer import MIN_VOCAB, Tokenizer


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> Counter[int]:
    """How often each token occurs in some texts."""
    return Counter(token for tokens in tokenizer.encode_batch(texts) for token in tokens)


def choose_tokens(tokenizer: Tokenizer, counts: Counter[int] | None, remove: int) -> list[int]:
    """The tokens that stay, ascending.

    Args:
        tokenizer: whose tokens.
        counts: occurrences; None removes by the order of learning.
        remove: how many go.

    Raises:
        UserError: bytes and specials would have to go.
    """
    most = len(tokenizer) - MIN_VOCAB
    if remove > most:
        raise UserError(
            f"{remove:,} of {len(tokenizer):,} tokens were to be removed, and {most:,} can go at most: {MIN_VOCAB} "
            "bytes and specials stay, so that every text can be encoded",
            code="bad-setting",
            hint="give a smaller share",
        )
    parts, users = _makings(tokenizer)
    worth = [counts[token] if counts is not None else 0 for token in range(len(tokenizer))]
    free = [(worth[token], -token) for token in range(MIN_VOCAB, len(tokenizer)) if not users[token]]
    heapq.heapify(free)
    gone: set[int] = set()
    while len(gone) < remove:
        value, negative = heapq.heappop(free)
        token = -negative
        if token in gone or value != worth[token]:
            continue  # it has become worth more since
        gone.add(token)
        for place, pair in enumerate(parts[token]):
            for part in pair:
                users[part].discard(token)
                if place == 0:
                    worth[part] += value
                if part >= MIN_VOCAB and not users[part]:
                    heapq.heappush(free, (worth[part], -part))
    return [token for token in range(len(tokenizer)) if token not in gone]


def is_part_of(tokenizer: Tokenizer, whole: Tokenizer) -> bool:
    """Whether a tokenizer has no token that `whole` has not: it is the same one, or was made smaller."""
    return set(tokenizer.token_bytes) <= set(whole.token_bytes)


def _makings(tokenizer: Tokenizer) -> tuple[dict[int, list[tuple[int, int]]], dict[int, set[int]]]:
    """The pairs that each token is made from, in the order of learning, and the tokens that each helps to make."""
    number = {spelt: token for token, spelt in enumerate(tokenizer.token_bytes)}
    parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    users: dict[int, set[int]] = defaultdict(set)
    for left, right in tokenizer.merges():
        made = number[tokenizer.token_bytes[left] + tokenizer.token_bytes[right]]
        parts[made].append((left, right))
        for part in (left, right):
            users[part].add(made)
    return parts, users
