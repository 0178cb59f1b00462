"""The APK of `android_demo`: built from a small bundle, signed, aligned, without permissions; and checks that can fail.

Needs a JDK and the SDK parts that `make apk` or `make test-android` fetches.
"""

import importlib.util
import mmap
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).parents[1] / "android_demo"
TOOLS = DEMO / "tools"
SDK = DEMO / "build" / "sdk"
ABI = "arm64-v8a"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHON": sys.executable} | environment
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=env)


def build(bundle: Path, out: Path, tools: Path = TOOLS) -> subprocess.CompletedProcess[str]:
    return run(tools / "build_apk.sh", bundle, out, "--sdk", SDK, "--abis", ABI)


def failures(apk: Path, bundle: Path) -> set[str]:
    """The checks that an APK does not pass."""
    done = run(sys.executable, TOOLS / "check_apk.py", apk, SDK, "--bundle", bundle)
    lines = done.stdout.splitlines()
    bad = {line[4:].split(": ")[0] for line in lines if line.startswith("BAD ")}
    assert done.returncode == bool(bad), done.stdout + done.stderr
    assert "ok  telemetry: no class of that name is wanted" in lines
    return bad


@pytest.fixture(scope="session")
def sdk() -> Path:
    if shutil.which("javac") is None:
        pytest.skip("NOT TESTED: the APK, since `javac` is not installed (JDK 17 or newer)")
    if not (SDK / "complete").exists():
        pytest.skip("NOT TESTED: the APK, since the SDK parts are not here: run `make test-android` once")
    return SDK


@pytest.fixture(scope="session")
def apk(sdk: Path, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("apk")
    done = build(tiny_bundle, out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["mtn-edge-keyboard.apk"]
    return out / "mtn-edge-keyboard.apk"


def altered(apk: Path, to: Path, change: Callable[[str, bytes, int], tuple[bytes, int]], aligned: bool = True) -> Path:
    """A copy of which some entries have another content or compression; its signature holds no more."""
    pack = load("pack_apk")
    with zipfile.ZipFile(apk) as source, zipfile.ZipFile(to, "w") as copy:
        for info in source.infolist():
            content, method = change(info.filename, source.read(info), info.compress_type)
            if aligned:
                pack.put(copy, info.filename, content, method)
            else:
                copy.writestr(zipfile.ZipInfo(info.filename), content, method)
    return to


def test_the_apk_passes_its_checks_and_names_the_size_of_each_part(apk: Path, tiny_bundle: Path) -> None:
    assert failures(apk, tiny_bundle) == set()
    done = run(sys.executable, TOOLS / "check_apk.py", apk, SDK, "--bundle", tiny_bundle)
    rows = [line.rsplit(maxsplit=2) for line in done.stdout.split("\n\n")[1].splitlines()[1:]]
    sizes = {
        name.strip(): (int(stored.replace(",", "")), int(packed.replace(",", ""))) for name, stored, packed in rows
    }
    stored, packed = sizes.pop("whole")
    assert stored == apk.stat().st_size == sum(size for size, _ in sizes.values())
    assert packed == sum(size for _, size in sizes.values()) < stored
    model = sum(path.stat().st_size for path in tiny_bundle.iterdir())
    assert sizes["bundle"][0] == model
    assert sizes[f"native libraries, {ABI}"][0] > 27e6


def test_the_bundle_in_the_apk_is_mapped_byte_for_byte(apk: Path, tiny_bundle: Path) -> None:
    with apk.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with zipfile.ZipFile(apk) as archive:
            places = {info.filename: (info.header_offset, info.file_size) for info in archive.infolist()}
        for path in tiny_bundle.iterdir():
            header, size = places[f"assets/bundle/{path.name}"]
            signature, method, name, extra = struct.unpack("<4s4xH16xHH", mapped[header : header + 30])
            assert (signature, method) == (b"PK\3\4", zipfile.ZIP_STORED)
            begin = header + 30 + name + extra
            assert begin % 4 == 0
            assert mapped[begin : begin + size] == path.read_bytes()


def test_the_same_input_and_key_give_the_same_bytes(apk: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    done = build(tiny_bundle, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / apk.name).read_bytes() == apk.read_bytes()


def test_an_added_permission_is_found(apk: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    """As a library's manifest would bring it."""
    tree = tmp_path / "tree"
    shutil.copytree(DEMO / "keyboard" / "src" / "main", tree / "keyboard" / "src" / "main")
    shutil.copytree(TOOLS, tree / "tools")
    manifest = tree / "keyboard" / "src" / "main" / "AndroidManifest.xml"
    asked = '<uses-permission android:name="android.permission.INTERNET" />'
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("  <application", f"  {asked}\n  <application"), encoding="utf-8")
    done = run(tree / "tools" / "link_resources.sh", SDK, tmp_path / "linked")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "linked" / "base.apk") as linked:
        online = linked.read("AndroidManifest.xml")
    bad = altered(
        apk,
        tmp_path / "bad.apk",
        lambda name, content, method: (online if name == "AndroidManifest.xml" else content, method),
    )
    assert failures(bad, tiny_bundle) == {"permissions", "signature v2", "signature v3"}


def test_a_compressed_model_and_a_changed_one_are_found(apk: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    def change(name: str, content: bytes, method: int) -> tuple[bytes, int]:
        if name == "assets/bundle/encode.onnx":
            return content, zipfile.ZIP_DEFLATED
        return (content[:-1] + b"x" if name == "assets/bundle/suggest.onnx" else content), method

    bad = altered(apk, tmp_path / "bad.apk", change)
    assert failures(bad, tiny_bundle) == {
        *("assets/bundle/encode.onnx", "assets/bundle/suggest.onnx", "signature v2", "signature v3"),
    }


def test_an_unaligned_library_is_found(apk: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    bad = failures(altered(apk, tmp_path / "bad.apk", lambda _, *entry: entry, aligned=False), tiny_bundle)
    assert f"lib/{ABI}/libonnxruntime.so" in bad
    assert "signature v2" in bad


def test_a_bundle_that_does_not_verify_does_not_go_in(sdk: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_bundle, damaged)
    with (damaged / "suggest.onnx").open("ab") as file:
        file.write(b"x")
    done = build(damaged, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"`{damaged}` does not verify, so it does not go into the app; make it again"
    )
    assert list((tmp_path / "out").glob("*.apk")) == []


def test_where_a_key_is_set_an_unsigned_bundle_does_not_go_in(sdk: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="signatures need the extra [sign]")
    tree = tmp_path / "tree"
    shutil.copytree(DEMO, tree, ignore=shutil.ignore_patterns("build", "target"))
    place = tree / "keyboard" / "src" / "main" / "res" / "values" / "bundle_key.xml"
    key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"  # RFC 8032, section 7.1
    place.write_text(place.read_text(encoding="utf-8").replace("></string>", f">{key}</string>"), encoding="utf-8")
    done = build(tiny_bundle, tmp_path / "out", tree / "tools")
    assert done.returncode == 1
    assert "does not verify" in done.stderr
    assert "not signed" in done.stdout + done.stderr


def test_a_missing_tool_is_named_in_one_sentence(tmp_path: Path) -> None:
    needed = ("bash", "env", "dirname", "realpath", "cat")
    for tool in needed:
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    for script, arguments in (("fetch_sdk.sh", ["sdk"]), ("build_apk.sh", ["bundle", "out"])):
        done = run(TOOLS / script, *(tmp_path / name for name in arguments), PATH=str(tmp_path))
        assert done.returncode == 1
        assert done.stderr.startswith("`javac` is missing, and the Android app is built with a JDK (17 or newer)")
        assert len(done.stderr.splitlines()) == 1


def test_nothing_is_fetched_twice(sdk: Path, tmp_path: Path) -> None:
    for tool in ("mvn", "npm"):
        (tmp_path / tool).write_text("#!/bin/sh\nexit 9\n")
        (tmp_path / tool).chmod(0o755)
    done = run(TOOLS / "fetch_sdk.sh", sdk, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
