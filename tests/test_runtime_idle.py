"""An engine that leaves memory while nobody calls: never under a call, and never with a thread left over."""

import dataclasses
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtn_edge.errors import UserError
from mtn_edge.folders import read_manifest, write_manifest
from mtn_edge.runtime.call import Call, CallEndedError
from mtn_edge.runtime.idle import IdleEngine
from mtn_edge.runtime.suggester import Suggester

SOON = 0.02
LATER = 10.0


@dataclasses.dataclass
class Counted:
    """An engine that says which one it is."""

    number: int
    hold: threading.Event | None = None
    vocab_size = 300
    max_tokens = 12
    max_queries = 6

    def start(self) -> Any:
        return self.number

    def append(self, tokens: Any, state: Any) -> Any:
        return [*state, *tokens]

    def search(self, state: Any, *, call: Call | None = None, beam: int) -> Any:
        if self.hold is not None:
            assert self.hold.wait(LATER)
        return self.number, state, call, beam


class Maker:
    """Makes engines and remembers how many."""

    def __init__(self, hold: threading.Event | None = None) -> None:
        self.made = 0
        self.hold = hold
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Exception | None = None

    def __call__(self) -> Counted:
        assert self.gate.wait(LATER)
        if self.fault is not None:
            raise self.fault
        self.made += 1
        return Counted(self.made, self.hold)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LATER
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    left = {thread for thread in threading.enumerate() if thread.name != "mtn-edge deadlines"}
    assert left <= before


def test_it_hands_every_call_on() -> None:
    engine = IdleEngine(Maker(), LATER)
    assert (engine.vocab_size, engine.max_tokens, engine.max_queries) == (300, 12, 6)
    assert engine.start() == 1
    assert engine.append([3], [1]) == [1, 3]
    assert engine.search("s", beam=4) == (1, "s", None, 4)
    call = Call()
    assert engine.search("s", beam=4, call=call) == (1, "s", call, 4)
    engine.close()


def test_it_goes_when_idle_and_comes_back_with_a_call() -> None:
    maker = Maker()
    engine = IdleEngine(maker, SOON)
    for number in (1, 2, 3):
        assert engine.start() == number
        assert engine.loaded
        until(lambda: not engine.loaded)
        assert (engine.vocab_size, maker.made) == (300, number)  # what is known needs no engine
    engine.close()
    assert maker.made == 3


def test_calls_keep_it_and_it_never_goes_under_a_call() -> None:
    maker = Maker(hold=threading.Event())
    engine = IdleEngine(maker, SOON)
    found: list[Any] = []
    caller = threading.Thread(target=lambda: found.append(engine.search("s", beam=1)))
    caller.start()
    time.sleep(5 * SOON)
    assert engine.loaded
    assert maker.hold is not None
    maker.hold.set()
    caller.join()
    assert found == [(1, "s", None, 1)]
    until(lambda: not engine.loaded)
    engine.close()


def test_many_threads_share_one_engine() -> None:
    maker = Maker()
    engine = IdleEngine(maker, SOON)
    until(lambda: not engine.loaded)
    maker.gate.clear()
    found: list[int] = []
    callers = [threading.Thread(target=lambda: found.append(engine.start())) for _ in range(8)]
    for caller in callers:
        caller.start()
    maker.gate.set()
    for caller in callers:
        caller.join()
    assert found == [2] * 8
    engine.close()


def test_a_storm_of_calls_and_drops_loses_nothing() -> None:
    engine = IdleEngine(Maker(), 0.0005)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for call in range(200):
            if engine.append([call], [number]) != [number, call]:
                wrong.append((number, call))
            if call % 7 == number:
                time.sleep(0.001)

    callers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    engine.close()
    assert wrong == []


@pytest.mark.parametrize("moment", [-1.0, SOON])
def test_a_call_that_is_ended_does_not_wait_for_the_new_engine(moment: float) -> None:
    maker = Maker()
    engine = IdleEngine(maker, SOON)
    until(lambda: not engine.loaded)
    maker.gate.clear()
    call = Call()
    call.end_at(time.monotonic() + moment)
    with pytest.raises(CallEndedError, match="the deadline passed"):
        engine.search("s", beam=1, call=call)
    maker.gate.set()
    assert engine.search("s", beam=1)[0] == 2
    engine.close()


def test_a_fault_reaches_the_caller_and_the_next_call_tries_again() -> None:
    maker = Maker()
    maker.fault = UserError("no such bundle", code="missing")
    with pytest.raises(UserError, match="no such bundle"):
        IdleEngine(maker, SOON)
    maker.fault = None
    engine = IdleEngine(maker, SOON)
    until(lambda: not engine.loaded)
    maker.fault = UserError("gone", code="missing")
    for _ in range(2):
        with pytest.raises(UserError, match="gone"):
            engine.start()
    maker.fault = None
    assert engine.start() == 2
    engine.close()


def test_after_close_every_call_is_refused() -> None:
    engine = IdleEngine(Maker(), LATER)
    engine.close()
    engine.close()
    for call in (engine.start, lambda: engine.append([1], []), lambda: engine.search("s", beam=1)):
        with pytest.raises(UserError, match="the suggester is closed; open the bundle again") as caught:
            call()  # type: ignore[operator]
        assert caught.value.code == "closed"
    assert not engine.loaded


def test_closing_waits_for_the_call_at_work_and_turns_away_those_that_wait() -> None:
    hold = threading.Event()
    engine = IdleEngine(Maker(hold=hold), LATER)
    found: list[Any] = []
    caller = threading.Thread(target=lambda: found.append(engine.search("s", beam=1)))
    caller.start()
    until(lambda: engine._life is not None and engine._life.users == 1)
    closer = threading.Thread(target=engine.close)
    closer.start()
    until(lambda: engine._closed)
    with pytest.raises(UserError, match="closed"):
        engine.start()
    hold.set()
    closer.join()
    caller.join()
    assert found == [(1, "s", None, 1)]

    maker = Maker()
    engine = IdleEngine(maker, SOON)
    until(lambda: not engine.loaded)
    maker.gate.clear()
    codes: list[str] = []

    def refused() -> None:
        with pytest.raises(UserError) as caught:
            engine.start()
        codes.append(caught.value.code)

    waiting = threading.Thread(target=refused)
    waiting.start()
    until(lambda: engine._life is not None)
    closer = threading.Thread(target=engine.close)
    closer.start()
    waiting.join()
    maker.gate.set()
    closer.join()
    assert codes == ["closed"]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_the_time_must_be_above_zero(seconds: float) -> None:
    with pytest.raises(UserError, match=r"`close_after` is .* seconds, and it must be above 0; leave it out to keep"):
        IdleEngine(Maker(), seconds)


def test_endless_patience_is_possible() -> None:
    engine = IdleEngine(Maker(), float("inf"))
    assert engine.start() == 1
    engine.close()


def test_a_bundle_comes_back_with_the_same_answers(tiny_bundle: Path) -> None:
    with Suggester.open(tiny_bundle) as suggester:
        session = suggester.session(["jaguar price", "near me"])
        right = session.suggest("ja", 5).suggestions
    with Suggester.open(tiny_bundle, close_after=SOON) as suggester:
        assert isinstance(suggester.engine, IdleEngine)
        session = suggester.session(["jaguar price", "near me"])
        for _ in range(3):
            assert session.suggest("ja", 5).suggestions == right
            until(lambda: not suggester.engine.loaded)  # type: ignore[attr-defined]


def test_a_bundle_that_was_replaced_meanwhile_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    with Suggester.open(copy, close_after=SOON) as suggester:
        session = suggester.session()
        until(lambda: not suggester.engine.loaded)  # type: ignore[attr-defined]
        manifest = read_manifest(copy)
        write_manifest(copy, "bundle", {"model": manifest["model"], "decoding": manifest["decoding"]})
        with pytest.raises(UserError, match="has been replaced by another bundle since it was opened; open it again"):
            session.suggest("ja")


@pytest.mark.parametrize("close_after", [None, LATER])
def test_a_closed_suggester_says_so(tiny_bundle: Path, close_after: float | None) -> None:
    suggester = Suggester.open(tiny_bundle, close_after=close_after)
    session = suggester.session(["paris hotels"])
    suggester.close()
    suggester.close()
    for call in (
        suggester.session,
        session.suggest,
        lambda: session.suggest("x" * 10_000, 0),
        lambda: session.append("news"),
        lambda: session.log_probability("news"),
    ):
        with pytest.raises(UserError, match="the suggester is closed; open the bundle again"):
            call()  # type: ignore[operator]


def test_a_graph_that_changed_meanwhile_is_refused_and_the_session_goes_on_after_it_is_mended(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    with Suggester.open(copy, close_after=SOON) as suggester:
        session = suggester.session(["paris hotels"])
        for name in ("encode.onnx", "suggest.onnx"):
            until(lambda: not suggester.engine.loaded)  # type: ignore[attr-defined]
            raw = (copy / name).read_bytes()
            (copy / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
            with pytest.raises(UserError, match=f"{name}` is missing, damaged or changed"):
                session.append("near me")
            assert session.queries == ["paris hotels"]
            (copy / name).write_bytes(raw)
        session.append("near me")
        right = suggester.session(["paris hotels", "near me"]).suggest("ja", 5).suggestions
        assert session.suggest("ja", 5).suggestions == right


def test_a_bundle_comes_back_from_another_working_directory(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_bundle.parent)
    with Suggester.open(Path(tiny_bundle.name), close_after=SOON) as suggester:
        session = suggester.session()
        until(lambda: not suggester.engine.loaded)  # type: ignore[attr-defined]
        monkeypatch.chdir(tmp_path)
        assert session.suggest("ja", 3).suggestions


def test_without_its_thread_the_engine_is_made_again() -> None:
    maker = Maker()
    engine = IdleEngine(maker, LATER)
    life = engine._life
    assert life is not None
    own, life.thread = life.thread, threading.Thread()  # what a fork leaves in the child: a thread that does not run
    assert engine.start() == 2
    engine.close()
    own.join(LATER)


def test_where_no_thread_can_be_had_the_next_call_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = IdleEngine(Maker(), SOON)
    until(lambda: not engine.loaded)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.start()
    assert engine.start() == 2
    engine.close()
