"""The live list: keys in, the right list shown, late answers dropped; and the whole command once on a real terminal."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from mtn_edge.errors import UserError
from mtn_edge.runtime.interactive import _Prompt
from mtn_edge.runtime.suggester import Suggestion, SuggestResult

pty = pytest.importorskip("pty", reason="pseudo-terminals need a Unix system")
PATIENCE = 30.0


class SlowSession:
    """A session that answers `acho` late, and remembers what it was asked."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.asked: list[str] = []
        self.options: dict[str, float | None] = {}

    def append(self, query: str) -> None:
        if query == "bad":
            raise UserError("an earlier query is bad", code="bad-text", hint="leave it out")
        self.queries.append(query)

    def suggest(self, prefix: str = "", k: int = 8, **options: float | None) -> SuggestResult:
        self.asked.append(prefix)
        self.options = options
        if prefix == "acho":
            time.sleep(0.5)
        found = [Suggestion(f"{prefix} {n}", -1.0 - n, "model" if n else "completions") for n in range(k)]
        return SuggestResult(found, prefix, self.queries, None, 1.0)


class Typist:
    """Presses keys and waits for what they lead to."""

    def __init__(self, keys: PipeInput, prompt: _Prompt, session: SlowSession) -> None:
        self.keys, self.prompt, self.session = keys, prompt, session

    def press(self, text: str, until: Callable[[], bool]) -> None:
        self.keys.send_text(text)
        end = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < end, f"nothing came of {text!r}"
            time.sleep(0.005)

    def shown(self) -> str | None:
        return self.prompt._result.prefix if self.prompt._result else None


@pytest.fixture
def typist() -> Iterator[Typist]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        session = SlowSession()
        prompt = _Prompt(session, partial(session.suggest, k=3, deadline_ms=250.0, min_probability=0.1))  # type: ignore[arg-type]
        thread = threading.Thread(target=lambda: prompt.application.run(handle_sigint=False))
        thread.start()
        yield Typist(keys, prompt, session)
        keys.send_text("\x04")
        thread.join(PATIENCE)
        assert not thread.is_alive()
        prompt.close()


def test_a_chosen_suggestion_becomes_the_line_and_then_a_query(typist: Typist) -> None:
    prompt, session = typist.prompt, typist.session
    typist.press("", lambda: typist.shown() == "")
    typist.press("new", lambda: typist.shown() == "new")
    assert session.options == {"deadline_ms": 250.0, "min_probability": 0.1}
    typist.press("\t\t", lambda: prompt._chosen == 1)
    typist.press("\x1b[A\x1b[A\x1b[A", lambda: prompt._chosen == 2)  # up, through the line, to the last
    typist.press("\r", lambda: typist.shown() == "new 2")
    assert (prompt._line.text, prompt._chosen, session.queries) == ("new 2", None, [])
    typist.press("\r", lambda: session.queries == ["new 2"] and typist.shown() == "")
    assert prompt._line.text == ""
    assert "".join(part[1] for part in prompt._show_session()) == "  new 2\n"
    assert "".join(part[1] for part in prompt._show_list()) == "   0  popular\n   1\n   2\n"
    assert "1.0 ms" in "".join(part[1] for part in prompt._show_status())


def test_the_last_list_shown_belongs_to_the_last_key(typist: Typist) -> None:
    typist.press("", lambda: typist.shown() == "")
    typist.press("ach", lambda: typist.shown() == "ach")
    typist.press("o", lambda: "acho" in typist.session.asked)
    typist.press("o", lambda: typist.shown() is not None and typist.shown() != "ach")
    assert typist.shown() == "achoo"
    assert typist.session.asked[-2:] == ["acho", "achoo"]


def test_a_query_that_is_refused_says_why(typist: Typist) -> None:
    typist.press("bad", lambda: typist.shown() == "bad")
    typist.press("\r", lambda: bool(typist.prompt._fault))
    assert typist.prompt._show_status()[0][1] == "an earlier query is bad; leave it out."
    typist.press("x", lambda: typist.shown() == "x")
    assert not typist.prompt._fault


def test_the_command_on_a_terminal(tiny_bundle: Path) -> None:
    import termios

    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    process = subprocess.Popen(
        [sys.executable, "-m", "mtn_edge", "suggest", str(tiny_bundle), "-k", "3", "-s", "paris hotels"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        start_new_session=True,
    )
    os.close(theirs)
    output = b""

    def read(until: Callable[[bytes], bool]) -> None:
        nonlocal output
        while not until(output):
            try:
                part = os.read(mine, 4096)
            except OSError:  # the other end is closed
                return
            output += part

    reader = threading.Thread(target=read, args=(lambda seen: b"Ctrl-C: leave" in seen and b" ms " in seen,))
    reader.start()
    reader.join(PATIENCE)
    assert b"  paris hotels" in output
    os.write(mine, b"pa\t\r\r\x04")
    rest = threading.Thread(target=read, args=(lambda _: False,))
    rest.start()
    assert process.wait(PATIENCE) == 0
    rest.join(PATIENCE)
    os.close(mine)
    assert b"error" not in output.lower()
    assert b"Traceback" not in output
