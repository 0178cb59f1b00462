"""A list that changes under the line as one types, on a terminal.

The search runs beside the key handling, on one worker thread. Each change of the line has a number; an answer whose
number is not the newest is dropped, and a question that went stale before it was asked is never asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, VSplit, Window

from mtn_edge.errors import UserError
from mtn_edge.runtime.suggester import Session, SuggestResult

_SHOWN_QUERIES = 5
_KEYS = "Tab, arrows: choose · Enter: take it, or search the line · Ctrl-C: leave"


Ask = Callable[[str], SuggestResult]
"""Makes the list for a typed text: `Session.suggest` with what else it takes."""


def run(session: Session, ask: Ask) -> None:
    """Reads lines until Ctrl-C or Ctrl-D; each becomes a query of `session`."""
    prompt = _Prompt(session, ask)
    try:
        prompt.application.run()
    finally:
        prompt.close()


_MARKS = {"model": "", "completions": "  popular", "typo": "  another spelling"}


class _Prompt:
    def __init__(self, session: Session, ask: Ask) -> None:
        self._session, self._suggest = session, ask
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._newest = 0
        self._result: SuggestResult | None = None
        self._fault = ""
        self._chosen: int | None = None
        self._line = Buffer(multiline=False, on_text_changed=lambda _: self._ask())
        prompt = Window(FormattedTextControl("> "), width=2, dont_extend_width=True)
        self.application: Application[None] = Application(
            layout=Layout(
                HSplit(
                    [
                        _window(self._show_session),
                        VSplit([prompt, Window(BufferControl(self._line), height=1)]),
                        _window(self._show_list),
                        _window(self._show_status),
                    ]
                )
            ),
            key_bindings=self._keys(),
        )
        self.application.pre_run_callables.append(self._ask)

    def close(self) -> None:
        """Drops what is not answered yet."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("tab")
        @keys.add("down")
        def _next(_: KeyPressEvent) -> None:
            self._move(1)

        @keys.add("s-tab")
        @keys.add("up")
        def _previous(_: KeyPressEvent) -> None:
            self._move(-1)

        @keys.add("enter")
        def _enter(_: KeyPressEvent) -> None:
            self._take_or_submit()

        @keys.add("c-c")
        @keys.add("c-d")
        def _leave(event: KeyPressEvent) -> None:
            event.app.exit()

        return keys

    def _move(self, by: int) -> None:
        """Goes through the list and the line itself in a circle."""
        places = [None, *range(len(self._result.suggestions))] if self._result else [None]
        self._chosen = places[(places.index(self._chosen) + by) % len(places)]

    def _take_or_submit(self) -> None:
        if self._chosen is not None and self._result is not None:
            text = self._result.suggestions[self._chosen].text
            self._line.text = text
            self._line.cursor_position = len(text)
        elif self._line.text.strip():
            query = self._line.text
            self._line.reset()
            self._ask(lambda: self._session.append(query))

    def _ask(self, before: Callable[[], None] | None = None) -> None:
        """Asks for the list of the line as it is now, after doing what must come `before`."""
        self._newest += 1
        number, text = self._newest, self._line.text
        self._chosen = None

        def work() -> SuggestResult | None:
            if before is not None:
                before()
            if number != self._newest:
                return None
            return self._suggest(text)

        async def show() -> None:
            try:
                result = await asyncio.get_running_loop().run_in_executor(self._worker, work)
            except UserError as error:
                self._fault = str(error)
            else:
                if number != self._newest or result is None:
                    return
                self._result, self._fault = result, ""
            self.application.invalidate()

        self.application.create_background_task(show())

    def _show_session(self) -> StyleAndTextTuples:
        return [("fg:ansibrightblack", f"  {query}\n") for query in self._session.queries[-_SHOWN_QUERIES:]]

    def _show_list(self) -> StyleAndTextTuples:
        parts: StyleAndTextTuples = []
        for place, suggestion in enumerate(self._result.suggestions if self._result else ()):
            style = "reverse" if place == self._chosen else ""
            mark = _MARKS[suggestion.source]
            parts += [(style, f"  {suggestion.text}"), ("fg:ansibrightblack", f"{mark}\n")]
        return parts

    def _show_status(self) -> StyleAndTextTuples:
        if self._fault:
            return [("fg:ansired", self._fault)]
        if self._result is None:
            return [("fg:ansibrightblack", _KEYS)]
        notes = [f"{self._result.elapsed_ms:.1f} ms", *([self._result.reason] if self._result.reason else []), _KEYS]
        return [("fg:ansibrightblack", " · ".join(notes))]


def _window(show: Callable[[], StyleAndTextTuples]) -> Window:
    return Window(FormattedTextControl(show), dont_extend_height=True)
