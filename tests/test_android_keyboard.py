"""The Android keyboard of `android_demo/keyboard` on a JVM: the real service in its window, with a real bundle."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "android_demo"
KEYBOARD = DEMO / "keyboard"
SDK = DEMO / "build" / "sdk"
REPORTS = KEYBOARD / "target" / "surefire-reports"
PICTURES = ("light", "dark", "landscape", "password")


@pytest.fixture(scope="session")
def maven() -> list[str]:
    """The command that builds and tests the keyboard without a network."""
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"NOT TESTED: the Android keyboard, since `{tool}` is not installed (JDK 17, Maven)")
    for part in ("aapt2", "android.jar"):
        if not (SDK / part).exists():
            pytest.skip(
                f"NOT TESTED: the Android keyboard, since `{SDK / part}` is missing: run `make test-android` once"
            )
    command = ["mvn", "--offline", "--batch-mode", "--quiet", f"--file={KEYBOARD / 'pom.xml'}"]
    ready = subprocess.run([*command, "test-compile"], capture_output=True, text=True, check=False)
    if "offline" in ready.stdout:
        pytest.skip("NOT TESTED: the Android keyboard, since its jars are not here: run `make test-android` once")
    assert ready.returncode == 0, ready.stdout
    return command


def test_the_keyboard_types_suggests_forgets_and_survives(maven: list[str], tiny_bundle: Path) -> None:
    """Runs every test of the keyboard; each has to have run, none may have been skipped."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    shutil.rmtree(KEYBOARD / "target" / "screenshots", ignore_errors=True)
    done = subprocess.run([*maven, "test", f"-Dbundle={tiny_bundle}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = {file.name.split(".")[-2]: file.read_text("utf-8") for file in REPORTS.glob("*.txt")}
    assert set(reports) >= {file.stem for file in (KEYBOARD / "src/test/java/dev/mtnedge/keyboard").glob("*Test.java")}
    for name, report in reports.items():
        assert re.search(r"Tests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: 0,", report), (name, report)
    for name in PICTURES:
        assert (KEYBOARD / "target" / "screenshots" / f"keyboard-{name}.png").read_bytes().startswith(b"\x89PNG")
