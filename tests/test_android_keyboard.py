"""The Android keyboard of `android_demo/keyboard` on a JVM: the real service in its window, with a real bundle."""

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "android_demo"
KEYBOARD = DEMO / "keyboard"
SDK = DEMO / "build" / "sdk"
PICTURES = ("light", "dark", "landscape", "password")


@pytest.fixture(scope="session")
def maven() -> list[str]:
    """The command that builds and tests the keyboard without a network."""
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"NOT TESTED: the Android keyboard, since `{tool}` is not installed (JDK 17, Maven)")
    for part in ("aapt2", "android.jar"):
        if not (SDK / part).exists():
            pytest.skip(f"NOT TESTED: the Android keyboard, since `{SDK / part}` is missing: run tools/fetch_sdk.sh once")
    command = ["mvn", "--offline", "--batch-mode", "--quiet", f"--file={KEYBOARD / 'pom.xml'}"]
    ready = subprocess.run([*command, "test-compile"], capture_output=True, text=True, check=False)
    if "offline" in ready.stdout:
        pytest.skip(f"NOT TESTED: the Android keyboard, since its jars are not here: run `mvn -f {KEYBOARD} test` once")
    assert ready.returncode == 0, ready.stdout
    return command


@pytest.mark.slow
def test_the_keyboard_types_suggests_forgets_and_survives(maven: list[str], tiny_bundle: Path) -> None:
    """Runs every test of the keyboard; each has to have run, none may have been skipped."""
    shutil.rmtree(KEYBOARD / "target" / "surefire-reports", ignore_errors=True)
    shutil.rmtree(KEYBOARD / "target" / "screenshots", ignore_errors=True)
    done = subprocess.run(
        [*maven, "test", f"-Dbundle={tiny_bundle}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    suites = [ElementTree.parse(file).getroot() for file in (KEYBOARD / "target" / "surefire-reports").glob("*.xml")]
    ran = {suite.attrib["name"].rsplit(".", 1)[1]: int(suite.attrib["tests"]) for suite in suites}
    assert set(ran) >= {file.stem for file in (KEYBOARD / "src/test/java/dev/mtnedge/keyboard").glob("*Test.java")}
    assert all(ran.values())
    assert sum(int(suite.attrib["skipped"]) for suite in suites) == 0
    for name in PICTURES:
        assert (KEYBOARD / "target" / "screenshots" / f"keyboard-{name}.png").read_bytes().startswith(b"\x89PNG")
