"""Beam search against enumeration: with a beam that holds everything it finds every string and its probability."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from export.graphs import build_graphs
from mtn_edge.config import ModelConfig
from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.decoding.prefix_constraint import FORBIDDEN, Constraint, PrefixConstraint
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import build
from mtn_edge.models.layers import Packing
from mtn_edge.models.mtn import MTN
from mtn_edge.runtime.call import Call, CallEndedError
from mtn_edge.runtime.engine import DEAD, NO_FLOOR, Engine, Hypotheses, OnnxEngine, SessionState
from mtn_edge.runtime.search import Decoding, Search
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import BOS, EOS, PAD
from quantize.plan import uniform_plan

EVERYTHING = 2000
"""A beam that holds every hypothesis: vocabularies are filled up to this size with tokens that never come."""
OVERLAPPING = (b"a", b"b", b"ab", b" ", b"b a", b"\xc3", b"\xa9")
LETTERS = (b"a", b"ab", b"abc", b"b", b"c", b" a", b" ")
APPLICATION = (
    *(b"us", b" passport", b" ", b"a", b"s"),
    *(b"applicatio", b"n", b"app", b"lication", b"pplication"),
)
QUERIES = [[3, 4], [5, 6, 3]]
MOST = 8


def states_of(model: MTN, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
    """`MTN.states` with the padding: [b, q, u, d]."""
    packing = Packing((target_in != PAD).flatten(0, 1))
    return packing.pad(model.states(source, target_in)).view(*target_in.shape, model.d_model)


class Words:
    """A tokenizer of a few tokens, which spells each word, with the blank before it, by the longest tokens first."""

    def __init__(self, letters: Sequence[bytes], size: int = EVERYTHING) -> None:
        self.token_bytes = [b"", b"", b"", *letters, *[b""] * (size - 3 - len(letters))]
        self.letters = range(3, 3 + len(letters))

    def encode(self, text: str) -> list[int]:
        tokens = []
        for word in re.findall(" ?[^ ]+", text):
            left = word.encode()
            while left:
                fitting = [token for token in self.letters if left.startswith(self.token_bytes[token])]
                tokens.append(max(fitting, key=lambda token: len(self.token_bytes[token])))
                left = left[len(self.token_bytes[tokens[-1]]) :]
        return tokens

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.token_bytes[token] for token in tokens)


def config(vocab_size: int, memory: str = "all") -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=16,
        heads=2,
        ffn=24,
        query_layers=1,
        session_layers=1,
        decoder_layers=2,
        max_tokens=MOST,
        max_queries=4,
        memory=memory,  # type: ignore[arg-type]
    )


def network(vocab_size: int, seed: int = 0, memory: str = "all") -> MTN:
    torch.manual_seed(seed)
    return build(config(vocab_size, memory)).eval()


def on_onnx(model: MTN, folder: Path, memory: str = "all") -> OnnxEngine:
    sizes = config(model.embedding.num_embeddings, memory)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    build_graphs(state, sizes, uniform_plan("fp32")).save(folder)
    return OnnxEngine(folder, dataclasses.asdict(sizes))


def state_of(engine: Engine, queries: Sequence[Sequence[int]]) -> SessionState:
    state = engine.start()
    for query in queries:
        state = engine.append(query, state)
    return state


def step_log_probabilities(
    model: MTN, queries: list[list[int]], targets: list[tuple[int, ...]]
) -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
    """Log p(next token) [b, u + 1, v] along targets of one length u, by the training pass: no code of the search."""
    longest = max(map(len, [[BOS], *queries]))
    source = torch.full((len(targets), len(queries) + 1, longest), PAD)
    for row, query in enumerate([[BOS], *queries]):
        source[:, row, : len(query)] = torch.tensor(query)
    target_in = torch.full((len(targets), len(queries) + 1, len(targets[0]) + 1), PAD)
    target_in[:, -1] = torch.tensor([[BOS, *target] for target in targets])
    with torch.inference_mode():
        return model.logits(states_of(model, source, target_in))[:, -1].log_softmax(-1).numpy()


def log_probabilities(
    model: MTN, queries: list[list[int]], settled: Sequence[int], sequences: Sequence[tuple[int, ...]]
) -> dict[tuple[int, ...], float]:
    """Log p(sequence, <eos> | queries, settled)."""
    scores = {}
    for length in {len(sequence) for sequence in sequences}:
        alike = [sequence for sequence in sequences if len(sequence) == length]
        for start in range(0, len(alike), 128):
            rows = alike[start : start + 128]
            found = step_log_probabilities(model, queries, [(*settled, *sequence) for sequence in rows])
            for sequence, steps in zip(rows, found, strict=True):
                own = steps[len(settled) :]
                scores[sequence] = sum(float(own[n, token]) for n, token in enumerate([*sequence, EOS]))
    return scores


def enumerate_all(words: Words, settled: bytes, prefix: str, most: int) -> Iterator[tuple[int, ...]]:
    """All sequences of at most `most` tokens that spell, after `settled`, a query that begins with `prefix`."""
    wanted = prefix.encode()

    def grow(tokens: tuple[int, ...], spelt: bytes) -> Iterator[tuple[int, ...]]:
        if len(spelt) > len(wanted) and is_query(spelt):
            yield tokens
        if len(tokens) < most:
            for token in words.letters:
                longer = spelt + words.token_bytes[token]
                if longer.startswith(wanted) or wanted.startswith(longer):
                    yield from grow((*tokens, token), longer)

    yield from grow((), settled)


def is_query(spelt: bytes) -> bool:
    try:
        text = spelt.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and normalize(text) == text


def right_answer(
    words: Words, model: MTN, queries: list[list[int]], prefix: str, most: int, *, settle: bool
) -> tuple[dict[str, float], float, int]:
    """By brute force: log p of each string given the finished words, the mass, and the number of sequences."""
    finished = prefix[: max(prefix.rfind(" "), 0)] if settle else ""
    settled = words.encode(finished)
    sequences = list(enumerate_all(words, finished.encode(), prefix, most))
    scores = log_probabilities(model, queries, settled, sequences)
    strings: dict[str, float] = {}
    for sequence, score in scores.items():
        text = (finished.encode() + words.decode_bytes(sequence)).decode()
        strings[text] = float(np.logaddexp(strings.get(text, -math.inf), score))
    wanted = prefix.encode()[len(finished) :]
    before = finished[-1:] or " "
    opening = [
        token
        for token in words.letters
        if opens(words.token_bytes[token], wanted, blank=before == " ")  # what the first step lets through
    ]
    first = step_log_probabilities(model, queries, [tuple(settled)])[0, len(settled)]
    return strings, float(np.logaddexp.reduce(first[opening])), len(sequences)


def opens(spelt: bytes, wanted: bytes, *, blank: bool) -> bool:
    """Whether a token may come first: on the way through the typed text, or beyond it and still fit for a query."""
    if wanted.startswith(spelt):
        return True
    if not spelt.startswith(wanted):
        return False
    whole = (b"" if blank else b"x") + spelt
    # Some query must begin so: complete a cut letter, or go on after a blank.
    return any(is_query(whole + tail) for tail in (b"", b"x", b"\xa9", b"\xa9x"))


def compare(
    words: Words, model: MTN, engine: Engine, queries: list[list[int]], prefix: str, most: int, *, settle: bool = True
) -> int:
    """Search against brute force, `most` tokens after the finished words.

    Returns:
        How many more sequences there were than strings.
    """
    if not settle:
        most += len(words.encode(prefix[: max(prefix.rfind(" "), 0)]))
    right, mass, count = right_answer(words, model, queries, prefix, most, settle=settle)
    search = Search(engine, words, Decoding(beam=len(words.token_bytes), max_steps=most + 1))  # type: ignore[arg-type]
    if not settle:
        search.constraint = PrefixConstraint(words.token_bytes)
    state = state_of(engine, queries)
    hypotheses = search.hypotheses(state, prefix, 1)
    found = search.endings(state, prefix, 1)
    assert hypotheses is not None
    assert found is not None
    assert hypotheses.scores[-1] <= DEAD  # the beam held everything: there was room for more
    assert (np.diff(hypotheses.scores) <= 0).all()
    assert hypotheses.mass == pytest.approx(mass, abs=1e-4) or not right
    got = {prefix + ending.text: ending.log_probability for ending in found.endings}
    assert len(got) == len(found.endings)
    assert got.keys() == right.keys()
    for text, log_probability in got.items():
        assert log_probability == pytest.approx(right[text] - mass, abs=1e-4)
        assert math.exp(log_probability) == pytest.approx(math.exp(right[text] - mass), abs=1e-4)
    return count - len(right)


@pytest.mark.parametrize(("memory", "settle"), [("all", True), ("last", False)])
@pytest.mark.parametrize(
    ("letters", "prefix", "most"),
    [
        *((OVERLAPPING, prefix, 3) for prefix in ("", "a", "ab", "b ", "é", "ab a", "b é")),
        *((LETTERS, prefix, 3) for prefix in ("", "a", "ab", "abc ", "a a", "c ab")),
        *((APPLICATION, prefix, 4) for prefix in ("us passport appl", "us passport application")),
    ],
)
def test_a_beam_of_everything_equals_enumeration(
    letters: tuple[bytes, ...], prefix: str, most: int, memory: str, settle: bool
) -> None:
    words, model = Words(letters), network(EVERYTHING, memory=memory)
    merged = compare(words, model, TorchEngine(model), QUERIES, prefix, most, settle=settle)
    assert merged > 0 or prefix in ("é", "b é")  # some strings have several segmentations


@pytest.mark.parametrize(("letters", "most"), [(OVERLAPPING, 3), (LETTERS, 3), (APPLICATION, 4)])
def test_the_graph_with_a_beam_of_everything_equals_enumeration(
    letters: tuple[bytes, ...], most: int, tmp_path: Path
) -> None:
    words, model = Words(letters), network(EVERYTHING, seed=2)
    engine = on_onnx(model, tmp_path)
    prefixes = ("us passport appl", "us passport application") if letters == APPLICATION else ("a", "ab", "ab a", "ab ")
    for prefix in prefixes:
        assert compare(words, model, engine, QUERIES, prefix, most) > 0
        assert compare(words, model, engine, [], prefix, most) > 0


def test_a_string_is_as_probable_as_all_its_segmentations_together() -> None:
    words, model = Words(APPLICATION), network(EVERYTHING, seed=4)
    search = Search(TorchEngine(model), words, Decoding(beam=EVERYTHING, max_steps=5))  # type: ignore[arg-type]
    number = words.token_bytes.index
    tails = [(b"applicatio", b"n"), (b"app", b"lication"), (b"a", b"pplication")]
    ways = [(number(b" "), *map(number, tail), number(b"s")) for tail in tails]
    state = state_of(search.engine, QUERIES)
    each = log_probabilities(model, QUERIES, words.encode("us passport"), ways)
    assert len(each) == 3
    for prefix in ("us passport appl", "us passport application"):
        hypotheses, found = search.hypotheses(state, prefix, 1), search.endings(state, prefix, 1)
        assert hypotheses is not None
        assert found is not None
        scores = {prefix + ending.text: ending.log_probability for ending in found.endings}
        together = float(np.logaddexp.reduce(list(each.values())))
        assert scores["us passport applications"] + hypotheses.mass == pytest.approx(together, abs=1e-4)
        assert together > max(each.values()) + 0.05


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking is slow
@given(
    st.lists(st.sampled_from([b"ab", b"abc", b"ba", b" a", b"a b", b"b ", b"aa"]), max_size=2, unique=True),
    st.text("ab ", max_size=4),
    st.integers(0, 99),
    st.booleans(),
)
def test_any_vocabulary_equals_enumeration(longer: list[bytes], typed: str, seed: int, settle: bool) -> None:
    words = Words([b"a", b"b", b" ", *longer], 800)
    model = network(800, seed=seed)
    compare(words, model, TorchEngine(model), QUERIES[: seed % 3], normalize_prefix(typed), 3, settle=settle)


VOCABULARY = [b"", b"", b"", *OVERLAPPING]
CONSTRAINT = PrefixConstraint(VOCABULARY)


def typed(prefix: str) -> Constraint:
    found = CONSTRAINT.typed(prefix, MOST)
    assert found is not None
    return found


def finished(found: Hypotheses) -> dict[tuple[int, ...], float]:
    """Rows that ended, without what follows `<eos>`."""
    return {
        tuple(row[: row.index(EOS) + 1]): score
        for row, score in zip(found.tokens.tolist(), found.scores.tolist(), strict=True)
        if EOS in row and score > DEAD
    }


def test_narrow_beams_keep_the_rules_and_pad_after_the_end() -> None:
    engine = TorchEngine(network(len(VOCABULARY)))
    for beam in (1, 4, 8, len(VOCABULARY)):
        rows, scores, _ = engine.search(engine.start(), typed("ab"), beam=beam, max_steps=9)
        assert rows.shape[0] == scores.shape[0] == beam
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            if EOS in row and score > DEAD:
                assert set(row[row.index(EOS) + 1 :]) <= {PAD}
                assert b"".join(VOCABULARY[token] for token in row).startswith(b"ab")


def test_a_narrow_beam_never_beats_a_wide_one() -> None:
    letters = Words(OVERLAPPING).token_bytes
    engine = TorchEngine(network(EVERYTHING, seed=3))
    found = PrefixConstraint(letters).typed("a", MOST)
    assert found is not None
    best = [
        max(finished(engine.search(engine.start(), found, beam=beam, max_steps=4)).values(), default=-math.inf)
        for beam in (1, 4, 8, EVERYTHING)
    ]
    assert best == sorted(best)
    assert best[-1] > -math.inf


@pytest.mark.parametrize("settled", [[], [3, 9]])
def test_exact_gives_the_log_probability_of_one_sequence(settled: list[int]) -> None:
    model = network(len(VOCABULARY))
    engine = TorchEngine(model)
    state = engine.append(QUERIES[0], engine.start())
    rows, scores, _ = engine.search(state, CONSTRAINT.exact([5, 6, 3], settled), beam=1, max_steps=4)
    assert rows.tolist() == [[5, 6, 3, EOS]]
    (right,) = log_probabilities(model, QUERIES[:1], settled, [(5, 6, 3)]).values()
    assert scores[0] == pytest.approx(right, abs=1e-5)


def test_it_stops_when_everything_is_dead_or_has_ended() -> None:
    engine = TorchEngine(network(len(VOCABULARY)))
    nothing = np.full((1, len(VOCABULARY)), FORBIDDEN, dtype=np.uint8)
    rows, scores, _ = engine.search(engine.start(), Constraint(np.array([BOS]), nothing, 0), beam=4, max_steps=9)
    assert rows.shape == (4, 1)
    assert (scores <= DEAD).all()
    rows, _, _ = engine.search(engine.start(), CONSTRAINT.exact([3]), beam=2, max_steps=9)
    assert rows.shape == (2, 2)


def test_no_step_writes_nothing() -> None:
    engine = TorchEngine(network(len(VOCABULARY)))
    rows, scores, _ = engine.search(engine.start(), typed("a"), beam=3, max_steps=0)
    assert rows.shape == (3, 0)
    assert (scores <= DEAD).all()


def test_a_request_that_was_ended_stops_the_search() -> None:
    model = network(len(VOCABULARY))
    memory = model.append(torch.tensor([BOS]), model.start()).memory
    call = Call()
    call.end("enough")
    with pytest.raises(CallEndedError, match="enough"):
        beam_search(model, memory, typed("a"), beam=2, max_steps=5, floor=NO_FLOOR, call=call)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 500), st.integers(1, len(VOCABULARY)), st.floats(0.5, 9), st.sampled_from(["", "a", "ab a", "b "])
)
def test_a_floor_gives_up_what_falls_below_it_and_nothing_else(seed: int, beam: int, depth: float, prefix: str) -> None:
    words = Words(OVERLAPPING)
    model = network(len(VOCABULARY), seed)
    engine = TorchEngine(model)
    constraint = PrefixConstraint(VOCABULARY, words.encode).typed(prefix, MOST)
    assert constraint is not None
    settled = constraint.start_tokens[1:].tolist()
    steps = MOST + 1 - len(settled)
    state = state_of(engine, QUERIES)
    free = engine.search(state, constraint, beam=beam, max_steps=steps)
    found = engine.search(state, constraint, beam=beam, max_steps=steps, floor=-depth)
    assert found.mass == free.mass
    floor = found.mass - depth

    # What ended above the floor is what ends there without one, with the same score and in the same order.
    above = {row: score for row, score in finished(found).items() if score > floor}
    without = {row: score for row, score in finished(free).items() if score > floor}
    assert list(above) == list(without)
    assert list(above.values()) == pytest.approx(list(without.values()), abs=1e-5)

    for row, score in zip(found.tokens.tolist(), found.scores.tolist(), strict=True):
        if score <= DEAD or EOS in row:
            continue
        written = tuple(token for token in row if token != PAD)
        (steps_of,) = step_log_probabilities(model, QUERIES, [(*settled, *written[:-1])])
        sums = np.cumsum([steps_of[len(settled) + n, token] for n, token in enumerate(written)])
        assert sums[-1] == pytest.approx(score, abs=1e-4)
        assert (sums[:-1] > floor - 1e-4).all()  # it went on as long as it was above
        given_up = len(written) < len(row)
        assert not given_up or score <= floor
        assert given_up or len(written) == found.tokens.shape[1]
        assert found.tokens.shape[1] == steps or score <= floor  # it went on while any was above
