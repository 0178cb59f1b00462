"""The key-press benchmark: the beam in Python finds what our graph finds, the tail model behaves, goals are honest."""

import dataclasses
import sys
from pathlib import Path

import pytest

from mtn_edge.runtime.lists import NO_MIXING

pytest.importorskip("onnx", reason="the benchmark builds graphs (extra [train])")
pytest.importorskip("torch", reason="the benchmark opens checkpoints (extra [train])")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _modules_of_the_benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in {"peers", "measuring"}]:
        del sys.modules[name]


def test_the_beam_in_python_searches_what_our_graph_searches(tiny_checkpoint, tiny_bundle):
    from peers.ours import Ours
    from peers.python_beam import PythonBeam

    from mtn_edge.training.checkpoint import load_checkpoint

    ours = Ours("ours", tiny_bundle, min_probability=0.0)
    alone = {"mix_complete": NO_MIXING, "mix_suggest": NO_MIXING}
    ours.suggester.search.decoding = dataclasses.replace(ours.suggester.search.decoding, **alone)
    python_beam = PythonBeam(load_checkpoint(tiny_checkpoint), ours.suggester)
    compared = work = 0
    for earlier in (["new york hotels"], ["jaguar price", "jaguar dealer", "boston weather"]):
        for system in (ours, python_beam):
            system.start(earlier)
        for typed in ("b", "new yo", "new york ", "jaguar d", "paris naïve c", "東"):
            found = python_beam.suggest(typed)
            assert all(text.startswith(typed) and text != typed for text in found)
            listed = ours.suggest(typed)
            assert found[:1] == listed[:1]
            assert python_beam.steps == ours.steps
            least_work, all_work = (python_beam.multiplications(typed, floor) for floor in (-0.5, ours.least))
            assert 0 < least_work <= all_work
            work += least_work < all_work
            # int8 rounds by all rows of a step together, and the two have different rows once a text has ended.
            assert len(set(found[:4]) & set(listed)) >= min(3, len(found[:4]))
            compared += len(found)
    assert compared > 40
    assert work > 6


def test_the_tail_model_reads_greedily_and_keeps_the_typed_text(tiny_dataset, tmp_path, monkeypatch):
    import peers.tail_network as network
    from peers.tail import TailModel

    from mtn_edge.data.dataset import Dataset
    from mtn_edge.tokenizer import Tokenizer

    monkeypatch.setattr(network, "STEPS", 30)
    monkeypatch.setattr(network, "VOCABULARY", 320)
    network.make_tail(Dataset.open(tiny_dataset), tmp_path / "tail")
    tail = TailModel(tmp_path / "tail")
    words = network.Words(Tokenizer.load(tmp_path / "tail" / "tokenizer.json"))
    spelt = [words.spelt[token] for token in words.encode("new york hotels")]
    assert b"".join(spelt) == b"new york hotels"
    assert len(spelt) < len("new york hotels")
    tail.start(["new york hotels"])
    found = {typed: tail.suggest(typed) for typed in ("", "ne", "new york", "new york h", "new york ")}
    assert found[""] == []
    assert sum(map(len, found.values())) > 3
    assert all(text.startswith(typed) for typed, texts in found.items() for text in texts)
    assert {typed: tail.suggest(typed) for typed in found} == found  # kept steps change nothing


def test_goals_say_what_is_missed():
    from measuring.goals import capacity_goals, race_goals, summarize
    from measuring.limits import Limits
    from measuring.race import Press, lengthened

    assert lengthened(["a", "b", "c"], 1) == ["c"]
    assert lengthened(["a", "b", "c"], 5) == ["b", "c", "a", "b", "c"]
    other = [Press(number % 7, 1.0, 0.9, 4, 8, True, None) for number in range(70)]
    slow = [press._replace(milliseconds=4.0) for press in other]
    easy, hard = ([press._replace(multiplications=count) for press in other] for count in (10**7, 10**8))
    presses = {("mtn-edge", 1): easy, ("mtn-edge", 50): hard, ("other", 1): slow, ("other", 50): other}
    limits = Limits(decoder_bytes=10**6, read_gb_s=10.0, memory_gb_s=5.0, int8_gmac_s=100.0)
    rows = summarize("tiny", presses, limits)
    assert [(row["system"], row.get("memory_limit_ms"), row.get("arithmetic_limit_ms")) for row in rows] == [
        ("mtn-edge", pytest.approx(0.4), pytest.approx(0.1)),
        ("mtn-edge", pytest.approx(0.4), pytest.approx(1.0)),
        ("other", None, None),
        ("other", None, None),
    ]
    found = race_goals("tiny", "mtn-edge", "other", presses, rows)
    goals = {goal["name"]: (goal["value"], goal["ok"]) for goal in found}
    assert goals == {
        "tiny: mtn-edge, p50 over other's, 1 earlier": (0.25, True),
        "tiny: mtn-edge, p50 over other's, 50 earlier": (1.0, False),
        "tiny: mtn-edge, p99 over p50, 1 earlier": (1.0, True),
        "tiny: mtn-edge, p99 over p50, 50 earlier": (1.0, True),
        "tiny: mtn-edge, p50 over the larger limit, 1 earlier": (pytest.approx(2.5), False),
        "tiny: mtn-edge, p50 over the larger limit, 50 earlier": (pytest.approx(1.0), True),
        "tiny: mtn-edge, p50 at 50 over 1 earlier": (1.0, True),
    }
    loading = {"load_ms": 60.0, "load_ms_all": [59.0, 60.0, 61.0], "rss_mb": 4.0, "bytes": 2_000_000}
    threads = {1: {"per_s": 100.0, "least": 90.0, "most": 110.0}, 8: {"per_s": 170.0, "least": 160.0, "most": 180.0}}
    assert [(goal["value"], goal["ok"]) for goal in capacity_goals("tiny", loading, threads, 2)] == [
        (60.0, False),
        (2.0, True),
        (0.85, False),
    ]
