"""The Java library of `android_demo/suggester` on a JVM: it opens the same bundles and gives the same lists.

Python makes bundles and questions, one run of Maven answers them and tests the rest, and the answers are compared.
"""

import dataclasses
import json
import os
import random
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest

from export.golden import Golden
from export.held_out import LIST
from export.mobile import export_mobile
from mtn_edge.config import ModelConfig
from mtn_edge.folders import read_manifest, write_manifest
from mtn_edge.runtime.blocklist import _words, fold, hashed
from mtn_edge.runtime.completions import FILE, Completions
from mtn_edge.runtime.lists import FOLLOWERS, Mixing, pair_entries
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.text import normalize_prefix
from mtn_edge.tokenizer import EOS, Tokenizer

LIBRARY = Path(__file__).parents[1] / "android_demo" / "suggester"
POPULAR = {
    "new york hotels": 90,
    "new york": 80,
    "news today": 80,
    "newspaper": 70,
    "restaurants near me": 60,
    "restaurant menu": 50,
    "jobs for teachers": 40,
    "new 🎉 party": 30,
    "iphone 14 price": 30,
    "東京 天気": 30,
    "сколько стоит билет": 30,
    "مطعم قريب": 20,
    "naïve café": 20,
    "हिन्दी गाने": 20,
    "straße köln": 10,
    "sussex university": 20,
    "sex": 10,
}
FOLLOWED = [("new york", "new york hotels", 5), ("new york", "jobs", 3), ("news today", "newspaper", 2)]
STRANGE = (
    "👩\u200d🏫",
    "１２３",
    "ｎｅｗ",
    "ﬁn",
    "e\u0301",
    "İs",
    "ΣΑΣ",
    "ß",
    "\u200fمطعم",
    "ㅎ",
    "ᄒ",
    "ﾊﾟ",
    "\U0010ffff",
    "\u3000",
    "z\u0323\u0307",
)
TOLERANCE = 1e-3
"""Of scores in float32 (nats): what the sums of another build of ONNX Runtime may change."""

Document = dict[str, Any]


@pytest.fixture(scope="session")
def maven() -> list[str]:
    """The command that builds and tests the library without a network."""
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"NOT TESTED: the Java library, since `{tool}` is not installed (JDK 8 or newer, Maven)")
    command = ["mvn", "--offline", "--batch-mode", "--quiet", f"--file={LIBRARY / 'pom.xml'}"]
    ready = subprocess.run([*command, "test-compile"], capture_output=True, text=True, check=False)
    if "offline" in ready.stdout:
        pytest.skip(f"NOT TESTED: the Java library, since its jars are not here: run `mvn -f {LIBRARY} test` once")
    assert ready.returncode == 0, ready.stdout
    return command


def many_queries() -> dict[str, int]:
    """More popular queries, so many that a list has blocks and its numbers two bytes."""
    generator = random.Random(4)
    words = sorted({word for query in POPULAR for word in query.split()})
    made = {" ".join(generator.choices(words, k=3)): generator.randrange(1, 10_000) for _ in range(4000)}
    return made | POPULAR


def make_bundle(folder: Path, config: ModelConfig, decoding: Decoding, denied: str, popular: dict[str, int]) -> None:
    """A bundle of random weights that like to end."""
    import torch

    from export.graphs import build_graphs
    from mtn_edge.models.build import build
    from mtn_edge.models.fusion import Sources, make_gate
    from quantize.plan import uniform_plan

    torch.manual_seed(6)
    model = build(config).eval()
    with torch.no_grad():
        model.decoder_norm.bias.copy_(4 * model.embedding.weight[EOS])  # type: ignore[union-attr, operator]
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    sources = Sources(make_gate(config), None) if config.fusion == "copy" else None
    folder.mkdir()
    build_graphs(state, config, uniform_plan("fp32"), sources).save(folder)
    TOKENIZER.save(folder / "tokenizer.json")
    Completions(popular.items()).save(folder / FILE)
    Completions(pair_entries(FOLLOWED)).save(folder / FOLLOWERS)
    (folder / "blocklist.txt").write_text(denied, encoding="utf-8")
    write_manifest(folder, "bundle", {"model": dataclasses.asdict(config), "decoding": dataclasses.asdict(decoding)})


TOKENIZER = Tokenizer.train([query for query, count in POPULAR.items() for _ in range(count)], 420)
CONFIG = ModelConfig(
    vocab_size=len(TOKENIZER),
    d_model=32,
    heads=2,
    ffn=48,
    query_layers=1,
    session_layers=1,
    decoder_layers=2,
    max_tokens=12,
    max_queries=4,
)
STEPS = CONFIG.max_tokens + 1


@pytest.fixture(scope="session")
def fixtures(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles that differ in whatever a bundle may differ, one that never answers, trained and signed ones."""
    folder = tmp_path_factory.mktemp("android")
    mixed = Decoding(
        max_steps=STEPS,
        min_probability_complete=0.002,
        mix_complete=Mixing(0.3, 0.2, 2.0),
        mix_suggest=Mixing(0.1, 0.4, 1.0),
    )
    make_bundle(folder / "bundle", CONFIG, mixed, hashed(["sex", "york jobs"]), POPULAR)
    alone = Decoding(beam=6, max_steps=STEPS, min_probability_suggest=0.001, length_normalization=0.4)
    other = dataclasses.replace(CONFIG, levels=3, memory="last", fusion="copy")
    make_bundle(folder / "other", other, alone, "sex\n\nnew  York jobs\n天\n", many_queries())
    make_endless(folder / "bundle", folder / "endless")
    shutil.copytree(tiny_bundle, folder / "trained")
    export_mobile(tiny_bundle, folder / "ort", ort_format=True)
    sign(folder)
    return folder


def make_endless(bundle: Path, folder: Path) -> None:
    """A copy of a bundle whose search never ends when more than 8 suggestions are asked for."""
    from onnx import TensorProto, helper

    shutil.copytree(bundle, folder)
    model = onnx.load(folder / "suggest.onnx")
    rename(model.graph, "beam", "late_beam")
    scalar, flag = (TensorProto.INT64, []), (TensorProto.BOOL, [])
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_out"]), helper.make_node("Identity", ["zero"], ["zero_out"])],
        "wait",
        [
            helper.make_tensor_value_info(name, *kind)
            for name, kind in (("turn", scalar), ("on", flag), ("zero", scalar))
        ],
        [helper.make_tensor_value_info(name, *kind) for name, kind in (("on_out", flag), ("zero_out", scalar))],
    )
    numbers = {"eight": 8, "no_turns": 0, "all_turns": 2**62, "nothing": 0}
    nodes = [
        *(helper.make_node("Constant", [], [name], value_int=value) for name, value in numbers.items()),
        helper.make_node("Squeeze", ["beam"], ["beam_number"]),
        helper.make_node("Greater", ["beam_number", "eight"], ["wide"]),
        helper.make_node("Where", ["wide", "all_turns", "no_turns"], ["turns"]),
        helper.make_node("Loop", ["turns", "", "nothing"], ["late"], body=body),
        helper.make_node("Add", ["beam", "late"], ["late_beam"]),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    onnx.save(model, folder / "suggest.onnx")
    content = json.loads((folder / "manifest.json").read_bytes())
    write_manifest(folder, "bundle", {name: content[name] for name in ("model", "decoding")})


def rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Reads another tensor in the place of `old`, in the graphs inside too."""
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                rename(attribute.g, old, new)


def sign(folder: Path) -> None:
    pytest.importorskip("cryptography", reason="signatures need the extra [sign]")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from mtn_edge.runtime import signature

    shutil.copytree(folder / "bundle", folder / "signed")
    for name in ("public", "other"):
        key = Ed25519PrivateKey.generate()
        raw = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(raw)
        if name == "public":
            signature.sign(folder / "signed", key)


def answers_of(maven: list[str], fixtures: Path, questions: list[Document], *more: str) -> list[Document]:
    """What the library answers."""
    lines = (json.dumps(question) + "\n" for question in questions)
    (fixtures / "questions.jsonl").write_text("".join(lines), encoding="utf-8")
    done = subprocess.run(
        [*maven, "test", f"-Dfixtures={fixtures}", *more],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    read = (fixtures / "answers.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in read if line]


def key_presses(bundle: str, count: int, generator: random.Random) -> Iterator[Document]:
    """Random sessions and typed texts: words cut anywhere, blanks, digits, capitals, other scripts, nonsense."""
    words = sorted({word for query in POPULAR for word in query.split()} | set(STRANGE))

    def text() -> str:
        cut = " ".join(generator.choices(words, k=generator.randrange(1, 4)))
        made = cut[: generator.randrange(len(cut) + 1)] + generator.choice(["", "", " ", "  ", "7", "é", "☃"])
        return generator.choice([made, made, made.upper(), ""])

    session: list[str | None] = []
    for number in range(count):
        if number % 8 == 0:
            session = [text() for _ in range(generator.choice([0, 1, 2, 3, 5, 7]))]
            if len(session) > 4:
                session[3] = None  # a new session of the same user begins
        question: Document = {
            "bundle": bundle,
            "session": session,
            "typed": text(),
            "k": generator.choice([1, 3, 5, 8, 8, 20]),
        }
        yield question | ({"floor": 0.0} if generator.random() < 0.3 else {})


def python_answers(fixtures: Path, questions: list[Document]) -> Iterator[Document]:
    """What the runtime answers."""
    opened = {name: Suggester.open(fixtures / name) for name in {question["bundle"] for question in questions}}
    key, session = "", None
    for question in questions:
        if question["bundle"] + json.dumps(question["session"]) != key:
            key = question["bundle"] + json.dumps(question["session"])
            session = opened[question["bundle"]].session()
            for query in question["session"]:
                session.begin() if query is None else session.append(query)
        assert session is not None
        yield session.suggest(question["typed"], question["k"], min_probability=question.get("floor")).to_json()


def difference(wanted: Document, found: Document, tolerance: float) -> str | None:
    """How two lists differ; scores within the tolerance of each other are near ties, which may swap."""
    right = {entry["text"]: entry for entry in wanted["suggestions"]}
    got = {entry["text"]: entry for entry in found["suggestions"]}
    if wanted["reason"] != found["reason"]:
        return "another reason"
    if len(right) != len(got):
        return "another length"
    last = min((entry["score"] for entry in right.values()), default=0.0)
    for text, entry in right.items():
        if text not in got:
            if entry["score"] > last + tolerance:
                return f"`{text}` is missing"
        elif abs(got[text]["score"] - entry["score"]) > tolerance:
            return f"another score of `{text}`"
        elif got[text]["source"] != entry["source"]:
            return f"another source of `{text}`"
    places = {text: place for place, text in enumerate(got)}
    for one, other in pairwise(right.values()):
        clear = one["source"] != other["source"] or abs(one["score"] - other["score"]) > tolerance
        if clear and places.get(one["text"], -1) > places.get(other["text"], len(got)):
            return f"`{one['text']}` is out of order"
    return None


def check_lists(fixtures: Path, questions: list[Document], answers: list[Document]) -> None:
    wrong, filled = [], 0
    for question, wanted, found in zip(questions, python_answers(fixtures, questions), answers, strict=True):
        filled += bool(wanted["suggestions"])
        why = difference(wanted, found, TOLERANCE)
        if why is not None:
            wrong.append((why, question, wanted, found))
    assert wrong == []
    assert filled > len(questions) // 2


def random_questions(count: int, seed: int) -> list[Document]:
    generator = random.Random(seed)
    return [question for name in ("bundle", "other") for question in key_presses(name, count // 2, generator)]


def text_questions() -> list[Document]:
    """Every character, of the large even blocks some, and random texts."""
    codes = [
        code
        for code in range(1, 0x110000)
        if (code < 0x3400 or 0xF900 <= code < 0x20000 or code % 61 == 0)
        and unicodedata.category(chr(code)) not in APART
    ]
    codes = [code for code in codes if chr(code) not in "|\uff5c"]
    texts = ["".join(f"{chr(code)}|" for code in codes[at : at + 8]) for at in range(0, len(codes), 8)]
    generator = random.Random(3)
    pool = [chr(code) for first, last in KNOWN for code in range(first, last + 1)]
    texts += ["".join(generator.choices(pool, k=generator.randrange(1, 12))) for _ in range(3000)]
    return [{"bundle": "bundle", "text": text} for text in texts]


def golden_of(bundle: Path) -> Golden:
    return Golden.load(bundle / "golden.json", read_manifest(bundle, "bundle")["model"])


def golden_questions(fixtures: Path) -> list[Document]:
    vectors = golden_of(fixtures / "trained").vectors
    return [
        {"bundle": bundle, "session": vector.session, "typed": vector.typed, "k": LIST, "floor": 0.0}
        for bundle in ("trained", "ort")
        for vector in vectors
    ]


@pytest.fixture(scope="module")
def answered(maven: list[str], fixtures: Path) -> dict[str, tuple[list[Document], list[Document]]]:
    """Questions of each kind with their answers; all of the library's own tests run too."""
    asked = {"lists": random_questions(600, seed=1), "texts": text_questions(), "golden": golden_questions(fixtures)}
    answers = iter(answers_of(maven, fixtures, [question for questions in asked.values() for question in questions]))
    return {kind: (questions, [next(answers) for _ in questions]) for kind, questions in asked.items()}


def test_random_key_presses_get_the_lists_of_the_runtime(answered: Any, fixtures: Path) -> None:
    check_lists(fixtures, *answered["lists"])


@pytest.mark.slow
def test_ten_thousand_random_key_presses_get_the_lists_of_the_runtime(maven: list[str], fixtures: Path) -> None:
    questions = random_questions(10_000, seed=2)
    check_lists(fixtures, questions, answers_of(maven, fixtures, questions, "-Dtest=AnswersTest"))


def test_golden_vectors_get_the_expected_lists(answered: Any, fixtures: Path) -> None:
    golden = golden_of(fixtures / "trained")
    _, answers = answered["golden"]
    for vector, found in zip([*golden.vectors, *golden.vectors], answers, strict=True):
        right = [{"source": "any", **entry} for entry in vector.suggestions]
        got = [{**entry, "source": "any"} for entry in found["suggestions"]]
        wanted = {"suggestions": right, "reason": None}
        assert difference(wanted, {"suggestions": got, "reason": None}, golden.tolerance) is None, (vector, found)


def test_trained_weights_give_the_same_lists_as_graphs_of_either_format(answered: Any, fixtures: Path) -> None:
    check_lists(fixtures, *answered["golden"])


def test_every_character_has_the_same_normal_form_words_and_tokens(answered: Any) -> None:
    """Of those that both know: editions of Unicode differ in the newest ones."""
    wrong, compared = [], 0
    for question, found in zip(*answered["texts"], strict=True):
        text = question["text"]
        normal = normalize_prefix(text)
        forms = {"normal": normal, "fold": fold(text), "words": _words(text), "tokens": TOKENIZER.encode(normal)}
        if not found["unknown"]:
            compared += 1
            if found != forms | {"unknown": []}:
                wrong.append((text, forms, found))
    assert wrong == []
    assert compared > 7_000


APART = ("Cn", "Cs", "Co")
"""Characters of no meaning: not assigned, halves of pairs, private ones."""
KNOWN = (
    *((0x20, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x591, 0x5F4), (0x620, 0x6FF), (0x900, 0x97F), (0xE01, 0xE5B)),
    *((0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x200B, 0x206F), (0x3041, 0x3096), (0x3099, 0x30FF)),
    *((0x4E00, 0x4FFF), (0xAC00, 0xACFF), (0xFB1D, 0xFB36), (0xFF01, 0xFFBE), (0x1F300, 0x1F64F)),
)
