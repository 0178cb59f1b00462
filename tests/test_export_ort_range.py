"""Bundles verify and answer alike on the oldest and on the newest ONNX Runtime that they are made for."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from export.mobile import export_mobile
from export.verify import ORT_RANGE
from mtn_edge.runtime.suggester import Suggester

pytestmark = pytest.mark.slow

OLDEST, FIRST_BEYOND = (".".join(map(str, edge)) for edge in ORT_RANGE)
NEWEST = f"{ORT_RANGE[1][0]}.{ORT_RANGE[1][1] - 1}"
SCORE = 1e-4
"""Largest difference of a log-probability between two versions."""


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def python(version: str, make_environment: Callable[..., Path]) -> Path:
    """The interpreter of an environment with that version of ONNX Runtime."""
    return make_environment(f"onnxruntime=={version}.*")


@pytest.fixture(scope="module", params=["onnx", "ort"])
def bundle(request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "onnx":
        return tiny_bundle
    out = tmp_path_factory.mktemp("range") / "bundle"
    export_mobile(tiny_bundle, out, ort_format=True)
    return out


def run(python: Path, *arguments: str | Path) -> dict[str, object]:
    done = subprocess.run([python, "-m", "mtn_edge", *arguments, "--json"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_a_bundle_verifies_and_answers_as_here(python: Path, version: str, bundle: Path) -> None:
    checks = {check["name"]: check for check in run(python, "verify", bundle)["checks"]}  # type: ignore[attr-defined]
    assert checks["version of onnxruntime"]["value"].startswith(f"{version}.")
    assert all(check["ok"] for check in checks.values())
    with Suggester.open(bundle) as suggester:
        right = suggester.session(["paris hotels", "paris weather"]).suggest("paris ", 4).suggestions
    found = run(python, "suggest", bundle, "-s", "paris hotels", "-s", "paris weather", "-p", "paris ", "-k", "4")
    answers = {entry["text"]: entry["score"] for entry in found["suggestions"]}  # type: ignore[attr-defined]
    assert answers == {each.text: pytest.approx(each.score, abs=SCORE) for each in right}
