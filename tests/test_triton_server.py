"""A real Triton server on the CPU serves a bundle: every answer is the local one, and it survives being killed.

The server comes from the package `nvidia-pytriton`, which is installed into an environment of its own.
"""

import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from export.triton.repository import export_triton
from mtn_edge import folders
from mtn_edge.runtime import completions
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.lists import FOLLOWERS
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester

pytestmark = pytest.mark.slow

PACKAGES = ("nvidia-pytriton==0.7.0", "numpy<2", "tritonclient[http,grpc]")
"""Its server is Triton 2.51, whose Python backend reads no NumPy 2."""
CLIENTS = 8
START_SECONDS = 400
SHARED_MEMORY = Path("/dev") / "shm"
QUERIES = (
    "paris hotels",
    "new york weather",
    "москва jobs 🎉",
    "東京 naïve café",
    "jaguar test drive",
    "near me",
    "Boston ",
)


class Question(NamedTuple):
    session: tuple[str, ...]
    typed: str
    count: int


class Answer(NamedTuple):
    texts: list[str]
    scores: list[float]
    sources: list[str]
    reason: str


@pytest.fixture(scope="module")
def python(make_environment: Callable[..., Path]) -> Path:
    """The interpreter of an environment with the server and Triton's client."""
    return make_environment(*PACKAGES)


@pytest.fixture(scope="module")
def repository(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("triton") / "repository"
    export_triton(tiny_bundle, out, instances=2)
    return out


@pytest.fixture(scope="module")
def backends(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of backends with the Python one, whose process is the one for this Python."""
    server = server_folder(python)
    folder = tmp_path_factory.mktemp("backends")
    shutil.copytree(server / "backends" / "python", folder / "python")
    version = sysconfig.get_python_version()
    stub = shutil.copy(server / "python_backend_stubs" / version / "triton_python_backend_stub", folder / "python")
    for program in (Path(stub), server / "bin" / "tritonserver"):
        program.chmod(0o755)
    return folder


def server_folder(python: Path) -> Path:
    return next(python.parents[1].glob("lib/python*/site-packages")) / "pytriton" / "tritonserver"


class Server:
    """One `tritonserver`."""

    def __init__(self, python: Path, backends: Path, repository: Path, log: Path) -> None:
        self._python, self._backends, self._repository, self._log = python, backends, repository, log
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            self.port: int = any_port.getsockname()[1]
        self.region = f"mtn_edge_{os.getpid()}_{self.port}_"
        """How the names of its shared memory begin."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until the model is ready."""
        libraries = self._python.parents[1].glob("lib/python*/site-packages/nvidia_pytriton.libs")
        path = [sysconfig.get_config_var("LIBDIR"), *map(str, libraries)]
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(path),
            # Triton's Python takes the packages of the interpreter that it finds first.
            "PATH": f"{self._python.parent}:{os.environ['PATH']}",
        }
        command = [
            *(server_folder(self._python) / "bin" / "tritonserver", "--model-repository", self._repository),
            *("--backend-directory", self._backends, "--http-address", "127.0.0.1", "--http-port", self.port),
            *("--allow-grpc", "false", "--allow-metrics", "false"),
            f"--backend-config=python,stub-timeout-seconds={START_SECONDS}",
            f"--backend-config=python,shm-region-prefix-name={self.region}",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(map(str, command)), env=environment, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            if self._is_ready():
                return
            time.sleep(0.2)
        raise RuntimeError(f"no server; its log ends with:\n{self.log()[-3000:]}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def processor_seconds(self) -> float:
        """Of the server and its instances since they started."""
        assert self._process is not None
        whole = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in (whole, *whole.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def kill(self) -> None:
        """As a machine does that loses its power."""
        if self._process is not None and self._process.poll() is None:  # it may have ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _is_ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/v2/models/suggest/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@contextmanager
def serving(python: Path, backends: Path, repository: Path, folder: Path) -> Iterator[Server]:
    server = Server(python, backends, repository, folder / "server.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()
        for region in SHARED_MEMORY.glob(f"{server.region}*"):  # a killed server leaves it behind
            region.unlink(missing_ok=True)


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, question: Question) -> Answer:
        """Raises OSError or HTTPException when the server is away."""
        outputs = self.post({"inputs": tensors([question])})["outputs"]
        texts, scores, sources, reasons = (output["data"] for output in outputs)
        return Answer(texts, scores, sources, reasons[0])

    def post(self, document: dict[str, Any]) -> Any:
        return self.post_raw(json.dumps(document).encode(), {})

    def post_raw(self, body: bytes, headers: dict[str, str]) -> Any:
        self._connection.request("POST", "/v2/models/suggest/infer", body, headers)
        return json.loads(self._connection.getresponse().read())

    def close(self) -> None:
        self._connection.close()


def tensors(questions: list[Question]) -> list[dict[str, Any]]:
    """The inputs of one request; sessions that are shorter end with empty queries."""
    width = max(len(question.session) for question in questions)
    rows = [[*question.session, *[""] * (width - len(question.session))] for question in questions]
    session = {"name": "SESSION", "datatype": "BYTES", "shape": [len(rows), width], "data": [*itertools.chain(*rows)]}
    one = [len(rows), 1]
    return [
        {"name": "TYPED", "datatype": "BYTES", "shape": one, "data": [question.typed for question in questions]},
        {"name": "COUNT", "datatype": "INT32", "shape": one, "data": [question.count for question in questions]},
        *([session] if width else []),
    ]


def questions(number: int) -> list[Question]:
    """Key presses in sessions of 0 to 4 queries."""
    draw = random.Random(5)
    chosen = []
    for _ in range(number):
        query = draw.choice(QUERIES)
        session = tuple(draw.choices(QUERIES, k=draw.randint(0, 4)))
        chosen.append(Question(session, query[: draw.randint(0, len(query))], draw.randint(1, 8)))
    return chosen


def local(suggester: Suggester, question: Question) -> Answer:
    result = suggester.session(question.session).suggest(question.typed, question.count)
    found = result.suggestions
    return Answer([x.text for x in found], [x.score for x in found], [x.source for x in found], result.reason or "")


@pytest.fixture(scope="module")
def expected(tiny_bundle: Path) -> dict[Question, Answer]:
    with Suggester.open(tiny_bundle) as suggester:
        return {question: local(suggester, question) for question in questions(300)}


class Load:
    """Clients that ask questions at once, each on its own connection and one after the other.

    Attributes:
        wrong: questions that were answered otherwise than expected.
        failed: questions that got no answer.
        milliseconds: of each answer.
    """

    def __init__(self, port: int, expected: dict[Question, Answer]) -> None:
        self.port, self.expected = port, expected
        self.wrong: list[Question] = []
        self.failed: list[Question] = []
        self.milliseconds: list[float] = []

    def run(self, number: int) -> float:
        """Asks `number` questions; returns the seconds that they took."""
        asked = iter(list(itertools.islice(itertools.cycle(self.expected), number)))
        lock = threading.Lock()
        threads = [threading.Thread(target=self._work, args=(asked, lock)) for _ in range(CLIENTS)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began

    def _work(self, asked: Iterator[Question], lock: threading.Lock) -> None:
        client = Client(self.port)
        while True:
            with lock:
                question = next(asked, None)
            if question is None:
                client.close()
                return
            began = time.monotonic()
            try:
                answer = client.ask(question)
            except (OSError, http.client.HTTPException, KeyError, ValueError):
                self.failed.append(question)
                client.close()
                client = Client(self.port)
                continue
            self.milliseconds.append((time.monotonic() - began) * 1000)
            if answer != self.expected[question]:
                self.wrong.append(question)


@pytest.fixture(scope="module")
def server(
    python: Path, backends: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with serving(python, backends, repository, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("number", [pytest.param(1_000, id="quick"), pytest.param(10_000, id="full")])
def test_eight_clients_get_what_the_bundle_gives_here(
    server: Server, expected: dict[Question, Answer], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load(server.port, expected)
    before = server.processor_seconds()
    seconds = load.run(number)
    work = (server.processor_seconds() - before) * 1000 / number
    assert (load.wrong, load.failed) == ([], [])
    assert len(load.milliseconds) == number
    ranked = sorted(load.milliseconds)
    half, most = (ranked[int(share * len(ranked))] for share in (0.5, 0.99))
    rate = f"{number / seconds:,.0f}/s, p50 {half:.1f} ms, p99 {most:.1f} ms, {work:.2f} ms of processor time each"
    with capsys.disabled():
        print(f"\n{number:,} requests by {CLIENTS} clients: {rate}")  # noqa: T201


def test_one_request_of_many_rows_is_answered_row_by_row(server: Server, expected: dict[Question, Answer]) -> None:
    asked = list(expected)[:20]
    client = Client(server.port)
    texts, scores, _, reasons = (x for x in client.post({"inputs": tensors(asked)})["outputs"])
    width = texts["shape"][1]
    for row, question in enumerate(asked):
        right = expected[question]
        padding = width - len(right.texts)
        assert texts["data"][row * width : (row + 1) * width] == right.texts + [""] * padding
        assert scores["data"][row * width : (row + 1) * width] == right.scores + [0.0] * padding
        assert reasons["data"][row] == right.reason
    client.close()


def test_what_is_no_request_is_refused_in_a_sentence(server: Server, expected: dict[Question, Answer]) -> None:
    client = Client(server.port)
    good = next(iter(expected))
    for bad, sentence in (
        (good._replace(count=-1), "`COUNT` is -1, and it must be 0 to 1,000; ask for 1 or more."),
        (
            good._replace(typed="x" * 16_001),
            "a text of `TYPED` has 16,001 bytes, and it must be at most 16,000; send less of it.",
        ),
        (
            good._replace(session=("a",) * 1_001),
            "`SESSION` holds 1,001 queries, and it must be at most 1,000; send the last ones.",
        ),
    ):
        assert client.post({"inputs": tensors([bad])}) == {"error": sentence}
    # A text that is no UTF-8 cannot stand in JSON: it comes behind it, as tensors do in binary.
    raw = (2).to_bytes(4, "little") + b"\xff\xfe"
    typed = {"name": "TYPED", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [typed]}).encode()
    answer = client.post_raw(head + raw, {"Inference-Header-Content-Length": str(len(head))})
    assert answer == {"error": "a text of `TYPED` is no UTF-8, and it must be UTF-8; encode it so."}
    assert client.ask(good) == expected[good]
    client.close()


def test_the_example_of_a_client_works(
    python: Path, server: Server, repository: Path, expected: dict[Question, Answer]
) -> None:
    question = next(question for question in expected if question.session and expected[question].texts)
    session = [part for query in question.session for part in ("-s", query)]
    done = subprocess.run(
        [
            *(python, repository / "client_example.py", "--url", f"127.0.0.1:{server.port}", *session),
            *("-p", question.typed, "-k", str(question.count)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    right = expected[question]
    lines = zip(right.scores, right.texts, right.sources, strict=True)
    wanted = [f"{score:8.3f}  {text}  ({source})" for score, text, source in lines]
    assert done.stdout.splitlines() == wanted + ([f"({right.reason})"] if right.reason else [])


def test_tritons_own_protobuf_reads_the_configuration(python: Path, repository: Path) -> None:
    program = (
        "import sys\n"
        "from google.protobuf import json_format, text_format\n"
        "from tritonclient.grpc import model_config_pb2\n"
        "config = text_format.Parse(open(sys.argv[1]).read(), model_config_pb2.ModelConfig())\n"
        "print(json_format.MessageToJson(config))"
    )
    file = repository / "suggest" / "config.pbtxt"
    done = subprocess.run([python, "-c", program, file], capture_output=True, text=True, check=True)
    config = json.loads(done.stdout)
    assert (config["name"], config["backend"], config["maxBatchSize"]) == ("suggest", "python", 64)
    assert {
        port["name"]: (port["dataType"], port["dims"], port.get("optional", False)) for port in config["input"]
    } == {
        "TYPED": ("TYPE_STRING", ["1"], False),
        "SESSION": ("TYPE_STRING", ["-1"], True),
        "COUNT": ("TYPE_INT32", ["1"], True),
        "DEADLINE_MS": ("TYPE_FP32", ["1"], True),
    }
    assert [port["name"] for port in config["output"]] == ["TEXTS", "SCORES", "SOURCES", "REASON"]
    assert config["instanceGroup"] == [{"count": 2, "kind": "KIND_CPU"}]
    assert len(config["modelWarmup"]) == 1


def test_killed_and_started_again_only_requests_in_flight_are_lost(
    python: Path, backends: Path, repository: Path, expected: dict[Question, Answer], tmp_path: Path
) -> None:
    with serving(python, backends, repository, tmp_path) as server:
        load = Load(server.port, expected)
        thread = threading.Thread(target=load.run, args=(2_000,))
        thread.start()
        while len(load.milliseconds) < 200:
            time.sleep(0.01)
        server.kill()
        thread.join()
        answered = len(load.milliseconds)
        assert 200 <= answered < 2_000
        assert len(load.failed) == 2_000 - answered
        assert load.wrong == []
        server.start()
        again = Load(server.port, expected)
        again.run(300)
        assert (again.wrong, again.failed) == ([], [])


def test_a_damaged_bundle_is_not_served(python: Path, backends: Path, repository: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(repository, tmp_path / "repository"))
    graph = copy / "suggest" / "1" / "bundle" / "suggest.onnx"
    raw = bytearray(graph.read_bytes())
    raw[len(raw) // 2] ^= 1
    graph.write_bytes(raw)
    server = Server(python, backends, copy, tmp_path / "server.log")
    with pytest.raises(RuntimeError, match="failed to load all models"):
        server.start()
    assert f"`{graph}` is missing, damaged or changed" in server.log()


STAND_IN = '''
import json
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Runs a network on ONNX Runtime, with the inputs and outputs of the TensorRT backend."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.names = [port["name"] for port in config["input"]], [port["name"] for port in config["output"]]
        self.network = onnxruntime.InferenceSession(str(Path(__file__).parent / "model.plan"))
        self.flat = {entry.name for entry in self.network.get_inputs() if len(entry.shape) == 1}

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        given, wanted = self.names
        feeds = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in given}
        feeds = {name: array.reshape(-1) if name in self.flat else array for name, array in feeds.items()}
        made = self.network.run(wanted, feeds)
        made = [array[:, None] if array.ndim == 1 else array for array in made]
        tensors = [pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in zip(wanted, made)]
        return pb_utils.InferenceResponse(output_tensors=tensors)
'''
"""What stands in for an engine where there is no GPU: the same network, behind Triton's Python backend."""


@pytest.fixture(scope="module")
def engines(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of engines whose files hold ONNX, as `export tensorrt` makes them before it builds."""
    pytest.importorskip("onnxscript", reason="PyTorch writes ONNX with onnxscript")
    from export.tensorrt.sizes import Sizes
    from export.tensorrt.write import Lowering
    from mtn_edge.training.checkpoint import load_checkpoint

    folder, checkpoint = tmp_path_factory.mktemp("engines") / "engines", load_checkpoint(tiny_checkpoint)
    sizes = Sizes.of(checkpoint.config.model, beam=8, steps=4, max_batch=8)
    folder.mkdir()
    Lowering(checkpoint, sizes, "fp32", None, 1).write_onnx(folder)
    for part in ("encoder", "search"):
        (folder / f"{part}.onnx").rename(folder / f"{part}.engine")
    shutil.copy(tiny_checkpoint / "tokenizer.json", folder)
    for name in (completions.FILE, FOLLOWERS):
        Completions(()).save(folder / name)
    (folder / "blocklist.txt").write_text("")
    content = {
        "precision": "fp32",
        "sizes": asdict(sizes),
        "decoding": asdict(Decoding(beam=8, max_steps=4)),
        "builder": {"runtime": "tensorrt"},
        "lineage": {},
    }
    folders.write_manifest(folder, "engines", content)
    return folder


@pytest.fixture(scope="module")
def engines_server(
    python: Path, backends: Path, engines: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    out = tmp_path_factory.mktemp("triton") / "engines"
    export_triton(engines, out)
    for part in ("suggest-encoder", "suggest-search"):
        file = out / part / "config.pbtxt"
        text = file.read_text().replace('backend: "tensorrt"', 'backend: "python"').replace("KIND_GPU", "KIND_CPU")
        file.write_text(text)
        (out / part / "1" / "model.py").write_text(STAND_IN)
    with serving(python, backends, out, tmp_path_factory.mktemp("server")) as running:
        yield running


def test_the_model_in_front_of_engines_calls_them_and_answers_as_here(engines_server: Server, engines: Path) -> None:
    """All but the TensorRT backend itself, which needs a GPU: warm-ups, batches, calls from model to model."""
    from export.tensorrt.runners import OnnxNetwork
    from export.tensorrt.serving import open_engines

    for part in ("encoder", "search"):
        shutil.copy(engines / f"{part}.engine", engines.parent / f"{part}.onnx")
    served = open_engines(engines, *(OnnxNetwork(engines.parent / f"{part}.onnx") for part in ("encoder", "search")))
    asked, client = [question for question in questions(24) if question.count <= 8], Client(engines_server.port)
    found = 0
    for start in range(0, len(asked), 6):
        rows = asked[start : start + 6]
        answer = client.post({"inputs": tensors(rows)})
        assert "error" not in answer, answer
        texts, scores, _, reasons = answer["outputs"]
        wanted = served.engine.run([partial(local, served.suggester, question) for question in rows])
        width = texts["shape"][1]
        for row, right in enumerate(wanted):
            assert texts["data"][row * width : (row + 1) * width] == right.texts + [""] * (width - len(right.texts))
            got = scores["data"][row * width : row * width + len(right.scores)]
            assert got == pytest.approx(right.scores, abs=1e-5)
            assert reasons["data"][row] == right.reason
            found += len(right.texts)
    assert found > 10
    client.close()
