import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mtn_edge import demo
from mtn_edge.demo import Probe, probe, telling_pair


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    # A network this small is trained fastest by one thread, however busy the machine is.
    return subprocess.run(
        [sys.executable, "-m", "mtn_edge", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


SMALL = [
    *("--sessions", 600, "--set", "model.d_model=32", "--set", "model.ffn=64", "--set", "model.query_layers=1"),
    *("--set", "train.epochs=2", "--set", "model.decoder_layers=1"),
]


def test_a_small_demo_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="training needs the extra [train]")
    folder = tmp_path / "it"
    done = run("demo", "-o", folder, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    commands = [shlex.split(step["command"])[1:3] for step in document["steps"]]
    verbs = [words[0] for words in commands]
    assert verbs[:7] == ["data", "data", "train", "quantize", "verify", "evaluate", "profile"]
    assert verbs[7:] == ["suggest"] * len(verbs[7:])
    assert all(f"$ {step['command']}" in done.stderr for step in document["steps"])
    results = {verb: step["result"] for verb, step in zip(verbs, document["steps"], strict=True)}
    assert results["verify"]["ok"] is True
    assert {"suggest", "complete"} == set(results["evaluate"])
    assert "bundle" in results["profile"]
    for step in document["steps"][7:]:
        typed = step["result"]["prefix"]
        assert all(each["text"].startswith(typed) for each in step["result"]["suggestions"])
    for place in ("bundle", "quality", "cost"):
        assert Path(document[place]).exists()
    assert document["seconds"] >= sum(step["seconds"] for step in document["steps"][:7])

    again = run("demo", "-o", folder, *SMALL)
    assert again.returncode == 1
    assert "exists already and nothing is overwritten; choose another folder with -o" in again.stderr


def test_a_failing_step_ends_the_demo_with_its_status(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="training needs the extra [train]")
    done = run("demo", "-o", tmp_path / "it", "--sessions", 300, "--set", "model.width=3", "--json")
    assert done.returncode == 1
    assert "`model.width` is not a setting" in json.loads(done.stdout)["error"]["message"]
    assert "this step ended with status 1, so the demo ends here" in done.stderr
    assert not (tmp_path / "it" / "checkpoint").exists()


def test_the_pair_that_tells_most_is_shown() -> None:
    plain = Probe(["x", "y"], "jaguar cars", ["jaguar", "jazz"])
    same = Probe(["v", "w"], "jaguar food", ["jaguar", "jazz"])
    right = Probe(["a", "b"], "jaguar price", ["jaguar price", "jaguar dealer"])
    other = Probe(["c", "d"], "jaguar habitat", ["jaguar habitat", "jaguar food"])
    elsewhere = Probe(["e", "f"], "rome", ["rome"])
    assert telling_pair([plain, same, right, other, elsewhere]) == (right, other)
    assert telling_pair([plain, same]) == (plain, same)
    twin = Probe(["g", "h"], "jaguar price", ["jaguar price"])
    assert telling_pair([right, twin]) is None  # the same query tells nothing
    again = Probe(["i", "j"], "jaguar zoo", ["jaguar zoo", "jaguar sounds"])
    assert telling_pair([right, other, again]) == (right, other)  # the first of equals
    assert telling_pair([plain, elsewhere]) is None
    assert telling_pair([]) is None


class Answer:
    def __init__(self, texts: Sequence[str]) -> None:
        self.suggestions = [type("S", (), {"text": text}) for text in texts]


class Fake:
    def __init__(self) -> None:
        self.asked: list[tuple[list[str], str]] = []

    def session(self, queries: list[str]) -> "Fake":
        self.now = queries
        return self

    def suggest(self, prefix: str, _k: int) -> Answer:
        self.asked.append((self.now, prefix))
        return Answer([prefix + "!"])


def test_probes_are_new_queries_with_two_to_four_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    sessions = [["one", "two", "three", "one", "five", "sixth"], ["a", "b"], ["p", "q", "rest", "is"]]
    probes = probe(fake, sessions)
    assert fake.asked == [
        (["one", "two"], "th"),
        (["one", "two", "three", "one"], "fi"),
        (["p", "q"], "re"),
    ]
    assert [each.suggestions for each in probes] == [["th!"], ["fi!"], ["re!"]]
    assert [each.typed for each in probes] == ["th", "fi", "re"]
    monkeypatch.setattr(demo, "PROBES", 1)
    assert len(probe(Fake(), sessions)) == 1
