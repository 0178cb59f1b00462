"""BPE dropout (Provilkov et al. 2020, section 3): a query is cut into tokens another way in every epoch.

At each step of the segmentation every merge that is possible is left out with some probability; of those that remain
the first learnt one is made; the word is done when none remains. Training sees several segmentations of one text, and
the search sums over just those. All words go through the steps together, as flat arrays; the result is a pure function
of (seed, epoch), so that a resumed run sees the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtn_edge.data.batches import Spelling, offsets_of
from mtn_edge.tokenizer import Tokenizer

_CHUNK = 65_536
"""Queries that go through the steps together."""
_NONE = np.iinfo(np.int64).max


class BpeDropout:
    """Cuts the queries of a split into tokens, anew in each epoch.

    Args:
        tokenizer: whose merges to make.
        texts: the queries.
        rate: probability of leaving a merge out; 0 gives the tokenizer's own segmentation.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], rate: float) -> None:
        self._rate = rate
        number = {spelt: token for token, spelt in enumerate(tokenizer.token_bytes)}
        merges = tokenizer.merges()
        self._base = len(tokenizer)
        keys = np.array([left * self._base + right for left, right in merges], dtype=np.int64)
        by_key = np.argsort(keys)
        self._keys, self._ranks = keys[by_key], by_key
        spelt = tokenizer.token_bytes
        self._merged = np.array([number[spelt[left] + spelt[right]] for left, right in merges], dtype=np.int64)
        letters = np.array([number[bytes([byte])] for byte in range(256)], dtype=np.int32)
        self._letters = letters[np.frombuffer("".join(texts).encode(), np.uint8)]
        words = [tokenizer.word_lengths(text) for text in texts]
        self._word_counts = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
        self._words = offsets_of(np.array([length for lengths in words for length in lengths], dtype=np.int64))

    def __call__(self, seed: int, epoch: int) -> Spelling:
        """The queries of an epoch (see `batches.Respell`)."""
        query_words = offsets_of(self._word_counts)
        tokens: list[NDArray[np.int32]] = []
        lengths: list[NDArray[np.int64]] = []
        for chunk, first in enumerate(range(0, len(self._word_counts), _CHUNK)):
            counts = self._word_counts[first : first + _CHUNK]
            words = self._words[query_words[first] : query_words[first + len(counts)] + 1]
            found, owner = self._segment(words, np.random.default_rng((seed, epoch, chunk)))
            query = np.repeat(np.arange(len(counts)), counts)
            tokens.append(found)
            lengths.append(np.bincount(query[owner], minlength=len(counts)))
        return Spelling(
            np.concatenate([*tokens, np.zeros(0, np.int32)]),
            offsets_of(np.concatenate([*lengths, np.zeros(0, np.int64)])),
        )

    def _segment(
        self, words: NDArray[np.int64], random: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Tokens of neighbouring words (given by their offsets), and the number of the word of each."""
        tokens = self._letters[words[0] : words[-1]]
        word = np.repeat(np.arange(len(words) - 1), np.diff(words))
        done_tokens, done_words = [tokens[:0]], [word[:0]]
        while len(tokens):
            rank = self._possible(tokens, word, random)
            starts = np.flatnonzero(np.diff(word, prepend=-1))
            counts = np.diff(np.append(starts, len(word)))
            best = np.repeat(np.minimum.reduceat(rank, starts), counts)
            done = best == _NONE
            done_tokens.append(tokens[done])
            done_words.append(word[done])
            place = np.flatnonzero((rank == best) & ~done)
            place = place[np.diff(word[place], prepend=-1) > 0]  # the leftmost of each word
            tokens = tokens.copy()
            tokens[place] = self._merged[rank[place]]
            kept = ~done
            kept[place + 1] = False
            tokens, word = tokens[kept], word[kept]
        word = np.concatenate(done_words)
        by_word = np.argsort(word, kind="stable")
        return np.concatenate(done_tokens)[by_word], word[by_word]

    def _possible(
        self, tokens: NDArray[np.int32], word: NDArray[np.int64], random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Number of the merge of each token with the next one; `_NONE` where there is none or it is left out."""
        if not len(self._keys):
            return np.full(len(tokens), _NONE)
        key = tokens[:-1].astype(np.int64) * self._base + tokens[1:]
        place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        able = (self._keys[place] == key) & (word[:-1] == word[1:])
        able[able] = random.random(int(able.sum())) >= self._rate
        return np.append(np.where(able, self._ranks[place], _NONE), _NONE)
