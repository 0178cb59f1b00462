"""Faults that other projects' users reported of exported models (cases A18 to A20): what must hold here instead."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from mtn_edge import folders
from mtn_edge.runtime.suggester import Suggester

pytest.importorskip("onnx", reason="graphs are built with the extra [train]")
torch = pytest.importorskip("torch", reason="graphs are compared with PyTorch (extra [train])")

from export import golden, held_out, parity  # noqa: E402
from export.graphs import build_graphs  # noqa: E402
from export.tensorrt import agreement  # noqa: E402
from export.tensorrt.batch import KeyPress  # noqa: E402
from export.tensorrt.networks import build_networks  # noqa: E402
from export.tensorrt.sizes import Sizes  # noqa: E402
from mtn_edge.config import ModelConfig  # noqa: E402
from mtn_edge.decoding.prefix_constraint import PrefixConstraint  # noqa: E402
from mtn_edge.decoding.torch_engine import TorchEngine  # noqa: E402
from mtn_edge.models.build import build  # noqa: E402
from mtn_edge.models.mtn import MTN  # noqa: E402
from mtn_edge.runtime.blocklist import Blocklist  # noqa: E402
from mtn_edge.runtime.completions import Completions  # noqa: E402
from mtn_edge.runtime.engine import OnnxEngine  # noqa: E402
from mtn_edge.runtime.search import Decoding  # noqa: E402
from mtn_edge.tokenizer import Tokenizer  # noqa: E402
from mtn_edge.training.checkpoint import load_checkpoint  # noqa: E402
from quantize.plan import uniform_plan  # noqa: E402

BATCHES, PAST, SESSIONS = (1, 2, 7), (0, 1, 17), (0, 1, 5)
"""A18: key presses at once, letters typed, earlier queries."""
BEAM, STEPS = 4, 6
TYPED = "new york hotels newyork"


class Network:
    """A network of random weights, whose every way out is tried: its graphs, and its engines' networks."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(3)
        tokenizer = Tokenizer.train(["new york hotels", "new york weather", "berlin hotels"] * 4, 290)
        self.config = ModelConfig(
            vocab_size=len(tokenizer), d_model=32, heads=4, ffn=48, max_tokens=20, max_queries=6, decoder_layers=1
        )
        model = build(self.config).eval()
        assert isinstance(model, MTN)
        for parameter in model.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.1)
        self.model, self.reference = model, TorchEngine(model)
        self.constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode)
        state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        build_graphs(state, self.config, uniform_plan("fp32")).save(folder)
        self.graphs = OnnxEngine(folder, asdict(self.config))
        self.sizes = Sizes.of(self.config, beam=BEAM, steps=STEPS, max_batch=max(BATCHES))
        self.engines = build_networks(model, self.sizes).engine(self.sizes)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("graphs"))


@pytest.mark.parametrize("past", PAST)
@pytest.mark.parametrize("earlier", SESSIONS)
def test_a18_graphs_and_engines_equal_pytorch_at_every_shape(network: Network, past: int, earlier: int) -> None:
    typed = network.constraint.typed(TYPED[:past], network.config.max_tokens)
    assert typed is not None
    session = parity.random_session(network.reference, earlier, seed=past)
    settings: dict[str, Any] = {"beam": BEAM, "max_steps": STEPS}
    wanted = network.reference.search(parity.state_of(network.reference, session), typed, **settings)
    assert (wanted.scores > -1e8).any()
    found = network.graphs.search(parity.state_of(network.graphs, session), typed, **settings)
    press = KeyPress(parity.state_of(network.engines, session)["session_queries"], typed, STEPS)
    batches = [network.engines.run([press] * batch) for batch in BATCHES]
    for one in (found, *(row for batch in batches for row in batch)):
        live, got = parity.live_rows(wanted), parity.live_rows(one)
        assert list(got) == list(live)
        np.testing.assert_allclose(list(got.values()), list(live.values()), atol=1e-4)
        assert one.mass == pytest.approx(wanted.mass, abs=1e-4)


def test_a18_files_weigh_no_more_than_their_parameters(tmp_path: Path) -> None:
    config = ModelConfig(vocab_size=4096)
    state = {name: tensor.numpy() for name, tensor in build(config).state_dict().items()}
    state = {name: tensor + np.float32(0.01) for name, tensor in state.items()}  # none is zero
    for precision in ("fp32", "int8"):
        graphs = build_graphs(state, config, uniform_plan(precision))
        (tmp_path / precision).mkdir()
        graphs.save(tmp_path / precision)
        stored = sum(file.stat().st_size for file in (tmp_path / precision).iterdir())
        assert stored <= 1.05 * graphs.weight_bytes


def test_a19_int8_hears_the_session_as_fp32_does(
    tiny_bundle: Path, tiny_checkpoint: Path, unseen_sessions: list[list[str]], tmp_path: Path
) -> None:
    assert len(unseen_sessions) == 200
    checkpoint = load_checkpoint(tiny_checkpoint)
    config = checkpoint.config.model
    state = {name: tensor.numpy() for name, tensor in checkpoint.model.state_dict().items()}
    build_graphs(state, config, uniform_plan("fp32")).save(tmp_path)
    exact, bundle = OnnxEngine(tmp_path, asdict(config)), Suggester.open(tiny_bundle)
    fp32, int8 = (
        Suggester(
            engine=engine,
            tokenizer=bundle.tokenizer,
            completions=Completions(()),
            blocklist=Blocklist(),
            decoding=Decoding(beam=8, max_steps=config.max_tokens + 1),
        )
        for engine in (exact, bundle.engine)
    )
    asked = [(session[:-1], session[-1]) for session in unseen_sessions]
    effects = [golden.session_effect(suggester, asked) for suggester in (fp32, int8)]
    assert effects[0].swapped > 0.5
    for rounded, whole in zip(effects[1], effects[0], strict=True):
        assert rounded == pytest.approx(whole, rel=0.1)
    ranks = [[reciprocal_rank(suggester, *pair) for pair in asked] for suggester in (fp32, int8)]
    assert np.mean(ranks[0]) > 0.2
    assert np.mean(ranks[1]) >= np.mean(ranks[0]) - held_out.MAX_MRR_DROP
    gates = {gate["name"]: gate["ok"] for gate in folders.read_manifest(tiny_bundle)["gates"]}
    assert gates["size of the quantized graphs beside the fp32 ones, bytes"]


def reciprocal_rank(suggester: Suggester, session: list[str], query: str) -> float:
    texts = [found.text for found in suggester.session(session).suggest("").suggestions]
    return 1 / (1 + texts.index(query)) if query in texts else 0.0


@pytest.mark.parametrize("part", ["scores", "mass"])
def test_a20_no_number_is_never_taken_for_agreement(network: Network, part: str) -> None:
    cases = agreement.record(network.reference, network.engines, network.sizes, network.constraint, ("", "ne"), seed=1)

    class Broken:
        def run(self, presses: list[KeyPress]) -> list[Any]:
            found = network.engines.run(presses)
            last = found[-1]
            if part == "mass":
                return [*found[:-1], last._replace(mass=float("nan"))]
            return [*found[:-1], last._replace(scores=np.full_like(last.scores, np.nan))]

    for precision in ("fp32", "fp16"):
        checks = agreement.check(Broken(), network.sizes, cases, precision, "broken")  # type: ignore[arg-type]
        assert not all(check.ok for check in checks)
        if part == "mass":
            assert "nan" in [check.value for check in checks]


def test_a20_the_corners_of_a_profile_are_the_lengths_that_requests_have(network: Network) -> None:
    """Every corner builds in `test_tensorrt_engines.py` (slow, with TensorRT for RTX): the empty session is one."""
    for number, axis in network.sizes.axes.items():
        assert 1 <= axis.least <= axis.usual <= axis.most, number
    nothing = network.constraint.typed("", network.config.max_tokens)
    assert nothing is not None
    assert len(nothing.next_state) >= network.sizes.axes["states"].least
    start = network.engines.start()["session_queries"]
    assert start.shape == (network.sizes.axes["queries"].least, network.config.max_tokens)


@pytest.mark.slow
def test_a20_ten_thousand_requests_of_random_lengths_leave_memory_flat(tiny_bundle: Path) -> None:
    done = subprocess.run([sys.executable, __file__, str(tiny_bundle)], capture_output=True, text=True, check=True)
    memory = np.array(json.loads(done.stdout))
    assert memory[-10:].mean() <= 1.02 * memory[10:20].mean()


def memory_under_random_requests(bundle: Path, requests: int = 10_000) -> list[float]:
    """Resident megabytes after every hundredth request."""
    draw, memory, process = random.Random(2), [], psutil.Process()
    words = ("new york", "jaguar", "東京", "naïve café", "hotels near me", "x" * 40, "москва jobs 🎉")
    with Suggester.open(bundle) as suggester:
        for number in range(requests):
            session = suggester.session(draw.choices(words, k=draw.randint(0, 17)))
            typed = " ".join(draw.choices(words, k=3))[: draw.randint(0, 32)]
            session.suggest(typed, draw.choice((1, 8, 8, 20)))
            if number % 100 == 0:
                memory.append(process.memory_info().rss / 1e6)
    return memory


if __name__ == "__main__":
    sys.stdout.write(json.dumps(memory_under_random_requests(Path(sys.argv[1]))))
