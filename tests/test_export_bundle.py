"""A bundle proves itself before it is published and wherever it lands; what is damaged, wrong or deaf is refused."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mtn_edge import folders
from mtn_edge.errors import EXIT_GATE, GateError, UserError

onnx = pytest.importorskip("onnx", reason="bundles are made with the extra [train]")
pytest.importorskip("torch", reason="bundles are made with the extra [train]")

import export.bundle  # noqa: E402
import export.graphs  # noqa: E402
from export import calibrate, golden, graph_layers  # noqa: E402
from export.bundle import write_bundle  # noqa: E402
from export.verify import verify_bundle  # noqa: E402
from mtn_edge.runtime.blocklist import Blocklist, fold, hashed  # noqa: E402
from mtn_edge.runtime.completions import Completions  # noqa: E402
from mtn_edge.runtime.suggester import DENIED, Suggester  # noqa: E402
from quantize.int8 import Int8Weight  # noqa: E402

FILES = (
    *("encode.onnx", "suggest.onnx", "tokenizer.json", "golden.json"),
    *("completions.list", "followers.list"),
    *("required_operators.config", "MODEL_CARD.md", "manifest.json"),
)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mtn_edge", *map(str, arguments)], capture_output=True, text=True)


def failed(path: Path) -> set[str]:
    return {check.name for check in verify_bundle(path) if not check.ok}


def remanifest(path: Path) -> None:
    """Makes the manifest agree with the files again, as somebody would who means to deceive."""
    manifest = folders.read_manifest(path, "bundle")
    own = {"kind", "format_version", "mtn_edge_version", "files", "manifest_sha256"}
    (path / folders.MANIFEST).unlink()
    folders.write_manifest(path, "bundle", {key: value for key, value in manifest.items() if key not in own})


@pytest.fixture
def copy(tiny_bundle, tmp_path):
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def test_bundle_is_whole_and_verified(tiny_bundle, tiny_dataset, tiny_checkpoint):
    manifest = folders.read_manifest(tiny_bundle, "bundle")
    assert set(manifest["files"]) == {*FILES, "blocklist.txt"} - {"manifest.json"}
    assert manifest["precision"] == {
        **dict.fromkeys(["embedding", "query_encoder", "session_encoder", "memory", "decoder"], "int8"),
        **dict.fromkeys(["norms", "biases", "positions", "projection"], "fp32"),
    }
    decoding = manifest["decoding"]
    assert set(decoding) == {
        *("beam", "max_steps", "min_probability_complete", "min_probability_suggest", "length_normalization"),
        *("mix_complete", "mix_suggest"),
    }
    assert (decoding["beam"], decoding["max_steps"]) == (8, 13)
    assert decoding["length_normalization"] in calibrate.EXPONENTS
    assert {decoding["min_probability_complete"], decoding["min_probability_suggest"]} <= set(calibrate.FLOORS)
    assert (manifest["opset"], manifest["ir_version"]) == (20, 10)
    assert manifest["lineage"] == {
        "checkpoint": folders.read_manifest(tiny_checkpoint)["manifest_sha256"],
        "trained_on": folders.read_manifest(tiny_dataset)["manifest_sha256"],
        "data": folders.read_manifest(tiny_dataset)["manifest_sha256"],
        "ngram": None,
        "seed": 1,
    }
    assert set(manifest["quality"]) == {"test", "valid"}
    int8, fp32 = (manifest["quality"]["test"][precision]["nats_per_token"] for precision in ("int8", "fp32"))
    assert int8 == pytest.approx(fp32, rel=0.02)
    assert any(quality["int8"] != quality["fp32"] for quality in manifest["quality"].values())
    assert all(gate["ok"] for gate in manifest["gates"])
    assert failed(tiny_bundle) == set()
    assert not list(tiny_bundle.parent.glob(".bundle*"))


def test_completions_are_the_popular_queries(tiny_bundle, tiny_dataset):
    from mtn_edge.data.dataset import Dataset

    completions = Completions.load(tiny_bundle / "completions.list")
    assert dict(completions.top("", len(completions))) == dict(Dataset.open(tiny_dataset).popularity())


def test_golden_vectors_hold_texts_scores_margins_and_awkward_texts(tiny_bundle):
    document = json.loads((tiny_bundle / "golden.json").read_bytes())
    assert {vector["typed"] for vector in document["vectors"]} >= set(golden.AWKWARD)
    assert len(document["asked"]) > 10
    assert all(session for session, _ in document["asked"])
    spelt = Suggester.open(tiny_bundle).tokenizer.decode_bytes
    compared = 0
    for vector in document["vectors"]:
        for entry, following in zip(vector["suggestions"], vector["suggestions"][1:], strict=False):
            assert entry["text"].startswith(vector["typed"])
            assert entry["margin"] == entry["score"] - following["score"] >= 0
            assert entry["near_tie"] == (entry["margin"] <= document["tolerance"])
            compared += 1
        for tokens in vector["tokens"]:
            assert tokens[-1] == 2
            assert spelt(tokens).decode()
    assert compared > 50
    shapes = {(len(case["session"]), case["beam"]) for case in document["references"]}
    assert shapes == {(queries, beam) for queries in (0, 1, 5, 6) for beam in (1, 4, 8)}


def test_no_session_of_a_user_leaves_with_the_bundle(tiny_bundle, tiny_dataset):
    """A session of the dataset is one user's, whatever K is: those of the golden vectors are the bundle's own."""
    from mtn_edge.data.dataset import Dataset

    data = Dataset.open(tiny_dataset)
    long = {
        tuple(queries) for split in ("train", "valid", "test") for queries in data.sessions(split) if len(queries) > 2
    }
    document = json.loads((tiny_bundle / "golden.json").read_bytes())
    shipped = [(*session, query) for session, query in document["asked"]]
    assert sum(len(each) > 2 for each in shipped) > 5
    assert not long & set(shipped)


def test_what_is_denied_stands_nowhere_in_clear(tiny_checkpoint, tiny_dataset, tmp_path):
    (tmp_path / "denied.txt").write_text("new york\n")
    write_bundle(
        *(tiny_checkpoint, tmp_path / "bundle"),
        precision="fp32",
        dataset=tiny_dataset,
        blocklist=tmp_path / "denied.txt",
        hash_blocklist=True,
        force=False,
        seed=1,
    )
    holding = {file.name for file in (tmp_path / "bundle").iterdir() if b"new york" in file.read_bytes()}
    assert holding <= {"golden.json"}  # where the model may have written `new yorkshire`, which is not denied
    denied = Blocklist.load(tmp_path / "denied.txt")
    texts = list(strings(json.loads((tmp_path / "bundle" / "golden.json").read_bytes())))
    assert len(texts) > 100
    assert not [text for text in texts if denied.denies(fold(text))]


def strings(document):
    """Every text in a JSON document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, list | dict):
        for part in document.values() if isinstance(document, dict) else document:
            yield from strings(part)


def test_the_card_speaks_of_this_network(tiny_bundle):
    card = (tiny_bundle / "MODEL_CARD.md").read_text()
    assert "Multiresolution Transformer Network" in card
    assert "Mixed in by whole queries: popular queries" in card
    assert "queries of single users were learnt too (K = 1)" in card


def test_verify_and_quantize_on_the_command_line(tiny_bundle, tiny_checkpoint, tmp_path):
    checked = run("verify", tiny_bundle, "--json")
    assert checked.returncode == 0
    document = json.loads(checked.stdout)
    assert document["ok"] is True
    assert {"name", "ok", "value", "bound"} == set(document["checks"][0])
    assert len(document["checks"]) >= 15

    (tmp_path / "list.txt").write_text("jaguar\nnew york hotels\n")
    denied = ["--blocklist", tmp_path / "list.txt", "--hash-blocklist"]
    made = run("quantize", tiny_checkpoint, "-o", tmp_path / "fp32", "--fp32", "--json", *denied)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["precision"]["decoder"] == "fp32"
    assert failed(tmp_path / "fp32") == set()
    # Without a dataset there are no popular queries, and the card says so.
    assert len(Completions.load(tmp_path / "fp32" / "completions.list")) == 0
    assert "no dataset was at hand" in (tmp_path / "fp32" / "MODEL_CARD.md").read_text()
    assert folders.read_manifest(tmp_path / "fp32")["lineage"]["data"] is None
    # The block list went in as hashes, and is obeyed.
    assert (tmp_path / "fp32" / "blocklist.txt").read_text() == hashed(["jaguar", "new york hotels"])
    session = Suggester.open(tmp_path / "fp32").session()
    assert not [found.text for found in session.suggest("ja", 50).suggestions if "jaguar" in found.text.split()]
    assert session.suggest("jaguar").reason == DENIED
    assert session.suggest("new york", 3).suggestions

    refused = run("quantize", tiny_checkpoint, "-o", tmp_path / "none", "--int8", "--hash-blocklist")
    assert (refused.returncode, "--hash-blocklist needs --blocklist" in refused.stderr) == (2, True)
    refused = run("quantize", tiny_checkpoint, "-o", tmp_path / "none", "--int8", "--blocklist", tmp_path / "missing")
    assert (refused.returncode, "missing` cannot be read" in refused.stderr) == (1, True)


def test_verify_needs_neither_torch_nor_onnx(tiny_bundle):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnx', 'safetensors', 'pyarrow']))\n"
        "from mtn_edge.cli import main; sys.argv = ['mtn-edge', 'verify', sys.argv[1]]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tiny_bundle)], capture_output=True, text=True)
    assert (done.returncode, "verified" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_byte_is_refused_by_name(copy, name):
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    for open_it in (verify_bundle, Suggester.open):
        with pytest.raises(UserError, match=f"{name}` is missing, damaged or changed"):
            open_it(copy)


def test_a_damaged_bundle_on_the_command_line(copy):
    (copy / "suggest.onnx").write_bytes((copy / "suggest.onnx").read_bytes()[:-1])
    for command in (["verify", copy], ["suggest", copy, "-p", "new"]):
        done = run(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert "suggest.onnx` is missing, damaged or changed" in done.stderr


def test_an_added_line_in_the_empty_block_list_is_refused(copy):
    (copy / "blocklist.txt").write_text("x\n")
    with pytest.raises(UserError, match=r"blocklist\.txt` is missing, damaged or changed"):
        verify_bundle(copy)


def deaf(model):
    """Cuts the memory off: what it holds is multiplied by zero before it is used."""
    zero = onnx.numpy_helper.from_array(np.array(0, dtype=np.float32), "zero")
    model.graph.initializer.append(zero)
    for name in ("memory_state", "memory_keys", "memory_values"):
        for node in model.graph.node:
            for place, used in enumerate(node.input):
                if used == name:
                    node.input[place] = f"dead_{name}"
        for node in next(node for node in model.graph.node if node.op_type == "Loop").attribute[0].g.node:
            for place, used in enumerate(node.input):
                if used == name:
                    node.input[place] = f"dead_{name}"
        model.graph.node.insert(0, onnx.helper.make_node("Mul", [name, "zero"], [f"dead_{name}"]))
    return model


def test_a_bundle_that_does_not_hear_the_session_fails_verify(copy):
    deafened = deaf(onnx.load(copy / "suggest.onnx"))
    onnx.checker.check_model(deafened)
    (copy / "suggest.onnx").write_bytes(deafened.SerializeToString())
    remanifest(copy)
    names = failed(copy)
    assert {"session swapped: change of a score", "session cut: change of a score"} <= names
    done = run("verify", copy, "--json")
    assert done.returncode == EXIT_GATE
    assert json.loads(done.stdout)["ok"] is False


def test_graphs_of_another_precision_fail_verify(copy, tiny_checkpoint, tmp_path):
    write_bundle(tiny_checkpoint, tmp_path / "fp32", precision="fp32", dataset=None, force=False, seed=1)
    shutil.copy(tmp_path / "fp32" / "suggest.onnx", copy)
    remanifest(copy)
    assert {"suggest.onnx: integer products", "suggest.onnx: float products beside them"} <= failed(copy)


def test_a_frozen_axis_fails_verify(copy):
    model = onnx.load(copy / "encode.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    (copy / "encode.onnx").write_bytes(model.SerializeToString())
    remanifest(copy)
    assert failed(copy) == {"encode.onnx: inputs and outputs not as contracted"}


def test_other_golden_scores_fail_verify(copy):
    document = json.loads((copy / "golden.json").read_bytes())
    vector = next(vector for vector in document["vectors"] if len(vector["suggestions"]) > 1)
    vector["suggestions"][0]["score"] += 0.3
    vector["suggestions"].append({"text": "zzz", "score": -0.1, "margin": None, "near_tie": False})
    (copy / "golden.json").write_text(json.dumps(document))
    remanifest(copy)
    assert {"golden vectors: score", "golden vectors: hypotheses and suggestions missing"} <= failed(copy)


@pytest.fixture
def refused(tiny_checkpoint, tiny_dataset, tmp_path):
    """Calls `write_bundle`, which must fail a gate and leave nothing behind; gives the sentence."""

    def call() -> str:
        with pytest.raises(GateError) as caught:
            write_bundle(tiny_checkpoint, tmp_path / "out", precision="int8", dataset=tiny_dataset, force=False, seed=1)
        assert list(tmp_path.iterdir()) == []
        assert caught.value.exit_code == EXIT_GATE
        return str(caught.value)

    return call


def test_float_graphs_that_differ_from_pytorch_are_not_kept(refused, monkeypatch):
    monkeypatch.setattr(graph_layers, "EPSILON", 1e-2)
    assert "the graphs do not compute what PyTorch computes: `PyTorch = graph:" in refused()


def test_int8_graphs_with_a_wrong_scale_are_not_kept(refused, monkeypatch):
    def wrong(name, weight):
        right = quantize_weight(name, weight)
        return Int8Weight(right.values, right.scale * np.float32(1.5 if "feed_forward" in name else 1))

    from quantize.int8 import quantize_weight

    monkeypatch.setattr("quantize.plan.quantize_weight", wrong)
    assert "the int8 graphs are not good enough to keep: `PyTorch ~ int8 graph: score" in refused()


def test_int8_graphs_that_do_not_hear_the_session_are_not_kept(refused, monkeypatch):
    def build(config, weights, sources):
        model = build_suggest(config, weights, sources)
        return deaf(model) if isinstance(weights["embedding.weight"], Int8Weight) else model

    build_suggest = export.graphs.build_suggest
    monkeypatch.setattr(export.graphs, "build_suggest", build)
    for bound, value in (("MIN_AGREEMENT", 0.0), ("MAX_MRR_DROP", 1.0), ("MAX_NATS", 99.0)):
        monkeypatch.setattr(f"export.held_out.{bound}", value)
    monkeypatch.setattr("export.parity.INT8_BOUND", 99.0)
    assert "`session swapped: change of a score` is 0.0" in refused()


def test_an_interrupted_run_leaves_nothing(tiny_checkpoint, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(export.bundle, "_write_lists", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(tiny_checkpoint, tmp_path / "out", precision="int8", dataset=None, force=False, seed=1)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_no_bundle(tiny_checkpoint, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "mtn_edge", "quantize", str(tiny_checkpoint), "-o", str(out), "--int8"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*.partial/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    with pytest.raises(UserError, match="does not exist"):
        verify_bundle(out)


@pytest.mark.parametrize(
    ("checkpoint", "sentence"),
    [
        ("tiny_dataset", "is a dataset, not a checkpoint; make one with `mtn-edge train`"),
        ("tiny_bundle", "is a bundle, not a checkpoint"),
        ("missing", "does not exist; name the folder of a checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_refused(checkpoint, sentence, request, tmp_path):
    path = tmp_path / "missing" if checkpoint == "missing" else request.getfixturevalue(checkpoint)
    with pytest.raises(UserError) as caught:
        write_bundle(path, tmp_path / "out", precision="int8", dataset=None, force=False, seed=1)
    assert sentence in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_no_bundle(tiny_checkpoint):
    with pytest.raises(UserError, match="is a checkpoint, not a bundle"):
        verify_bundle(tiny_checkpoint)


def test_a_newer_bundle_is_refused(copy, monkeypatch):
    monkeypatch.setattr(folders, "FORMAT_VERSION", 2)
    remanifest(copy)
    monkeypatch.setattr(folders, "FORMAT_VERSION", 1)
    with pytest.raises(UserError, match="has format version 2, newer than 1"):
        verify_bundle(copy)


def test_a_bundle_is_replaced_by_force_only(tiny_checkpoint, copy):
    before = folders.sha256_file(copy / "manifest.json")
    with pytest.raises(UserError, match="exists already"):
        write_bundle(tiny_checkpoint, copy, precision="fp32", dataset=None, force=False, seed=1)
    assert folders.sha256_file(copy / "manifest.json") == before
    write_bundle(tiny_checkpoint, copy, precision="fp32", dataset=None, force=True, seed=1)
    assert folders.read_manifest(copy)["precision"]["decoder"] == "fp32"


@pytest.mark.parametrize("flags", [[], ["--int8", "--fp32"]])
def test_one_precision_must_be_given(flags, tmp_path):
    done = run("quantize", tmp_path, "-o", tmp_path / "out", *flags)
    assert (done.returncode, "give one of --int8, --int4 and --fp32" in done.stderr) == (2, True)


SECTIONS = ("precision", "quantization", "sizes", "operators", "gates")


@pytest.mark.parametrize("section", SECTIONS)
def test_verify_names_a_section_that_the_manifest_lacks(copy, section):
    manifest = folders.read_manifest(copy, "bundle")
    folders.write_manifest(
        copy, "bundle", {key: manifest[key] for key in ("model", "decoding", *SECTIONS) if key != section}
    )
    with pytest.raises(UserError, match=rf"cannot be checked \(`{section}` is missing\); make the bundle again"):
        verify_bundle(copy)


def test_verify_needs_golden_vectors(copy):
    (copy / "golden.json").unlink()
    remanifest(copy)
    with pytest.raises(UserError, match=r"golden.json` does not hold golden vectors"):
        verify_bundle(copy)
