"""The quality benchmark: equal sizes, cells that come back as they were written, goals that can be missed."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightning", reason="the benchmark trains networks, with the extra [train]")

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from comparing.answers import save_answers
from comparing.cells import Cell, cells_of, config_of, load_cell
from comparing.corpora import CORPORA, NETWORKS, WORN, quick
from comparing.figures import goals_of

from mtn_edge.evaluation.protocol import Answers, Task
from mtn_edge.models.build import count_parameters


@pytest.mark.parametrize("vocab_size", [420, 2048, 4096])
@pytest.mark.parametrize("corpus", CORPORA.values(), ids=CORPORA)
def test_networks_have_equal_numbers_of_parameters(corpus, vocab_size):
    sizes = {arch: count_parameters(config_of(corpus, arch, vocab_size).model) for arch in NETWORKS}
    assert max(sizes.values()) <= 1.02 * min(sizes.values()), sizes


def test_the_first_seed_of_all_comes_before_the_second_of_any():
    cells = cells_of(CORPORA["simulator"], 3)
    seeds = [[cell.seed or 0 for cell in cells if cell.is_worn == worn] for worn in (False, True)]
    assert all(each == sorted(each) for each in seeds)
    assert len({cell.name for cell in cells}) == len(cells) == 7 + 3 * len(NETWORKS) + 3 * len(WORN)
    networks = {cell.name for cell in cells if cell.system in NETWORKS}
    assert all(cell.network.name in networks for cell in cells if cell.is_worn)
    assert "ceiling" not in {cell.name for cell in cells_of(quick(CORPORA["msmarco"]), 1)}


def test_a_cell_comes_back_as_it_was_written(tmp_path):
    cell = Cell("msmarco", "mtn", 2)
    suggest = Answers(np.array([1, 0]), np.array([1, 2]), ["a b", ""], None, np.array([[-1.5, 2], [-3, 4]]), None, None)
    stated = np.array([[0.5, 0.25, np.nan]])
    complete = Answers(np.array([3]), np.array([0]), ["é"], stated, None, np.array([[2.0, 5.0]]), np.array([4]))
    given: dict[Task, Answers] = {"suggest": suggest, "complete": complete}
    save_answers(cell.folder(tmp_path), cell.name, given, {"bytes": 7})
    found, about = load_cell(cell, tmp_path)
    assert about == {"bytes": 7}
    for task in given:
        for one, other in zip(vars(found[task]).values(), vars(given[task]).values(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_cell_that_was_made_otherwise_is_made_again(tmp_path, tiny_dataset):
    corpus, cell = CORPORA["msmarco"], Cell("msmarco", "mtn", 2)
    (tmp_path / "msmarco").mkdir()
    shutil.copytree(tiny_dataset, tmp_path / "msmarco" / "dataset")
    assert not cell.is_done(tmp_path, corpus)
    answers = Answers(np.array([1]), np.array([1]), ["a"], None, None, None, None)
    save_answers(
        cell.folder(tmp_path),
        cell.name,
        {"suggest": answers, "complete": answers},
        {"made_from": cell.made_from(tmp_path, corpus)},
    )
    assert cell.is_done(tmp_path, corpus)
    assert not cell.is_done(tmp_path, replace(corpus, asked=5))
    assert not cell.is_done(tmp_path, replace(corpus, settings=(*corpus.settings, "model.dropout=0.4")))
    (tmp_path / "msmarco" / "recipe.json").write_text("{}")
    with pytest.raises(SystemExit, match="was made from other logs"):
        cell.is_done(tmp_path, corpus)


def test_goals_are_missed_where_a_rival_is_ahead_or_too_near():
    def against(difference, low, high):
        return {"system": "mtn", "mrr@10": {"difference": difference, "ci95": [low, high], "p": 0.01}}

    systems = {
        "mtn": {"mrr@10": 0.5, "bleu": 30.0, "against": None},
        "ceiling": {"mrr@10": 0.52, "against": against(0.02, 0.01, 0.03)},
        "hred": {"mrr@10": 0.4, "bleu": 31.0, "against": against(-0.1, -0.2, -0.05)},
        "adj": {"mrr@10": 0.49, "bleu": 10.0, "against": against(-0.01, -0.03, 0.01)},
    }
    goals = {goal["name"]: goal for goal in goals_of(CORPORA["simulator"], {"tasks": {"suggest": systems}})}
    assert {name.partition(": ")[2]: goal["ok"] for name, goal in goals.items()} == {
        "share of the ceiling's MRR@10": True,
        "MTN - hred, MRR@10": True,
        "MTN - hred, BLEU": False,
        "MTN - adj, MRR@10": False,
    }
    lead = goals["simulator, suggest: MTN - hred, MRR@10"]
    assert lead["value"] == pytest.approx(0.1)
    assert lead["spread"] == [0.05, 0.2]


def test_goals_of_the_product_and_of_fusion():
    def system(perplexity=None, error=None, **slices):
        found = {"mrr@10": 0.5, "bleu": 1.0, "perplexity": perplexity, "calibration_error": error}
        return found | {"slices": {name: {"mrr@10": value} for name, value in slices.items()}, "against": None}

    lead = {"system": "mtn+lists", "mrr@10": {"difference": -0.1, "ci95": [-0.2, 0.01], "p": 0.06}}
    level = {"system": "mtn", "mrr@10": {"difference": 0.0, "ci95": [0.0, 0.0], "p": 1.0}}
    systems = {
        "mtn": system(perplexity=8.0),
        "ngram+copy": system(perplexity=7.0, seen=0.3, unseen=0.2) | {"against": level, "against_product": lead},
        "mtn+all": system(perplexity=6.0),
        "mtn+lists": system(error=0.06, seen=0.4, unseen=0.1),
        "mtn-last": system(perplexity=7.0) | {"against": level},  # a choice, no rival
    }
    goals = {goal["name"]: goal for goal in goals_of(CORPORA["msmarco"], {"tasks": {"suggest": systems}})}
    found = {
        name.partition("suggest")[2].lstrip(":, "): (round(each["value"], 3), each["ok"])
        for name, each in goals.items()
    }
    assert found == {
        "MTN - ngram+copy, MRR@10": (0, True),
        "MTN with lists - ngram+copy, mrr@10": (0.1, False),  # the interval holds zero
        "seen: MTN with lists - ngram+copy, MRR@10": (0.1, True),
        "unseen: MTN with lists - ngram+copy, MRR@10": (-0.1, False),
        "calibration error": (0.06, False),
        "nats saved against mtn": (0.288, False),
        "nats saved against ngram+copy": (0.154, False),
    }
