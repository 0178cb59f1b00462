"""The Java library of `android_demo/suggester` on a JVM: it opens the same bundles and gives the same lists.

Python makes bundles and questions, one run of Maven answers them and tests the rest, and the answers are compared.
"""

import dataclasses
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mtn_edge.config import ModelConfig
from mtn_edge.folders import write_manifest
from mtn_edge.runtime.blocklist import Blocklist, _words, fold, hashed
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
STRANGE = ("👩\u200d🏫", "１２３", "ｎｅｗ", "ﬁn", "e\u0301", "İs", "ΣΑΣ", "ß", "\u200fمطعم", "ㅎ", "ᄒ", "ﾊﾟ", "\U0010ffff", "\u3000", "z\u0323\u0307")
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


def make_bundle(folder: Path, config: ModelConfig, decoding: Decoding, denied: str) -> None:
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
    Completions(POPULAR.items()).save(folder / FILE)
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
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles that differ in whatever a bundle may differ, and signed copies of the first."""
    folder = tmp_path_factory.mktemp("android")
    mixed = Decoding(
        max_steps=STEPS,
        min_probability_complete=0.002,
        mix_complete=Mixing(0.3, 0.2, 2.0),
        mix_suggest=Mixing(0.1, 0.4, 1.0),
    )
    make_bundle(folder / "bundle", CONFIG, mixed, hashed(["sex", "york jobs"]))
    alone = Decoding(beam=6, max_steps=STEPS, min_probability_suggest=0.001, length_normalization=0.4)
    other = dataclasses.replace(CONFIG, levels=3, memory="last", fusion="copy")
    make_bundle(folder / "other", other, alone, "sex\n\nnew  York jobs\n天\n")
    sign(folder)
    return folder


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
        question: Document = {"bundle": bundle, "session": session, "typed": text(), "k": generator.choice([1, 3, 5, 8, 8, 20])}
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
        clear = one["source"] != other["source"] or one["score"] - other["score"] > tolerance
        if clear and places.get(one["text"], -1) > places.get(other["text"], len(got)):
            return f"`{one['text']}` is out of order"
    return None


def compare_lists(maven: list[str], fixtures: Path, count: int, seed: int, *more: str) -> None:
    generator = random.Random(seed)
    questions = [question for name in ("bundle", "other") for question in key_presses(name, count // 2, generator)]
    answers = answers_of(maven, fixtures, questions, *more)
    assert len(answers) == len(questions)
    wrong, filled = [], 0
    for question, wanted, found in zip(questions, python_answers(fixtures, questions), answers, strict=True):
        filled += bool(wanted["suggestions"])
        why = difference(wanted, found, TOLERANCE)
        if why is not None:
            wrong.append((why, question, wanted, found))
    assert wrong == []
    assert filled > count // 2


def test_random_key_presses_get_the_lists_of_the_runtime(maven: list[str], fixtures: Path) -> None:
    """All of the library's own tests run too."""
    compare_lists(maven, fixtures, 600, seed=1)


@pytest.mark.slow
def test_ten_thousand_random_key_presses_get_the_lists_of_the_runtime(maven: list[str], fixtures: Path) -> None:
    compare_lists(maven, fixtures, 10_000, 2, "-Dtest=AnswersTest")


def test_every_character_has_the_same_normal_form_words_and_tokens(maven: list[str], fixtures: Path) -> None:
    """Of those that both know: editions of Unicode differ in the newest ones."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000 and chr(code) not in "|\uff5c\0"]
    texts = ["".join(f"{chr(code)}|" for code in codes[at : at + 16]) for at in range(0, len(codes), 16)]
    generator = random.Random(3)
    pool = [chr(code) for first, last in KNOWN for code in range(first, last + 1)]
    texts += ["".join(generator.choices(pool, k=generator.randrange(1, 12))) for _ in range(3000)]
    questions = [{"bundle": "bundle", "text": text} for text in texts]
    answers = answers_of(maven, fixtures, questions, "-Dtest=AnswersTest")
    wrong, compared = [], 0
    for text, found in zip(texts, answers, strict=True):
        normal = normalize_prefix(text)
        known = not found["unknown"] and not any(is_unassigned(letter) for letter in text)
        wanted = {
            "normal": normal,
            "fold": fold(text),
            "words": _words(text),
            "tokens": TOKENIZER.encode(normal),
            "unknown": [],
        }
        compared += known
        if known and found != wanted:
            wrong.append((text, wanted, found))
    assert wrong == []
    assert compared > 12_000


KNOWN = (
    *((0x20, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x591, 0x5F4), (0x620, 0x6FF), (0x900, 0x97F), (0xE01, 0xE5B)),
    *((0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x200B, 0x206F), (0x3041, 0x3096), (0x3099, 0x30FF)),
    *((0x4E00, 0x4FFF), (0xAC00, 0xACFF), (0xFB1D, 0xFB36), (0xFF01, 0xFFBE), (0x1F300, 0x1F64F)),
)


def is_unassigned(letter: str) -> bool:
    import unicodedata

    return unicodedata.category(letter) == "Cn"


