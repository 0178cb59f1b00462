"""Checks what can be proved of an APK without a phone, and prints the size of its parts.

    check_apk.py APK SDK --bundle BUNDLE

No permission is asked for or defined; the keyboard and the settings page are there; the signature holds (schemes v2 and
v3); native libraries and the bundle are stored, where a phone with pages of 16 KB maps them from; the bundle is BUNDLE,
byte for byte; nothing reports usage. Exit status 1 when a check fails.
"""

import argparse
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

PAGE = 16384
STORED_GOAL, COMPRESSED_GOAL = 34e6, 17e6
"""Bytes of the app for one ABI of phones, as it lies on the phone and as it is downloaded."""
PHONES = ("arm64-v8a", "armeabi-v7a")
WANTED_CLASSES = (b"Ldev/mtnedge/keyboard/MtnKeyboardService;", b"Ldev/mtnedge/keyboard/SettingsActivity;")
LIBRARIES = {"libonnxruntime.so", "libonnxruntime4j_jni.so"}
ASSETS = "assets/bundle/"

Check = tuple[str, bool, str]
"""Name, whether it holds, what was found."""


def output(*command: object) -> str:
    """What a tool prints."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False).stdout


def offset(apk: Path, info: zipfile.ZipInfo) -> int:
    """Where the content of an entry begins."""
    with apk.open("rb") as raw:
        raw.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", raw.read(4))
    return info.header_offset + zipfile.sizeFileHeader + int(name) + int(extra)


def elf_alignment(library: bytes) -> int:
    """The smallest alignment of the segments that are loaded."""
    is64 = library[4] == 2
    (start,) = struct.unpack_from("<Q" if is64 else "<I", library, 32 if is64 else 28)
    size, count = struct.unpack_from("<HH", library, 54 if is64 else 42)
    alignments = []
    for at in range(start, start + size * count, size):
        if struct.unpack_from("<I", library, at)[0] == 1:  # PT_LOAD
            alignments += struct.unpack_from("<Q" if is64 else "<I", library, at + (48 if is64 else 28))
    return int(min(alignments))


def manifest_checks(apk: Path, sdk: Path) -> Iterator[Check]:
    """What the manifest says, after everything was merged."""
    badging = output(sdk / "aapt2", "dump", "badging", apk)
    lines = output(sdk / "aapt2", "dump", "permissions", apk).splitlines()
    permissions = [line for line in lines if "permission" in line]
    yield "permissions", lines[:1] == ["package: dev.mtnedge.keyboard"] and not permissions, str(permissions or "none")
    merged = (sdk / "ort" / "AndroidManifest.xml").read_text(encoding="utf-8")
    added = re.findall(r"<(?!/|\?|!|manifest|uses-sdk|application)[\w-]+", merged)
    yield "manifest of ONNX Runtime", not added, f"adds {added or 'nothing'}"
    for name, wanted in (
        ("keyboard", "provides-component:'ime'"),
        ("launcher entry", "launchable-activity: name='dev.mtnedge.keyboard.SettingsActivity'"),
        ("oldest Android", "minSdkVersion:'24'"),
        ("newest Android", "targetSdkVersion:'35'"),
    ):
        yield name, wanted in badging, wanted
    tree = output(sdk / "aapt2", "dump", "xmltree", "--file", "AndroidManifest.xml", apk)
    for flag in ("extractNativeLibs", "allowBackup"):
        yield flag, re.search(rf":{flag}\(\w+\)=false", tree) is not None, "false is wanted"


def signature_checks(apk: Path, sdk: Path) -> Iterator[Check]:
    """Who signed it, and that nothing changed since."""
    said = output("java", "-jar", sdk / "apksigner.jar", "verify", "--verbose", "--min-sdk-version", 24, apk)
    for scheme in ("v2", "v3"):
        holds = re.search(rf"^Verified using {scheme} scheme .*: true$", said, re.MULTILINE) is not None
        yield f"signature {scheme}", said.startswith("Verifies") and holds, "verified" if holds else said[:200]


def library_checks(apk: Path, archive: zipfile.ZipFile) -> Iterator[Check]:
    """Native libraries: a set for each ABI, mapped out of the APK on pages of 16 KB."""
    found: dict[str, set[str]] = {}
    for info in archive.infolist():
        if not info.filename.startswith("lib/"):
            continue
        _, abi, name = info.filename.split("/")
        found.setdefault(abi, set()).add(name)
        at, alignment = offset(apk, info), elf_alignment(archive.read(info))
        fits = info.compress_type == zipfile.ZIP_STORED and at % PAGE == 0 and alignment % PAGE == 0
        yield info.filename, fits, f"{way(info)}, at {at} (mod 16384: {at % PAGE}), segments on {alignment}"
    yield "ABIs", bool(found) and all(names == LIBRARIES for names in found.values()), ", ".join(found)


def way(info: zipfile.ZipInfo) -> str:
    """How an entry is kept."""
    return "stored" if info.compress_type == zipfile.ZIP_STORED else "compressed"


def asset_checks(apk: Path, archive: zipfile.ZipFile, bundle: Path) -> Iterator[Check]:
    """The bundle: the same bytes, stored, where they can be mapped; and nothing else."""
    wanted = {path.relative_to(bundle).as_posix(): path for path in bundle.rglob("*") if path.is_file()}
    assets = {info.filename: info for info in archive.infolist() if info.filename.startswith("assets/")}
    yield "files of the bundle", assets.keys() == {ASSETS + name for name in wanted}, f"{len(assets)} in the assets"
    for name, path in wanted.items():
        info = assets.get(ASSETS + name)
        if info is not None:
            at = offset(apk, info)
            fits = info.compress_type == zipfile.ZIP_STORED and at % 4 == 0 and archive.read(info) == path.read_bytes()
            yield info.filename, fits, f"{way(info)}, at {at}"
    table = archive.getinfo("resources.arsc")
    stored = table.compress_type == zipfile.ZIP_STORED and offset(apk, table) % 4 == 0
    yield "resources.arsc", stored, way(table)


def code_checks(archive: zipfile.ZipFile) -> Iterator[Check]:
    """The classes."""
    dex = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".dex"))
    missing = [name.decode() for name in WANTED_CLASSES if name not in dex]
    yield "classes", not missing, f"missing: {missing or 'none'}"
    yield "telemetry", b"Lai/onnxruntime/Telemetry" not in dex, "no class of that name is wanted"


def part(name: str) -> str:
    """The part of the app that an entry belongs to."""
    if name.startswith("lib/"):
        return f"native libraries, {name.split('/')[1]}"
    if name.startswith(ASSETS):
        return "bundle"
    return "code (dex)" if name.endswith(".dex") else "resources, manifest, signature"


def sizes(apk: Path, archive: zipfile.ZipFile) -> dict[str, tuple[int, int]]:
    """Bytes of each part, as it lies in the APK and as a store would send it; together they are the whole file."""
    table: dict[str, tuple[int, int]] = {}
    for info in archive.infolist():
        packed = info.compress_size
        if info.compress_type == zipfile.ZIP_STORED:
            packed = len(zlib.compress(archive.read(info)))
        stored, compressed = table.get(part(info.filename), (0, 0))
        table[part(info.filename)] = stored + info.compress_size, compressed + packed
    rest = apk.stat().st_size - sum(stored for stored, _ in table.values())
    stored, compressed = table["resources, manifest, signature"]
    return table | {"resources, manifest, signature": (stored + rest, compressed + rest)}


def size_checks(table: dict[str, tuple[int, int]]) -> Iterator[Check]:
    """The goals for the app of one ABI of phones; x86_64, of emulators, has the largest library and none."""
    shared = [size for name, size in table.items() if not name.startswith("native")]
    for name, size in table.items():
        if name.startswith("native"):
            stored, compressed = (sum(each) for each in zip(size, *shared, strict=True))
            fits = name[18:] not in PHONES or (stored <= STORED_GOAL and compressed <= COMPRESSED_GOAL)
            yield f"size for {name[18:]}", fits, f"{stored / 1e6:.1f} MB stored, {compressed / 1e6:.1f} MB compressed"


def main() -> int:
    """Prints the checks and the sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("apk", type=Path)
    parser.add_argument("sdk", type=Path)
    parser.add_argument("--bundle", type=Path, required=True)
    given = parser.parse_args()
    with zipfile.ZipFile(given.apk) as archive:
        table = sizes(given.apk, archive)
        checks = [
            *manifest_checks(given.apk, given.sdk),
            *signature_checks(given.apk, given.sdk),
            *library_checks(given.apk, archive),
            *asset_checks(given.apk, archive, given.bundle),
            *code_checks(archive),
            *size_checks(table),
        ]
    for name, holds, found in checks:
        sys.stdout.write(f"{'ok ' if holds else 'BAD'} {name}: {found}\n")
    sys.stdout.write(f"\n{'part':<36}{'in the APK':>14}{'compressed':>14}\n")
    for name, (stored, compressed) in [*table.items(), ("whole", tuple(map(sum, zip(*table.values(), strict=True))))]:
        sys.stdout.write(f"{name:<36}{stored:>14,}{compressed:>14,}\n")
    return 0 if all(holds for _, holds, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
