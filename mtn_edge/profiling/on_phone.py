"""A bundle measured on a connected phone, by the protocol of `protocol` on each type of its cores.

What is needed is pushed into one folder of the phone and removed at the end, whatever happens. Before anything is
timed, the phone answers the bundle's golden vectors: one that computes something else is refused. Then, for each type
of core and held there by `taskset`, fresh processes of the runner open the bundle and end, and a last one types.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mtn_edge import __version__, console
from mtn_edge.errors import GateError, UserError
from mtn_edge.profiling.adb import Phone
from mtn_edge.profiling.golden import agrees, golden_presses
from mtn_edge.profiling.phone import CoreType, Facts, heat, read_facts
from mtn_edge.profiling.protocol import LOADS, Profile, read_result, summarize
from mtn_edge.profiling.runner import CLASSES, LEAST_API, LIBRARIES, MAIN, unpack
from mtn_edge.profiling.worker import SUGGESTIONS, WARM_UP

FOLDER = "/data/local/tmp/mtn-edge-profile"
"""On the phone; what an interrupted run left there is removed by the next one."""


@dataclass(frozen=True)
class Device:
    """A phone that holds the runner.

    Attributes:
        phone: it.
        facts: what it is.
        core_types: those that a process can be held to, the fastest first; none when that is not possible.
        left_out: sentences about what cannot be measured.
    """

    phone: Phone
    facts: Facts
    core_types: tuple[CoreType, ...]
    left_out: tuple[str, ...]


@contextmanager
def prepared(phone: Phone, runner: Path) -> Iterator[Device]:
    """Puts the runner on a phone, and removes everything when the block is left.

    Raises:
        UserError: the phone is too old or full, or the runner is not for it.
    """
    facts = read_facts(phone)
    if facts.api < LEAST_API:
        raise UserError(
            f"the phone `{phone.serial}` has Android {facts.android} (API level {facts.api}), and {LEAST_API} is the"
            " least that bundles run on",
            code="phone-too-old",
            hint="take one with Android 7 or newer",
        )
    try:
        phone.shell(f"rm -rf {FOLDER} && mkdir -p {FOLDER}")
        with tempfile.TemporaryDirectory() as folder:
            phone.push(unpack(runner, facts.abi, Path(folder)), f"{FOLDER}/")
        # Newer Android refuses code that its user could still change.
        phone.shell(f"cd {FOLDER} && chmod 444 {CLASSES} && chmod 555 {' '.join(LIBRARIES)}")
        yield Device(phone, facts, *_usable(phone, facts.core_types))
    finally:
        _remove(phone)


def profile_on_phone(
    device: Device, bundle: Path, sessions: Sequence[list[str]], *, threads: int, progress: Callable[[int], None]
) -> dict[str, Profile]:
    """Measures one bundle.

    Args:
        device: the phone.
        bundle: its folder here.
        sessions: queries to type, session by session, in normal form.
        threads: threads of one call.
        progress: called with the requests answered so far, on all types of cores together.

    Returns:
        What was measured, by the name of the type of core; under an empty name when there are no types.

    Raises:
        UserError: the phone is lost or full, or the runner broke down.
        GateError: the phone's answers to the golden vectors are not the expected ones.
    """
    device.phone.shell(f"rm -rf {FOLDER}/bundle")
    device.phone.push([bundle.resolve()], f"{FOLDER}/bundle")
    typing = {"sessions": list(sessions)}
    count = _check_golden(device, bundle, threads)
    profiles: dict[str, Profile] = {}
    done = 0
    for core_type in device.core_types or (None,):
        before = heat(device.phone)
        loads = [_run(device, {}, threads, core_type) for _ in range(LOADS)]
        measured = _run(device, typing, threads, core_type, partial(_add, progress, done))
        done += len(measured["requests"]) // 4
        machine: dict[str, Any] = device.facts.machine() | {"heat": {"before": before, "after": heat(device.phone)}}
        if core_type is not None:
            machine |= {"core_type": core_type.name, "core_numbers": [*core_type.cores], "ghz": core_type.gigahertz}
        given = {
            "threads": threads,
            "sessions": len(sessions),
            "golden": count,
            "machine": machine,
            "versions": {"mtn-edge": __version__, "onnxruntime": measured["onnxruntime"]},
        }
        profiles[core_type.name if core_type is not None else ""] = summarize(bundle, loads, measured, given)
    return profiles


def about_device(device: Device, profiles: dict[str, Profile]) -> str:
    """How it was measured, in sentences."""
    pinned = [f"{each.name}: cores {', '.join(map(str, each.cores))}" for each in device.core_types]
    held = f"Held by taskset to the cores of one type ({'; '.join(pinned)})." if pinned else "Not held to any core."
    warm = sorted({str(when) for each in profiles.values() for when in each.figures["machine"]["heat"].values()})
    heat_words = "" if warm == ["None"] else f" Held back because of heat: {', '.join(warm)}."
    return " ".join([f"{device.facts.system}.", held + heat_words, *device.left_out])


def _usable(phone: Phone, types: tuple[CoreType, ...]) -> tuple[tuple[CoreType, ...], tuple[str, ...]]:
    """The types of cores that a process can be held to, and why not the others."""
    if not types:
        return (), ("The phone does not tell that its cores differ.",)
    if not phone.succeeds("command -v taskset"):
        return (), ("The phone has no taskset, so its types of cores are not told apart.",)
    usable = tuple(each for each in types if phone.succeeds(f"taskset {each.mask} true"))
    lost = [each.name for each in types if each not in usable]
    return usable, (f"Left out, since adb's shell may not use them: {', '.join(lost)} cores.",) if lost else ()


def _check_golden(device: Device, bundle: Path, threads: int) -> dict[str, int]:
    """How many golden key presses there are, all of which agree."""
    presses, tolerance = golden_presses(bundle)
    asked = [{"session": press.session, "typed": press.typed} for press in presses]
    answers = _run(device, {"golden": asked}, threads, None)["golden"]
    right = sum(
        agrees(press.suggestions, [(text, score) for text, score in found], places=SUGGESTIONS, tolerance=tolerance)
        for press, found in zip(presses, answers, strict=True)
    )
    console.say(f"golden: {right} of {len(presses)}")
    if right < len(presses):
        raise GateError(
            f"the phone `{device.phone.serial}` answers {right} of {len(presses)} golden key presses of `{bundle}` as"
            " expected, and it must be all",
            code="golden-differs",
            hint="do not ship this bundle to such phones: their processor computes something else",
        )
    return {"agree": right, "of": len(presses)}


def _run(
    device: Device,
    work: dict[str, Any],
    threads: int,
    core_type: CoreType | None,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """One process of the runner."""
    job = {
        "bundle": f"{FOLDER}/bundle",
        "threads": threads,
        "suggestions": SUGGESTIONS,
        "warm_up": WARM_UP,
        "sessions": [],
        "golden": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job | work), encoding="utf-8")
        device.phone.push([file], f"{FOLDER}/job.json")
    held = f"taskset {core_type.mask} " if core_type is not None else ""
    command = (
        f"export CLASSPATH={FOLDER}/{CLASSES} LD_LIBRARY_PATH={FOLDER};"
        f" exec {held}app_process / {MAIN} {FOLDER}/job.json"
    )
    with device.phone.start(command) as started:
        result = read_result(started.lines(), progress)
        if result is not None:
            return result
        status, words = started.ended()
    raise device.phone.fault("the runner", status, words)


def _add(progress: Callable[[int], None], earlier: int, now: int) -> None:
    progress(earlier + now)


def _remove(phone: Phone) -> None:
    with suppress(UserError):
        phone.shell(f"rm -rf {FOLDER}", timeout=15)
        return
    console.say(f"what was pushed could not be removed: {FOLDER} stays on the phone until the next run")
