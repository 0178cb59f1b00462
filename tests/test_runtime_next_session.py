"""A user's next session: remembered by a model of three levels, a fresh start for any other."""

import pytest
import torch

from mtn_edge.config import ModelConfig
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import build
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import SessionState
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Session, Suggester
from mtn_edge.tokenizer import BOS, Tokenizer

TOKENIZER = Tokenizer.train(["new york hotels", "new york", "paris weather", "jobs"], 300)
FIRST = ["new york", "jobs", "hotels"]
SECOND = ["paris", "weather", "jobs", "new york", "hotels", "york"]


def suggester(levels: int) -> Suggester:
    torch.manual_seed(2)
    config = ModelConfig(
        vocab_size=len(TOKENIZER),
        d_model=16,
        heads=2,
        ffn=16,
        decoder_layers=1,
        max_tokens=8,
        max_queries=4,
        levels=levels,  # type: ignore[arg-type]
    )
    return Suggester(
        engine=TorchEngine(build(config).eval()),
        tokenizer=TOKENIZER,
        completions=Completions(()),
        blocklist=Blocklist(),
        decoding=Decoding(max_steps=6),
    )


def two_sessions(opened: Suggester) -> Session:
    session = opened.session(FIRST)
    session.begin()
    return session


def same(one: SessionState, other: SessionState) -> bool:
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def test_a_model_of_three_levels_remembers_the_session_before() -> None:
    opened = suggester(levels=3)
    session = two_sessions(opened)
    assert session.queries == []
    state = opened.engine.start()
    for query in [*(TOKENIZER.encode(query) for query in FIRST), [BOS], TOKENIZER.encode("paris")]:
        state = opened.engine.append(query, state)
    session.append("paris")
    assert same(session.state, state)
    assert session.log_probability("jobs") != opened.session(["paris"]).log_probability("jobs")
    assert session.suggest("n").session == ["paris"]


def test_a_long_session_keeps_what_was_before_it() -> None:
    """Beyond `max_queries` it is opened anew with its last queries, and still follows the first session."""
    opened = suggester(levels=3)
    grown, opened_late = two_sessions(opened), two_sessions(opened)
    for query in SECOND:
        grown.append(query)
    for query in SECOND[2:]:
        opened_late.append(query)
    assert same(grown.state, opened_late.state)
    assert not same(grown.state, opened.session(SECOND[2:]).state)


@pytest.mark.parametrize("levels", [2, 3])
def test_a_session_without_queries_does_not_end(levels: int) -> None:
    opened = suggester(levels)
    session = opened.session()
    session.begin()
    assert same(session.state, opened.session().state)
    session = two_sessions(opened)
    before = session.state
    session.begin()
    assert same(session.state, before)


def test_a_model_of_two_levels_starts_afresh() -> None:
    opened = suggester(levels=2)
    session = two_sessions(opened)
    assert same(session.state, opened.session().state)
    for query in SECOND:
        session.append(query)
    assert same(session.state, opened.session(SECOND).state)
