"""What a phone says of itself: model, system, memory, heat, and which of its cores are fast and which are slow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mtn_edge.profiling.adb import Phone

_QUESTIONS = """
for name in ro.product.manufacturer ro.product.model ro.soc.model ro.build.version.release ro.build.version.sdk \
ro.product.cpu.abi; do echo "$name=$(getprop $name)"; done
for core in /sys/devices/system/cpu/cpu[0-9]*; do echo "${core##*/}=$(cat $core/cpufreq/cpuinfo_max_freq 2>/dev/null)"
done
echo "memory=$(grep MemTotal: /proc/meminfo)"
"""
_HEAT = "dumpsys thermalservice 2>/dev/null | grep -i -m 1 'thermal status' || true"
_HEAT_WORDS = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
"""Names of `PowerManager.THERMAL_STATUS_*` in their order."""


class CoreType(NamedTuple):
    """Cores that reach the same frequency."""

    name: str
    """`big`, `middle`, `LITTLE`; `middle` with its frequency where there are several."""
    cores: tuple[int, ...]
    gigahertz: float

    @property
    def mask(self) -> str:
        """The cores as `taskset` takes them: hexadecimal, a bit each."""
        return f"{sum(1 << core for core in self.cores):x}"


@dataclass(frozen=True)
class Facts:
    """One phone.

    Attributes:
        model: maker, model and chip.
        android: version of Android.
        api: its API level.
        abi: the instruction set of its own programs.
        cores: how many there are.
        memory_gb: all of it.
        core_types: the fastest first; none when the phone does not tell its frequencies or all are alike.
    """

    model: str
    android: str
    api: int
    abi: str
    cores: int
    memory_gb: float
    core_types: tuple[CoreType, ...]

    @property
    def system(self) -> str:
        """Version of Android and instruction set."""
        return f"Android {self.android} (API level {self.api}) {self.abi}"

    def machine(self) -> dict[str, str | int | float]:
        """In the words of `machine.describe_machine`."""
        return {
            "cpu": self.model,
            "cores": self.cores,
            "memory_gb": self.memory_gb,
            "system": self.system,
        }


def read_facts(phone: Phone) -> Facts:
    """Asks a phone what it is."""
    pairs = (line.strip().partition("=") for line in phone.shell(_QUESTIONS).split("\n"))
    told = {name: value.strip() for name, equal, value in pairs if equal}
    frequencies = {
        int(found[1]): int(value) if value.isdigit() else None
        for name, value in told.items()
        if (found := re.fullmatch(r"cpu(\d+)", name))
    }
    maker, model, chip = (told.get(f"ro.{name}", "") for name in ("product.manufacturer", "product.model", "soc.model"))
    known = all(value is not None for value in frequencies.values())
    kilobytes = re.search(r"\d+", told.get("memory", ""))
    api = told.get("ro.build.version.sdk", "")
    return Facts(
        model=f"{maker} {model}".strip() + (f" ({chip})" if chip else ""),
        android=told.get("ro.build.version.release", "unknown"),
        api=int(api) if api.isdigit() else 0,
        abi=told.get("ro.product.cpu.abi", "unknown"),
        cores=max(len(frequencies), 1),
        memory_gb=round(int(kilobytes[0]) * 1024 / 1e9, 1) if kilobytes else 0.0,
        core_types=core_types({core: value for core, value in frequencies.items() if value}) if known else (),
    )


def core_types(kilohertz: Mapping[int, int]) -> tuple[CoreType, ...]:
    """Sorts cores by the highest frequency that each reaches, the fastest first; none when all are alike.

    Args:
        kilohertz: by number of the core.
    """
    levels = sorted(set(kilohertz.values()), reverse=True)
    if len(levels) < 2:
        return ()
    found = []
    for place, level in enumerate(levels):
        name = "big" if place == 0 else "LITTLE" if place == len(levels) - 1 else "middle"
        if name == "middle" and len(levels) > 3:
            name = f"middle {level / 1e6:.2f} GHz"
        cores = tuple(sorted(core for core, value in kilohertz.items() if value == level))
        found.append(CoreType(name, cores, level / 1e6))
    return tuple(found)


def heat(phone: Phone) -> str | None:
    """How much the phone holds back because it is hot, in Android's words; None when it does not tell."""
    found = re.search(r"(\d+)\s*$", phone.shell(_HEAT).strip())
    if found is None or int(found[1]) >= len(_HEAT_WORDS):
        return None
    return _HEAT_WORDS[int(found[1])]
