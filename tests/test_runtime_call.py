"""Requests that end early: by a deadline, by a newer key press, before, while and after the engine works on them."""

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.graphs import build_graphs
from mtn_edge.config import ModelConfig
from mtn_edge.decoding.prefix_constraint import FORBIDDEN, Constraint
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import build
from mtn_edge.runtime import call as calls
from mtn_edge.runtime.call import TOO_LATE, Call, CallEndedError
from mtn_edge.runtime.engine import Engine, Hypotheses, OnnxEngine
from mtn_edge.runtime.suggester import STALE, Suggester, SuggestResult
from mtn_edge.tokenizer import BOS, EOS
from quantize.plan import uniform_plan

PATIENCE = 60
"""Seconds after which a test gives up; nothing waits so long unless it hangs."""
FAR = 3600


def reason_of(call: Call) -> str | None:
    try:
        call.check()
    except CallEndedError as ended:
        return str(ended)
    return None


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_call_goes_on_until_it_is_ended() -> None:
    call = Call()
    call.check()
    call.end("enough")
    with pytest.raises(CallEndedError, match=r"^enough$"):
        call.check()


def test_whoever_attaches_too_late_is_stopped_at_once() -> None:
    call, stopped = Call(), []
    call.end("before")
    call.attach(lambda: stopped.append("stop"))
    assert stopped == ["stop"]


def test_whoever_is_attached_is_stopped_once_and_the_first_reason_counts() -> None:
    call, stopped = Call(), []
    call.attach(lambda: stopped.append("stop"))
    call.check()
    for reason in ("during", "again", TOO_LATE):
        call.end(reason)
    assert stopped == ["stop"]
    assert reason_of(call) == "during"


def test_whoever_has_left_is_left_alone() -> None:
    call, stopped = Call(), []
    call.attach(lambda: stopped.append("first"))
    call.detach()
    call.end("after")
    assert stopped == []
    assert reason_of(call) == "after"
    call.attach(lambda: stopped.append("second"))
    assert stopped == ["second"]


def test_a_moment_that_has_passed_ends_it_at_once() -> None:
    for moment in (0.0, -5.0, time.monotonic()):
        call, stopped = Call(), []
        call.attach(lambda stopped=stopped: stopped.append("stop"))  # type: ignore[misc]
        call.end_at(moment)
        assert (stopped, reason_of(call)) == (["stop"], TOO_LATE)
    call.end("later")
    assert reason_of(call) == TOO_LATE


def test_deadlines_in_any_order_end_all_and_none_too_early() -> None:
    ended = threading.Semaphore(0)
    early: list[float] = []
    requests = [Call() for _ in range(120)]
    began = time.monotonic()
    moments = [began + 0.02 + 0.002 * number for number in range(len(requests))]
    random.Random(4).shuffle(moments)
    for call, moment in zip(requests, moments, strict=True):

        def stop(moment: float = moment) -> None:
            if time.monotonic() < moment:
                early.append(moment)
            ended.release()

        call.attach(stop)
        call.end_at(moment)
    for _ in requests:
        assert ended.acquire(timeout=PATIENCE)
    assert early == []
    assert {reason_of(call) for call in requests} == {TOO_LATE}


def test_a_near_deadline_does_not_wait_for_a_far_one() -> None:
    far, near, ended = Call(), Call(), threading.Event()
    near.attach(ended.set)
    far.end_at(time.monotonic() + FAR)
    near.end_at(time.monotonic() + 0.02)
    assert ended.wait(PATIENCE)
    assert (reason_of(near), reason_of(far)) == (TOO_LATE, None)
    far.end("done with")
    assert reason_of(far) == "done with"


def test_infinite_deadlines_are_none() -> None:
    call = Call()
    call.end_at(float("inf"))
    near, ended = Call(), threading.Event()
    near.attach(ended.set)
    near.end_at(time.monotonic() + 0.01)
    assert ended.wait(PATIENCE)
    assert reason_of(call) is None


def test_many_threads_end_one_call_once() -> None:
    for _ in range(40):
        call, stopped, gate = Call(), [], threading.Barrier(8)
        call.attach(lambda stopped=stopped: stopped.append(threading.get_ident()))  # type: ignore[misc]

        def work(number: int, call: Call = call, gate: threading.Barrier = gate) -> None:
            gate.wait(PATIENCE)
            call.end(f"thread {number}")

        in_threads(8, work)
        assert len(stopped) == 1
        reason = reason_of(call)
        assert reason in {f"thread {number}" for number in range(8)}
        call.end("late")
        assert reason_of(call) == reason


def test_ending_and_attaching_at_once_never_misses_a_stop() -> None:
    for _ in range(100):
        call, stopped, gate = Call(), threading.Event(), threading.Barrier(2)

        def work(number: int, call: Call = call, stopped: Any = stopped, gate: threading.Barrier = gate) -> None:
            gate.wait(PATIENCE)
            if number:
                call.attach(stopped.set)
            else:
                call.end("ended")

        in_threads(2, work)
        assert stopped.is_set()


def test_many_threads_set_deadlines() -> None:
    ended, requests = threading.Semaphore(0), [Call() for _ in range(160)]

    def work(number: int) -> None:
        for call in requests[number::8]:
            call.attach(lambda: ended.release())
            call.end_at(time.monotonic() + random.Random(number).random() / 20)

    in_threads(8, work)
    for _ in requests:
        assert ended.acquire(timeout=PATIENCE)
    assert {reason_of(call) for call in requests} == {TOO_LATE}


def test_answered_requests_are_forgotten_and_open_ones_are_not() -> None:
    watch, ended = calls._Watch(), threading.Semaphore(0)
    open_ones = []
    for number in range(5_000):
        call = Call()
        if number % 500 == 0:
            call.attach(lambda: ended.release())
            watch.add(time.monotonic() + 0.2, call)
            open_ones.append(call)
        else:
            watch.add(time.monotonic() + FAR, call)
            call.done = True
        assert len(watch._deadlines) <= 2 * calls._FEW
    for _ in open_ones:
        assert ended.acquire(timeout=PATIENCE)
    assert {reason_of(call) for call in open_ones} == {TOO_LATE}


class Held:
    """An engine that holds some searches until their request is ended.

    Args:
        engine: answers the others.
        hold: numbers of the searches that are held, from 0.
        by: how it learns of the end: told through `attach`, as ONNX Runtime is, or asking `check`, as PyTorch does.
    """

    def __init__(self, engine: Engine, hold: set[int], by: str) -> None:
        self.vocab_size, self.max_tokens, self.max_queries = engine.vocab_size, engine.max_tokens, engine.max_queries
        self.start, self.append = engine.start, engine.append
        self.held = threading.Event()
        self._engine, self._hold, self._by = engine, hold, by
        self._numbers = itertools.count()

    def search(self, *arguments: Any, call: Call, **more: Any) -> Hypotheses:
        if next(self._numbers) not in self._hold:
            return self._engine.search(*arguments, call=call, **more)
        stopped = threading.Event()
        if self._by == "attach":
            call.attach(stopped.set)
        self.held.set()
        deadline = time.monotonic() + PATIENCE
        while not stopped.wait(0.001) and time.monotonic() < deadline:
            if self._by == "check":
                call.check()
        call.detach()
        call.check()
        raise AssertionError("the search was never ended")


def holding(bundle: Path, hold: set[int], by: str) -> tuple[Suggester, Held]:
    suggester = Suggester.open(bundle)
    engine = Held(suggester.engine, hold, by)
    suggester.engine = suggester.search.engine = engine  # type: ignore[assignment]
    return suggester, engine


@pytest.mark.parametrize("by", ["attach", "check"])
@pytest.mark.parametrize("keys", ["achoo", "paris", "東京 we"])
def test_fast_typing_shows_the_list_of_the_last_key(tiny_bundle: Path, keys: str, by: str) -> None:
    presses = [keys[:end] for end in range(1, len(keys) + 1)]
    slow = len(presses) - 2
    suggester, engine = holding(tiny_bundle, {slow}, by)
    session = suggester.session(["paris weather"])
    arrived: list[SuggestResult] = []

    def press(typed: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: arrived.append(session.suggest(typed, 5)))
        thread.start()
        return thread

    for typed in presses[:slow]:
        press(typed).join(PATIENCE)
    held = press(presses[slow])
    assert engine.held.wait(PATIENCE)
    last = press(presses[-1])
    last.join(PATIENCE)
    held.join(PATIENCE)
    assert not held.is_alive()
    assert [result.prefix for result in arrived if result.reason != STALE] == [*presses[:slow], presses[-1]]
    (stale,) = (result for result in arrived if result.reason == STALE)
    assert stale.prefix == presses[slow]
    assert {found.source for found in stale.suggestions} <= {"completions"}
    alone = Suggester.open(tiny_bundle).session(["paris weather"])
    (shown,) = (result for result in arrived if result.prefix == presses[-1])
    assert shown.suggestions == alone.suggest(presses[-1], 5).suggestions


@pytest.mark.parametrize("by", ["attach", "check"])
def test_each_key_press_ends_the_one_before_it(tiny_bundle: Path, by: str) -> None:
    suggester, engine = holding(tiny_bundle, {0, 1, 2}, by)
    session, results = suggester.session(), []
    threads = []
    for typed in ("p", "pa", "par"):
        engine.held.clear()
        threads.append(threading.Thread(target=lambda typed=typed: results.append(session.suggest(typed))))  # type: ignore[misc]
        threads[-1].start()
        assert engine.held.wait(PATIENCE)
    assert session.suggest("pari").reason != STALE
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted((result.prefix, result.reason) for result in results) == [
        ("p", STALE),
        ("pa", STALE),
        ("par", STALE),
    ]


def test_sessions_do_not_end_each_others_requests(tiny_bundle: Path) -> None:
    suggester, engine = holding(tiny_bundle, {0}, "attach")
    one, other, results = suggester.session(), suggester.session(), []
    thread = threading.Thread(target=lambda: results.append(one.suggest("pa")))
    thread.start()
    assert engine.held.wait(PATIENCE)
    assert other.suggest("pa").reason != STALE
    assert results == []
    one.suggest("par")
    thread.join(PATIENCE)
    assert [result.reason for result in results] == [STALE]


@pytest.mark.parametrize("by", ["attach", "check"])
def test_a_missed_deadline_gives_the_popular_completions(tiny_bundle: Path, by: str) -> None:
    suggester, _ = holding(tiny_bundle, {0}, by)
    session = suggester.session(["paris weather"])
    late = session.suggest("new", 3, deadline_ms=30)
    assert late.reason == TOO_LATE
    assert late.suggestions
    assert {found.source for found in late.suggestions} == {"completions"}
    assert 30 <= late.elapsed_ms < PATIENCE * 1000
    assert session.suggest("new", 3, deadline_ms=0).suggestions == late.suggestions
    in_time = session.suggest("new", 3, deadline_ms=PATIENCE * 1000)
    assert in_time.reason != TOO_LATE
    assert in_time.suggestions != late.suggestions  # other scores, whatever the texts


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    """Engines whose search goes on for minutes when it is let: a wide beam, and room for hundreds of tokens."""
    config = ModelConfig(
        vocab_size=300,
        d_model=32,
        heads=4,
        ffn=32,
        max_tokens=600,
        max_queries=2,
        query_layers=1,
        session_layers=1,
        decoder_layers=1,
    )
    folder = tmp_path_factory.mktemp("endless")
    torch.manual_seed(0)
    model = build(config).eval()
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    build_graphs(state, config, uniform_plan("fp32")).save(folder)
    return {"torch": TorchEngine(model), "onnx": OnnxEngine(folder, dataclasses.asdict(config))}


def never_ending() -> Constraint:
    table = np.ones((1, 300), dtype=np.uint8)
    table[0, : EOS + 1] = FORBIDDEN
    return Constraint(np.array([BOS], dtype=np.int64), table, 0)


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_a_running_search_is_ended_from_outside(endless: dict[str, Engine], kind: str) -> None:
    engine = endless[kind]
    for end_it in (
        lambda call: call.end_at(time.monotonic() + 0.1),
        lambda call: threading.Timer(0.1, call.end, [TOO_LATE]).start(),
    ):
        call = Call()
        end_it(call)
        with pytest.raises(CallEndedError, match=TOO_LATE):
            engine.search(engine.start(), never_ending(), beam=300, max_steps=601, call=call)
    # The engine is as good as before, and an ended call starts nothing.
    found = engine.search(engine.start(), never_ending(), beam=4, max_steps=3, call=Call())
    assert found.tokens.shape == (4, 3)
    with pytest.raises(CallEndedError, match=TOO_LATE):
        engine.search(engine.start(), never_ending(), beam=4, max_steps=3, call=call)


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_a_row_of_searches_is_ended_wherever_it_is(endless: dict[str, Engine], kind: str) -> None:
    engine, call, begun, reasons = endless[kind], Call(), threading.Event(), []

    def work() -> None:
        try:
            while True:
                engine.search(engine.start(), never_ending(), beam=64, max_steps=33, call=call)
                begun.set()
        except CallEndedError as ended:
            reasons.append(str(ended))

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(PATIENCE)
    call.end("enough")
    thread.join(PATIENCE)
    assert reasons == ["enough"]


def test_other_faults_of_a_search_are_not_taken_for_an_end(endless: dict[str, Engine]) -> None:
    engine = endless["onnx"]
    wrong = never_ending()._replace(next_state=np.ones((1, 7), dtype=np.uint8))
    with pytest.raises(Exception, match=r"(?i)shape|dimension|broadcast|index"):
        engine.search(engine.start(), wrong, beam=4, max_steps=3, call=Call())
