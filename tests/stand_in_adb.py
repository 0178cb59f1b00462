"""A stand-in for `adb` and the phone behind it: a folder for its storage, the host's shell for its own, a JVM for ART.

`STAND_IN` names a folder with `phone.json` (see `tests/test_profiling_adb.py`), `root/` (the phone's files) and `bin/`
(its programs).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["STAND_IN"])
ROOT = HOME / "root"
PHONE = json.loads((HOME / "phone.json").read_text(encoding="utf-8"))
GONE = HOME / "gone"


def here(path: str) -> str:
    """Where something of the phone lies on this machine."""
    return path.replace("/data/local/tmp", f"{ROOT}/data/local/tmp").replace("/sys/", f"{ROOT}/sys/")


def devices() -> int:
    sys.stdout.write("* daemon started successfully\nList of devices attached\n")
    for serial, state in [] if GONE.exists() else PHONE["devices"]:
        sys.stdout.write(f"{serial}\t{state}\n")
    sys.stdout.write("\n")
    return PHONE.get("devices_status", 0)


def push(sources: list[str], target: str) -> int:
    if "push_fails" in PHONE:
        sys.stderr.write(f"adb: error: failed to copy: {PHONE['push_fails']}\n")
        return 1
    place = Path(here(target))
    for source in map(Path, sources):
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copy(source, place / source.name if target.endswith("/") else place)
    return 0


def shell(command: str) -> int:
    environment = {"PATH": str(HOME / "bin"), "HOME": str(HOME), "STAND_IN": str(HOME)}
    with (HOME / "commands").open("a", encoding="utf-8") as log:
        log.write(command.replace("\n", " ") + "\n")
    arguments = [PHONE["shell"], "-c", here(command)]
    if "app_process" not in command:
        return subprocess.run(arguments, env=environment, check=False).returncode
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"done"') and PHONE.get("then") is not None:
                process.kill()
                if PHONE["then"] == "vanish":
                    GONE.touch()
                sys.stderr.write("Killed\n")
                return 137
            sys.stdout.write(line.replace('[["', '[["not ') if PHONE.get("lies") else line)
            sys.stdout.flush()
    return process.returncode


def main() -> int:
    words = sys.argv[1:]
    if words == ["devices"]:
        return devices()
    assert words[0] == "-s"
    serial, verb, *rest = words[1:]
    assert verb in ("push", "shell")
    if GONE.exists() or serial not in [name for name, state in PHONE["devices"] if state == "device"]:
        sys.stderr.write(f"error: device '{serial}' not found\n")
        return 1
    return shell(*rest) if verb == "shell" else push(rest[:-1], rest[-1])


sys.exit(main())
