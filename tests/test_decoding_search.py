"""Beam search against enumeration: with a beam that holds everything it finds every string and its probability."""

import itertools
import math
import time

import numpy as np
import pytest
import torch

from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.decoding.prefix_constraint import PrefixConstraint
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.mtn import MTN
from mtn_edge.runtime.engine import DEAD
from mtn_edge.tokenizer import BOS, EOS, PAD

VOCABULARY = [b"", b"", b"", b"a", b"b", b"ab", b" ", b"b a", b"\xc3", b"\xa9"]
CONSTRAINT = PrefixConstraint(VOCABULARY)
QUERIES = [[3, 4], [5, 6, 3]]


def network(vocab_size: int, seed: int = 0, memory: str = "all") -> MTN:
    torch.manual_seed(seed)
    return MTN(
        vocab_size=vocab_size,
        d_model=16,
        heads=2,
        ffn=24,
        query_layers=1,
        session_layers=1,
        decoder_layers=2,
        max_tokens=8,
        max_queries=4,
        projection="position",
        memory=memory,  # type: ignore[arg-type]
        norm="pre",
        dropout=0.1,
    ).eval()


def log_probabilities(model: MTN, sequences: list[tuple[int, ...]], queries: list[list[int]]) -> list[float]:
    """Log p(sequence, <eos> | queries) by the training pass, which shares no code with the search."""
    longest = max(map(len, [[BOS], *queries]))
    source = torch.full((1, len(queries) + 1, longest), PAD)
    for row, query in enumerate([[BOS], *queries]):
        source[0, row, : len(query)] = torch.tensor(query)
    scores = []
    for sequence in sequences:
        target = torch.full((1, len(queries) + 1, len(sequence) + 1), PAD)
        target[0, -1] = torch.tensor([BOS, *sequence])
        with torch.inference_mode():
            log_probs = model.logits(model(source, target))[0, -1].log_softmax(-1)
        scores.append(sum(float(log_probs[place, token]) for place, token in enumerate([*sequence, EOS])))
    return scores


def accepted(prefix: str, length: int) -> list[tuple[int, ...]]:
    """All token sequences up to `length` that the table lets end."""
    table, start = CONSTRAINT.table(prefix.encode())
    found = []
    for size in range(length + 1):
        for tokens in itertools.product(range(3, len(VOCABULARY)), repeat=size):
            state = start
            for token in (*tokens, EOS):
                state = table[state, token] if state >= 0 else state
            if state >= 0:
                found.append(tokens)
    return found


def by_string(tokens: list[tuple[int, ...]], scores: list[float]) -> dict[bytes, float]:
    merged: dict[bytes, float] = {}
    for sequence, score in zip(tokens, scores, strict=True):
        text = b"".join(VOCABULARY[token] for token in sequence)
        merged[text] = float(np.logaddexp(merged.get(text, -math.inf), score))
    return merged


@pytest.mark.parametrize("prefix", ["", "a", "ab", "b ", "é"])
@pytest.mark.parametrize("memory", ["all", "last"])
def test_a_beam_of_everything_equals_enumeration(prefix: str, memory: str) -> None:
    model = network(len(VOCABULARY), memory=memory)
    engine = TorchEngine(model)
    state = engine.start()
    for query in QUERIES:
        state = engine.append(query, state)
    table, start = CONSTRAINT.table(prefix.encode())
    rows, scores = engine.search(state, table, start, beam=10_000, max_steps=5)
    found = [
        (tuple(row[: row.index(EOS)]), score)
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
        if EOS in row and score > DEAD
    ]
    expected = accepted(prefix, 4)
    assert len(expected) > 20
    assert sorted(tokens for tokens, _ in found) == sorted(expected)
    right = by_string(expected, log_probabilities(model, expected, QUERIES))
    assert by_string([tokens for tokens, _ in found], [score for _, score in found]) == pytest.approx(right, abs=1e-4)
    assert len(right) < len(expected)  # some strings have several segmentations
    assert (np.diff(scores) <= 0).all()


def test_narrow_beams_keep_the_rules_and_pad_after_the_end() -> None:
    engine = TorchEngine(network(len(VOCABULARY)))
    table, start = CONSTRAINT.table(b"ab")
    for beam in (1, 4, 8):
        rows, scores = engine.search(engine.start(), table, start, beam=beam, max_steps=9)
        assert rows.shape[0] == scores.shape[0] == beam
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            if EOS in row and score > DEAD:
                assert set(row[row.index(EOS) + 1 :]) <= {PAD}
                assert b"".join(VOCABULARY[token] for token in row).startswith(b"ab")


def test_a_narrow_beam_never_beats_a_wide_one() -> None:
    engine = TorchEngine(network(len(VOCABULARY), seed=3))
    table, start = CONSTRAINT.table(b"a")
    best = [engine.search(engine.start(), table, start, beam=beam, max_steps=6)[1][0] for beam in (1, 4, 8, 4000)]
    assert best == sorted(best)


def test_exact_gives_the_log_probability_of_one_sequence() -> None:
    model = network(len(VOCABULARY))
    engine = TorchEngine(model)
    state = engine.append(QUERIES[0], engine.start())
    table, start = CONSTRAINT.exact([5, 6, 3])
    rows, scores = engine.search(state, table, start, beam=1, max_steps=4)
    assert rows.tolist() == [[5, 6, 3, EOS]]
    assert scores[0] == pytest.approx(log_probabilities(model, [(5, 6, 3)], QUERIES[:1])[0], abs=1e-5)


def test_it_stops_when_everything_is_dead_or_has_ended() -> None:
    engine = TorchEngine(network(len(VOCABULARY)))
    nothing = np.full((1, len(VOCABULARY)), -1, dtype=np.int32)
    rows, scores = engine.search(engine.start(), nothing, 0, beam=4, max_steps=9)
    assert rows.shape == (4, 1)
    assert (scores <= DEAD).all()
    table, start = CONSTRAINT.exact([3])
    rows, _ = engine.search(engine.start(), table, start, beam=2, max_steps=9)
    assert rows.shape == (2, 2)


def test_a_deadline_that_passed_stops_the_search() -> None:
    model = network(len(VOCABULARY))
    memory = model.append(torch.tensor([BOS]), model.start()).memory
    table, start = CONSTRAINT.table(b"a")
    with pytest.raises(TimeoutError):
        beam_search(model, memory, table, start, beam=2, max_steps=5, deadline=time.monotonic())
