"""One small dataset, checkpoint and bundle, made by the product's own code, once for all tests that want them."""

import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

SETTINGS = [
    *("model.d_model=32", "model.heads=2", "model.ffn=64", "model.max_tokens=12", "model.max_queries=6"),
    *("model.query_layers=1", "model.session_layers=1", "model.decoder_layers=1", "model.dropout=0.0"),
    *("train.epochs=14", "train.batch_queries=32", "train.learning_rate=1e-2", "train.warmup_steps=20"),
]
PLACES = ("new york", "boston", "paris", "berlin", "東京", "москва")
NEEDS = ("hotels", "weather", "restaurants near me", "news today", "naïve café", "jobs 🎉")
SENSES = {"car": ("price", "dealer", "near me", "test drive"), "animal": ("habitat", "food", "near me", "pictures")}


def write_sessions(path: Path, count: int) -> None:
    """A log of the format `sessions`: searches around a place, or for one sense of `jaguar`, in an order."""
    generator = random.Random(7)
    lines = []
    for _ in range(count):
        if generator.random() < 0.7:
            place = generator.choice(PLACES)
            needs = generator.sample(NEEDS, generator.randint(1, 4))
            lines.append([need if generator.random() < 0.2 else f"{place} {need}" for need in needs])
        else:
            words = generator.choice(list(SENSES.values()))
            lines.append([f"jaguar {word}" if word != "near me" else word for word in words])
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 600 sessions and at most 400 tokens."""
    pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")
    from mtn_edge.data.prepare import PrepareSettings, prepare

    folder = tmp_path_factory.mktemp("tiny")
    write_sessions(folder / "sessions.tsv", 600)
    settings = PrepareSettings(format="sessions", min_users=1, vocab_size=400, split="hash")
    prepare([folder / "sessions.tsv"], folder / "dataset", settings)
    return folder / "dataset"


@pytest.fixture(scope="session")
def wide_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 1,000 sessions of the same kind, in tokens of its own, with enough held-out ones for a drop."""
    pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")
    from mtn_edge.data.prepare import PrepareSettings, prepare

    folder = tmp_path_factory.mktemp("wide")
    write_sessions(folder / "sessions.tsv", 1000)
    settings = PrepareSettings(format="sessions", min_users=1, vocab_size=350, split="hash")
    prepare([folder / "sessions.tsv"], folder / "dataset", settings)
    return folder / "dataset"


@pytest.fixture(scope="session")
def unseen_sessions(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """200 sessions of two queries or more, drawn after those of `tiny_dataset`."""
    file = tmp_path_factory.mktemp("unseen") / "sessions.tsv"
    write_sessions(file, 1_200)
    sessions = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[600:]]
    return [session for session in sessions if len(session) > 1][:200]


@pytest.fixture(scope="session")
def tiny_settings() -> list[str]:
    """`--set` of a network that learns `tiny_dataset` a little in a second."""
    return SETTINGS


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_dataset: Path) -> Path:
    """A checkpoint that has learnt `tiny_dataset` a little."""
    from mtn_edge.config import override, preset
    from mtn_edge.training.run import train_model

    path = tiny_dataset.parent / "checkpoint"
    train_model(tiny_dataset, path, config=override(preset("tiny"), SETTINGS), device="cpu")
    return path


@pytest.fixture(scope="session")
def tiny_bundle(tiny_dataset: Path, tiny_checkpoint: Path) -> Path:
    """The int8 bundle of `tiny_checkpoint`, with the popular queries of `tiny_dataset`."""
    from export.bundle import write_bundle

    path = tiny_dataset.parent / "bundle"
    write_bundle(tiny_checkpoint, path, precision="int8", dataset=tiny_dataset, force=False, seed=1)
    return path


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes environments with this source tree, its base install, and some packages as they are asked for."""
    import mtn_edge

    tree = Path(mtn_edge.__file__).parents[1]
    base = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    uv = Path(sys.executable).with_name("uv")

    def name(requirement: str) -> str:
        return re.split(r"[\[<>=]", requirement)[0]

    def make(*requirements: str) -> Path:
        """Returns the interpreter of a new environment."""
        folder = tmp_path_factory.mktemp("environment") / "env"
        asked = {name(requirement) for requirement in requirements}
        wanted = [*requirements, *(each for each in base if name(each) not in asked)]
        python = folder / "bin" / "python"
        install = [uv, "pip", "install", "--quiet", "--python", python, *wanted]
        try:
            for command in ([uv, "venv", "--quiet", "--python", sys.executable, folder], install):
                subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no environment with {', '.join(requirements)}: {getattr(error, 'stderr', '') or error}")
        packages = next(folder.glob("lib/python*/site-packages"))
        (packages / "source_tree.pth").write_text(f"{tree}\n")
        return python

    return make
