"""A phone at the other end of `adb`, and a sentence for each thing that can be wrong with the two."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mtn_edge.errors import UserError

READY = "device"
"""The state of a phone that does as it is told."""
_SHORT = 60.0
"""Seconds that a small command may take."""
_LONG = 600.0
"""Seconds that a push may take."""
_UNTRUSTED = ("does not trust this computer yet", "unlock it and allow USB debugging in the window that it shows")
_STATES = {
    "unauthorized": _UNTRUSTED,
    "authorizing": _UNTRUSTED,
    "offline": ("is offline: it is connected and does not answer", "unplug it and plug it in again"),
    "no permissions": ("may not be used by this user", "see `adb devices -l`, mostly a rule for udev is missing"),
}


@dataclass(frozen=True)
class Phone:
    """One phone that is ready.

    Attributes:
        adb: the executable.
        serial: what `adb devices` calls the phone.
    """

    adb: str
    serial: str

    def shell(self, command: str, *, timeout: float = _SHORT) -> str:
        """What a command of the phone's shell prints.

        Raises:
            UserError: the phone does not answer, or the command failed.
        """
        return self._run("shell", command, timeout=timeout)

    def succeeds(self, command: str) -> bool:
        """Whether a command of the phone's shell ends well."""
        return self.shell(f"if {command} >/dev/null 2>&1; then echo yes; fi").strip() == "yes"

    def push(self, sources: Sequence[Path], target: str) -> None:
        """Copies files, or one folder, to the phone.

        Raises:
            UserError: its storage is full, or it does not answer.
        """
        self._run("push", *map(str, sources), target, timeout=_LONG)

    @contextmanager
    def start(self, command: str) -> Iterator[Job]:
        """Runs a command whose input stays open until the block is left, at the latest."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
            process = subprocess.Popen(  # noqa: S603
                [self.adb, "-s", self.serial, "shell", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                encoding="utf-8",
                errors="replace",
            )
            try:
                yield Job(process, words)
            finally:
                process.kill()
                process.communicate()

    def fault(self, what: str, status: int, words: str) -> UserError:
        """Why something did not work: the phone is gone or full, or it said so itself."""
        state = _devices(self.adb).get(self.serial)
        if state != READY:
            return UserError(
                f"the phone `{self.serial}` was lost while it was in use ({state or 'not connected any more'})",
                code="phone-lost",
                hint="connect it and run again; what is left on it is removed then",
            )
        if "No space left" in words:
            return UserError(
                f"the storage of the phone `{self.serial}` is full", code="phone-full", hint="make room and run again"
            )
        lines = words.split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return UserError(
            f"{what} on the phone `{self.serial}` ended with status {status} ({said})",
            code="phone-failed",
            hint="run again with the phone awake; if it stays so, see `adb logcat`",
        )

    def _run(self, verb: str, *arguments: str, timeout: float) -> str:
        done = _adb(self.adb, "-s", self.serial, verb, *arguments, timeout=timeout)
        if done.returncode != 0:
            raise self.fault(f"`adb {verb}`", done.returncode, done.stdout + done.stderr)
        return done.stdout


@dataclass(frozen=True)
class Job:
    """A command at work on the phone.

    Attributes:
        process: `adb` of this machine.
        words: what came on its standard error.
    """

    process: subprocess.Popen[str]
    words: IO[str]

    def lines(self) -> Iterator[str]:
        """What it prints, as it comes."""
        assert self.process.stdout is not None
        yield from self.process.stdout

    def ended(self) -> tuple[int, str]:
        """Its status and its words, once it has ended."""
        status = self.process.wait()
        self.words.seek(0)
        return status, self.words.read()


def connect(serial: str | None) -> Phone:
    """The phone that is connected, or the one that is named.

    Raises:
        UserError: `adb` is not installed, no phone is connected, several are and none is named, or it is not ready.
    """
    adb = shutil.which("adb")
    if adb is None:
        raise UserError(
            "--adb needs the program `adb`, which is not on the PATH",
            code="adb-missing",
            hint="install Android's platform tools",
        )
    devices = _devices(adb)
    names = ", ".join(devices)
    if serial is None:
        if not devices:
            raise UserError(
                "--adb needs a phone, and `adb devices` lists none",
                code="no-phone",
                hint="connect one by USB and switch on USB debugging in its developer options",
            )
        if len(devices) > 1:
            raise UserError(
                f"several phones are connected ({names})", code="several-phones", hint="name one with --serial"
            )
        serial = next(iter(devices))
    elif serial not in devices:
        raise UserError(
            f"the phone `{serial}` is not connected", code="no-phone", hint=f"`adb devices` lists {names or 'none'}"
        )
    state = devices[serial]
    if state != READY:
        known = next((words for name, words in _STATES.items() if state.startswith(name)), None)
        what, hint = known or (f"is in the state `{state}`", "start it as usual and unlock it")
        raise UserError(f"the phone `{serial}` {what}", code="phone-not-ready", hint=hint)
    return Phone(adb, serial)


def _devices(adb: str) -> dict[str, str]:
    """The serials of what is connected, with the state of each."""
    done = _adb(adb, "devices", timeout=_SHORT)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().split("\n")
        raise UserError(
            f"`adb devices` ended with status {done.returncode} ({lines[-1]})",
            code="adb-failed",
            hint="stop its server with `adb kill-server` and run again",
        )
    pairs = (line.partition("\t") for line in done.stdout.split("\n"))
    return {serial: state.strip() for serial, tab, state in pairs if tab}


def _adb(adb: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603
            [adb, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"`adb {' '.join(arguments)[:60]}` has not ended after {timeout:.0f} seconds",
            code="phone-silent",
            hint="unplug the phone, plug it in again and run again",
        ) from error
    except OSError as error:
        raise UserError(
            f"`{adb}` cannot be run ({error.strerror})", code="adb-failed", hint="install Android's platform tools"
        ) from error
