"""The code in the README of the Android library compiles, as it stands there, against Android's own classes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[1] / "android_demo" / "suggester"
REPOSITORY = Path.home() / ".m2" / "repository"
ANDROID = "org/robolectric/android-all/15-robolectric-13954326/android-all-15-robolectric-13954326.jar"
JARS = (
    "com/microsoft/onnxruntime/onnxruntime/1.26.0/onnxruntime-1.26.0.jar",
    "com/eclipsesource/minimal-json/minimal-json/0.9.5/minimal-json-0.9.5.jar",
    "net/i2p/crypto/eddsa/0.3.0/eddsa-0.3.0.jar",
)
AROUND = """
import static java.nio.channels.FileChannel.MapMode.READ_ONLY;

import android.content.Context;
import android.content.res.AssetFileDescriptor;
import android.os.Handler;
import android.os.Looper;
import dev.mtnedge.suggester.*;
import java.io.File;
import java.io.FileInputStream;
import java.util.List;

abstract class Search {
    interface Strip {
        void show(List<Suggestion> suggestions);

        void say(String sentence);
    }

    void lift(Context context, Strip strip) {
%s
    }

    void onJvm() throws SuggesterException {
%s
    }
}
"""


def test_the_code_of_the_readme_compiles(tmp_path: Path) -> None:
    android, *jars = (REPOSITORY / jar for jar in (ANDROID, *JARS))
    sdk = LIBRARY.parent / "build" / "sdk" / "android.jar"
    framework = sdk if sdk.is_file() else android
    if shutil.which("javac") is None or not all(jar.is_file() for jar in (framework, *jars)):
        pytest.skip("NOT TESTED: the code of the README, since there is no JDK, android.jar or jar of the library")
    parts = re.findall(r"```java\n(.*?)```", (LIBRARY / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "Search.java").write_text(AROUND % tuple(parts), encoding="utf-8")
    sources = map(str, (LIBRARY / "src" / "main" / "java").rglob("*.java"))
    path = ":".join(map(str, (framework, *jars)))
    command = ["javac", "--release", "8", "-nowarn", "-Xlint:-options,-classfile", "-d", tmp_path, "-cp", path]
    done = subprocess.run([*command, tmp_path / "Search.java", *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
