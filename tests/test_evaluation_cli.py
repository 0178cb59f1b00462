import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="datasets are read with the extra [train]")

from mtn_edge import folders
from mtn_edge.pages.page import GENERATOR

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the command line in this process: status, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        from mtn_edge import cli

        monkeypatch.setattr("sys.argv", ["mtn-edge", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


MEASURES = {"mrr@10", "success@1", "success@10", "pmrr@10", "bleu", "bleu_precisions", "perplexity", "keystrokes_saved"}


def test_json_is_the_contract(run: Run, tiny_dataset: Path, tiny_bundle: Path, tiny_checkpoint: Path) -> None:
    status, out, err = run(
        "evaluate", tiny_dataset, tiny_bundle, tiny_checkpoint, "--json", "--max-queries", 60, "--baselines", "mpc"
    )
    assert status == 0
    document = json.loads(out)
    assert set(document) == {"suggest", "complete"}
    for task, systems in document.items():
        assert list(systems) == ["mpc", "bundle", "checkpoint"]
        for name, figures in systems.items():
            assert set(figures) == MEASURES | {"n", "ci95", "slices", "protocol"}
            given = {measure for measure in MEASURES if figures[measure] is not None}
            absent = {"suggest": {"keystrokes_saved"}, "complete": {"bleu", "bleu_precisions", "perplexity"}}[task]
            assert given == MEASURES - absent - ({"perplexity"} if name == "mpc" else set())
            assert set(figures["ci95"]) == given - {"bleu_precisions"}
            for measure, (low, high) in figures["ci95"].items():
                assert low <= figures[measure] <= high
            assert 0 < figures["protocol"]["targets"] <= 60
    assert document["suggest"]["bundle"]["n"] == document["suggest"]["bundle"]["protocol"]["targets"]
    assert "60 of 60 queries" in err or "queries/s" in err
    # The model that read the session must beat the list that did not; a checkpoint is about what its bundle is.
    suggest = {name: figures["mrr@10"] for name, figures in document["suggest"].items()}
    assert suggest["bundle"] > suggest["mpc"]
    assert suggest["checkpoint"] == pytest.approx(suggest["bundle"], abs=0.1)
    perplexities = [document["suggest"][name]["perplexity"] for name in ("bundle", "checkpoint")]
    assert perplexities[0] == pytest.approx(perplexities[1], rel=0.05)


def test_same_seed_same_figures(run: Run, tiny_dataset: Path, tiny_bundle: Path) -> None:
    call = ("evaluate", tiny_dataset, tiny_bundle, "--json", "--max-queries", 30, "--task", "complete", "--seed")
    first, again, other = (run(*call, seed)[1] for seed in (1, 1, 2))
    assert first == again
    assert json.loads(first) != json.loads(other)


def test_report_is_one_page_that_fetches_nothing(
    run: Run, tiny_dataset: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    page = tmp_path / "deep" / "report.html"
    status, out, _ = run("evaluate", tiny_dataset, tiny_bundle, "--max-queries", 30, "--report", page)
    assert status == 0
    html = page.read_text(encoding="utf-8")
    assert GENERATOR in html[:1000]
    assert html.count("<svg") == 5
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", outside)
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', html)
    assert references
    assert set(references) <= set(identifiers)
    assert not list(page.parent.glob(".*"))
    figure = re.search(r"MRR@10 +([0-9.]+) \[", out)
    assert figure is not None
    assert figure[1] in html

    before = page.read_bytes()
    status, _, err = run("evaluate", tiny_dataset, tiny_bundle, "--report", page)
    assert (status, page.read_bytes()) == (1, before)
    assert "exists already and nothing is overwritten; choose another name with --report" in err
    status, _, _ = run("evaluate", tiny_dataset, tiny_bundle, "--max-queries", 9, "--report", page, "--force")
    assert status == 0
    assert page.read_bytes() != before
    page.write_text("<html>mine</html>", encoding="utf-8")
    status, _, err = run("evaluate", tiny_dataset, tiny_bundle, "--report", page, "--force")
    assert status == 1
    assert "is not a page that mtn-edge wrote, so --force does not replace it" in err
    assert page.read_text(encoding="utf-8") == "<html>mine</html>"


def test_a_model_of_another_dataset_is_measured_and_said(
    run: Run, tiny_dataset: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(tiny_bundle, foreign)
    manifest: dict[str, Any] = folders.read_manifest(foreign)
    content = {key: manifest[key] for key in manifest if key not in ("files", "manifest_sha256")}
    content["lineage"]["trained_on"] = "0" * 63 + "1"
    (foreign / folders.MANIFEST).unlink()
    tokenizer = (foreign / "tokenizer.json").read_text(encoding="utf-8")
    (foreign / "tokenizer.json").write_text(tokenizer + "\n", encoding="utf-8")
    folders.write_manifest(foreign, "bundle", content)
    status, out, err = run("evaluate", tiny_dataset, foreign, tiny_bundle, "--max-queries", 9, "--baselines", "none")
    assert status == 0
    assert "note: foreign was trained on another dataset than dataset" in err
    assert "note: foreign has another tokenizer than the dataset" in err
    assert "note: bundle" not in err
    assert "mpc" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("{bundle}", "{bundle}"), "is a bundle, not a dataset"),
        (("{dataset}", "{dataset}"), "is a dataset, not a bundle or checkpoint"),
        (("{dataset}", "nowhere"), "`nowhere` does not exist"),
        (("{dataset}", "{bundle}", "--baselines", "best"), "`--baselines` names `best`, which is not a baseline"),
    ],
)
def test_faults_are_sentences(
    run: Run, tiny_dataset: Path, tiny_bundle: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    filled = [argument.format(dataset=tiny_dataset, bundle=tiny_bundle) for argument in arguments]
    status, out, err = run("evaluate", *filled)
    assert (status, out) == (1, "")
    assert sentence in err
    status, out, _ = run("evaluate", *filled, "--json")
    assert status == 1
    assert sentence in json.loads(out)["error"]["message"]
