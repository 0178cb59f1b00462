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


RANKED = {"mrr@10", "success@1", "success@10", "pmrr@10"}
OF_TASK = {"suggest": {"bleu", "bleu_precisions"}, "complete": {"keystrokes_saved", "mrl"}}
LIKELIHOOD = {"calibration_error", "perplexity", "nats_per_character"}
MEASURES = {*RANKED, *OF_TASK["suggest"], *OF_TASK["complete"], *LIKELIHOOD}


GRAPHS_AND_LISTS = ("encode.onnx", "suggest.onnx", "completions.list", "followers.list")


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
            assert set(figures) == MEASURES | {"n", "ci95", "slices", "protocol", "bytes", "against", "settings"}
            given = {measure for measure in MEASURES if figures[measure] is not None}
            assert given == RANKED | OF_TASK[task] | (set() if name == "mpc" else LIKELIHOOD)
            assert set(figures["ci95"]) == given - {"bleu_precisions"}
            for measure, (low, high) in figures["ci95"].items():
                assert low <= figures[measure] <= high
            assert 0 < figures["protocol"]["targets"] <= 60
    assert document["suggest"]["bundle"]["n"] == document["suggest"]["bundle"]["protocol"]["targets"]
    sizes = {name: figures["bytes"] for name, figures in document["suggest"].items()}
    assert sizes["checkpoint"] == (tiny_checkpoint / "model.safetensors").stat().st_size
    graphs = [tiny_bundle / name for name in GRAPHS_AND_LISTS]
    assert sizes["bundle"] == sum(file.stat().st_size for file in graphs)
    # Every system is compared with the first model.
    against = {name: figures["against"] for name, figures in document["complete"].items()}
    assert against["bundle"] is None
    assert set(against["mpc"]) == {"system", "mrr@10", "keystrokes_saved"}
    for measure in ("mrr@10", "keystrokes_saved"):
        mpc, bundle = (document["complete"][name][measure] for name in ("mpc", "bundle"))
        found = against["mpc"][measure]
        assert against["mpc"]["system"] == "bundle"
        assert found["difference"] == pytest.approx(mpc - bundle)
        assert found["ci95"][0] <= found["difference"] <= found["ci95"][1]
        assert 0 < found["p"] <= 1
    assert "60 of 60 queries" in err or "queries/s" in err
    # The model that read the session must beat the list that did not; a checkpoint is about what its bundle is.
    suggest = {name: figures["mrr@10"] for name, figures in document["suggest"].items()}
    assert suggest["bundle"] > suggest["mpc"]
    assert suggest["checkpoint"] == pytest.approx(suggest["bundle"], abs=0.1)
    perplexities = [document["suggest"][name]["perplexity"] for name in ("bundle", "checkpoint")]
    assert perplexities[0] == pytest.approx(perplexities[1], rel=0.05)


def test_baselines_alone(run: Run, tiny_dataset: Path, tiny_bundle: Path) -> None:
    names = ["mpc", "mpc+terms", "adj", "ngram", "ngram+copy", "mcg"]
    status, out, _ = run("evaluate", tiny_dataset, "--baselines", ",".join(names), "--max-queries", 40, "--json")
    assert status == 0
    document = json.loads(out)
    for figures in document.values():
        assert list(figures) == names
        assert all(figures[name]["bytes"] > 0 for name in names)
        assert figures["mpc"]["against"] is None
        assert {figures[name]["against"]["system"] for name in names[1:]} == {"mpc"}
        assert list(figures["ngram"]["settings"]) == ["entries"]
        assert len(figures["ngram"]["settings"]["entries"]) == 3
        assert len(figures["ngram+copy"]["settings"]["copy_shares"]) == 3
        with_chance = [name for name in names if figures[name]["perplexity"] is not None]
        assert with_chance == ["ngram", "ngram+copy"]
    # These sessions stay with one place: what followed, and what the session holds, beat popularity.
    suggest = {name: figures["mrr@10"] for name, figures in document["suggest"].items()}
    assert suggest["adj"] > suggest["mpc"]
    assert document["suggest"]["ngram+copy"]["perplexity"] < document["suggest"]["ngram"]["perplexity"]


def test_nothing_is_above_the_ceiling(run: Run, tmp_path: Path) -> None:
    log, dataset = tmp_path / "log.tsv", tmp_path / "dataset"
    assert run("data", "synth", "-o", log, "--sessions", 500)[0] == 0
    assert run("data", "prepare", log, "-o", dataset, "--min-users", 1, "--vocab-size", 600)[0] == 0
    names = "mpc,adj,ngram"
    oracle = tmp_path / "log.oracle.jsonl"
    status, out, _ = run("evaluate", dataset, "--baselines", names, "--oracle", oracle, "--max-queries", 80, "--json")
    assert status == 0
    for figures in json.loads(out).values():
        assert list(figures) == [*names.split(","), "ceiling"]
        assert figures["ceiling"]["bytes"] is None
        for name in names.split(","):
            assert figures["ceiling"]["mrr@10"] > figures[name]["mrr@10"]
        assert figures["ceiling"]["nats_per_character"] < figures["ngram"]["nats_per_character"]
        assert figures["ceiling"]["perplexity"] < figures["ngram"]["perplexity"]


def test_an_n_gram_fits_its_bytes(run: Run, tiny_dataset: Path, tiny_bundle: Path) -> None:
    def size(*arguments: object) -> int:
        call = ("evaluate", tiny_dataset, *arguments, "--baselines", "ngram", "--task", "suggest", "--max-queries", 5)
        status, out, _ = run(*call, "--json")
        assert status == 0
        return int(json.loads(out)["suggest"]["ngram"]["bytes"])

    whole = size()
    assert size("--baseline-mb", whole / 1e6) == whole
    assert size("--baseline-mb", (whole - 1) / 1e6) < whole
    bundle = sum((tiny_bundle / name).stat().st_size for name in GRAPHS_AND_LISTS)
    assert size(tiny_bundle) == min(whole, bundle) or size(tiny_bundle) < bundle


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
    assert "note: foreign has its weights from another dataset than dataset" in err
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
        (("{dataset}", "--baselines", "none"), "no model and no baseline is named, and there is nothing to measure"),
        (("{dataset}", "--baseline-mb", "0"), "`--baseline-mb` is 0, and it must be above 0"),
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
