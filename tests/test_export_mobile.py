"""`export mobile`: graphs in ONNX Runtime's own format, and signatures that somebody else's bundle does not have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("lightning", reason="bundles are made with the extra [train]")
pytest.importorskip("cryptography", reason="signatures need the extra [sign]")

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from export.operators import read_graph
from mtn_edge.cli import app
from mtn_edge.errors import UserError
from mtn_edge.folders import MANIFEST, SIGNATURE
from mtn_edge.runtime.suggester import Suggester

RUN = CliRunner()
NO_PASSPHRASE = NoEncryption()


def pem(key: Ed25519PrivateKey, encryption: KeySerializationEncryption = NO_PASSPHRASE) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def public_pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`private.pem`, `public.pem`, and `other.pem`, the public key of somebody else."""
    folder, key = tmp_path_factory.mktemp("keys"), Ed25519PrivateKey.generate()
    (folder / "private.pem").write_bytes(pem(key))
    (folder / "public.pem").write_bytes(public_pem(key))
    (folder / "other.pem").write_bytes(public_pem(Ed25519PrivateKey.generate()))
    return folder


@pytest.fixture(scope="module")
def signed(tiny_bundle: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle, signed."""
    out = tmp_path_factory.mktemp("signed") / "bundle"
    result = RUN.invoke(
        app, ["export", "mobile", str(tiny_bundle), "-o", str(out), "--sign", str(keys / "private.pem")]
    )
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="module")
def ort(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle in ONNX Runtime's own format."""
    out = tmp_path_factory.mktemp("ort") / "bundle"
    result = RUN.invoke(app, ["export", "mobile", str(tiny_bundle), "-o", str(out), "--ort-format", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ort_format"] is True
    return out


def refusal(*arguments: object) -> str:
    result = RUN.invoke(app, [*map(str, arguments)])
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_a_signed_bundle_opens_with_its_key(signed: Path, keys: Path) -> None:
    assert RUN.invoke(app, ["verify", str(signed), "--key", str(keys / "public.pem")]).exit_code == 0
    assert RUN.invoke(app, ["verify", str(signed)]).exit_code == 0
    assert Suggester.open(signed, key=keys / "public.pem").session().suggest("new").suggestions


def test_another_key_and_no_signature_are_refused(signed: Path, tiny_bundle: Path, keys: Path) -> None:
    assert "not by the given key" in refusal("verify", signed, "--key", keys / "other.pem")
    assert f"holds no {SIGNATURE}" in refusal("verify", tiny_bundle, "--key", keys / "public.pem")


def test_what_changed_after_signing_is_refused(signed: Path, keys: Path, tmp_path: Path) -> None:
    """A manifest made anew fits the files that were changed, but nobody else can sign it."""
    bundle = Path(shutil.copytree(signed, tmp_path / "bundle"))
    text = (bundle / MANIFEST).read_text(encoding="utf-8")
    (bundle / MANIFEST).write_text(text.replace('"beam": ', '"beam":  '), encoding="utf-8")
    with pytest.raises(UserError, match="its manifest has changed since it was signed"):
        Suggester.open(bundle, key=keys / "public.pem")
    (bundle / MANIFEST).write_text(text, encoding="utf-8")
    (bundle / SIGNATURE).write_bytes((bundle / SIGNATURE).read_bytes()[:-1])
    with pytest.raises(UserError, match="not by the given key"):
        Suggester.open(bundle, key=keys / "public.pem")


def test_a_copy_of_a_signed_bundle_is_not_signed(signed: Path, keys: Path, tmp_path: Path) -> None:
    done = RUN.invoke(app, ["export", "mobile", str(signed), "-o", str(tmp_path / "copy")])
    assert done.exit_code == 0
    assert "not signed" in done.output
    assert not (tmp_path / "copy" / SIGNATURE).exists()
    again = ["export", "mobile", str(signed), "-o", str(tmp_path / "copy"), "--sign", str(keys / "private.pem")]
    assert "exists already" in refusal(*again)
    assert RUN.invoke(app, [*again, "--force"]).exit_code == 0
    assert RUN.invoke(app, [*again, "--force"]).exit_code == 0  # a signature does not make it a stranger's


def test_what_is_no_key_is_refused(tiny_bundle: Path, keys: Path, tmp_path: Path) -> None:
    locked, elliptic, nonsense = tmp_path / "locked.pem", tmp_path / "elliptic.pem", tmp_path / "nonsense.pem"
    locked.write_bytes(pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret")))
    curve = generate_private_key(SECP256R1())
    elliptic.write_bytes(curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NO_PASSPHRASE))
    nonsense.write_bytes(b"\x00" * 100)
    out = tmp_path / "out"
    for key in (locked, elliptic, nonsense, keys / "public.pem"):
        assert "no Ed25519 private key" in refusal("export", "mobile", tiny_bundle, "-o", out, "--sign", key)
    for key in (elliptic, nonsense, keys / "private.pem"):
        assert "no Ed25519 public key" in refusal("verify", tiny_bundle, "--key", key)
    assert "cannot be read" in refusal("verify", tiny_bundle, "--key", tmp_path / "nowhere.pem")
    assert not out.exists()


def test_the_runtimes_own_format_suggests_the_same(ort: Path, tiny_bundle: Path) -> None:
    assert {file.name for file in ort.iterdir()} >= {"encode.ort", "suggest.ort"}
    assert not list(ort.glob("*.onnx"))
    suggesters = [Suggester.open(bundle) for bundle in (tiny_bundle, ort)]
    for queries in ([], ["new york hotels"], ["jaguar habitat", "jaguar food", "new york"]):
        for typed in ("", "n", "new yo", "ja", "東"):
            one, other = (suggester.session(queries).suggest(typed).suggestions for suggester in suggesters)
            assert [each.text for each in one] == [each.text for each in other]
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-5)


def test_the_runtimes_own_format_holds_one_table_and_says_what_it_needs(ort: Path, tiny_bundle: Path) -> None:
    # Of the one table; folded, it would be stored as well.
    assert read_graph(ort / "suggest.ort").operators["Transpose"]
    for name in ("encode", "suggest"):
        counts = [read_graph(file).operators for file in (tiny_bundle / f"{name}.onnx", ort / f"{name}.ort")]
        assert counts[0]["DynamicQuantizeMatMul"] == counts[1]["DynamicQuantizeMatMul"] > 0
    config = (ort / "required_operators_and_types.config").read_text(encoding="utf-8")
    assert "DynamicQuantizeMatMul" in config
    assert '"inputs"' in config  # the types
    assert "already" in refusal("export", "mobile", ort, "-o", ort.parent / "again", "--ort-format")


def test_a_checkpoint_becomes_a_bundle_first(tiny_checkpoint: Path, tmp_path: Path) -> None:
    result = RUN.invoke(app, ["export", "mobile", str(tiny_checkpoint), "-o", str(tmp_path / "bundle"), "--ort-format"])
    assert result.exit_code == 0, result.output
    assert "build.sh" in result.output
    assert (tmp_path / "bundle" / "suggest.ort").is_file()
