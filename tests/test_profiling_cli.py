import json
import re
import shutil
import subprocess
import sys
from pathlib import Path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtn_edge", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_profile_of_two_bundles_with_a_page(tiny_bundle: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(tiny_bundle, twin)
    page = tmp_path / "page.html"
    done = run("profile", tiny_bundle, twin, "--report", page, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document) == ["bundle", "twin"]
    for figures in document.values():
        assert {"bytes", "load_ms", "rss_mb", "encode_ms", "suggest_ms", "keystroke_ms"} <= set(figures)
        assert {"p50", "p95", "p99"} <= set(figures["keystroke_ms"])
        assert figures["threads"] == 1
    assert document["bundle"]["keystroke_ms"]["count"] == document["twin"]["keystroke_ms"]["count"] > 100
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 4
    assert "Cost of bundle, twin" in html
    assert not re.search(r"(src|href)\s*=\s*[\"']https?:", html)
    assert f"{document['twin']['keystroke_ms']['p99']:.2f} ms" in html


def test_profile_of_held_out_queries_in_words(tiny_bundle: Path, tiny_dataset: Path) -> None:
    done = run("profile", tiny_bundle, "--data", tiny_dataset)
    assert done.returncode == 0, done.stderr
    assert re.search(r"suggest, a key pressed: p50 / p95 / p99 +[0-9.]+ / [0-9.]+ / [0-9.]+ ms", done.stdout)
    assert "of the test split of dataset, 8 suggestions each, 1 thread, after a warm-up of 50" in done.stdout


def test_faults_are_sentences(tiny_bundle: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    done = run("profile", tiny_dataset)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is a dataset, not a bundle" in done.stderr
    hurt = tmp_path / "hurt"
    shutil.copytree(tiny_bundle, hurt)
    with (hurt / "suggest.onnx").open("r+b") as handle:
        handle.seek(100)
        handle.write(b"\xff\x00")
    done = run("profile", hurt, "--json")
    assert done.returncode == 1
    assert f"`{hurt / 'suggest.onnx'}` is missing, damaged or changed" in json.loads(done.stdout)["error"]["message"]


def test_a_folder_in_the_way_of_the_page(tiny_bundle: Path, tmp_path: Path) -> None:
    done = run("profile", tiny_bundle, "--report", tmp_path)
    assert done.returncode == 1
    assert "is a folder; name a file with --report" in done.stderr


def test_profiling_imports_no_torch() -> None:
    modules = "mtn_edge.profiling.worker, mtn_edge.profiling.protocol, mtn_edge.profiling.report"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
