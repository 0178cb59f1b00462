"""Who made a bundle: an Ed25519 signature (RFC 8032) of its manifest, which holds the hashes of all other files.

`manifest.sig` holds the 64 bytes of the signature of `manifest.json` as it lies there, so that any tool can check it:

    openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in manifest.json -sigfile manifest.sig

Keys are PEM files as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtn_edge.errors import UserError, missing_extra
from mtn_edge.folders import MANIFEST, SIGNATURE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_LENGTH = 64
_LARGEST_KEY = 1 << 16


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """Reads a key to sign with.

    Raises:
        UserError: the file cannot be read, holds no Ed25519 private key, or one with a passphrase; the package
            `cryptography` is missing.
    """
    _require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it wants a passphrase
        raise _no_key(path, "private") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "private")
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """Reads a key to check with.

    Raises:
        UserError: the file cannot be read or holds no Ed25519 public key; the package `cryptography` is missing.
    """
    _require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path))
    except ValueError as error:
        raise _no_key(path, "public") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "public")
    return key


def sign(folder: Path, key: Ed25519PrivateKey) -> None:
    """Writes the signature of a folder's manifest beside it."""
    (folder / SIGNATURE).write_bytes(key.sign((folder / MANIFEST).read_bytes()))


def check_signature(folder: Path, key: Ed25519PublicKey) -> None:
    """Says who made a folder, before anything in it is used.

    Raises:
        UserError: it is not signed, or not by the owner of `key`, or its manifest has changed since.
    """
    from cryptography.exceptions import InvalidSignature

    file, manifest = folder / SIGNATURE, folder / MANIFEST
    if not file.is_file() or not manifest.is_file():
        raise UserError(
            f"`{folder}` is not signed: it holds no {SIGNATURE}",
            code="unsigned",
            hint="sign it with `mtn-edge export mobile --sign KEY`, or open it without a key",
        )
    try:
        if file.stat().st_size != _LENGTH:
            raise InvalidSignature
        key.verify(file.read_bytes(), manifest.read_bytes())
    except InvalidSignature as error:
        raise UserError(
            f"the signature of `{folder}` is not by the given key, or its manifest has changed since it was signed",
            code="bad-signature",
            hint="get the bundle again from where it was signed, or give the right key",
        ) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_KEY)
    except OSError as error:
        raise UserError(
            f"the key `{path}` cannot be read ({error.strerror})", code="missing", hint="name a PEM file"
        ) from error


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise missing_extra("cryptography", "sign", "a signature") from error


def _no_key(path: Path, kind: str) -> UserError:
    flags = "genpkey -algorithm ed25519 -out" if kind == "private" else "pkey -in PRIVATE.pem -pubout -out"
    return UserError(
        f"`{path}` holds no Ed25519 {kind} key without a passphrase"
        if kind == "private"
        else f"`{path}` holds no Ed25519 public key",
        code="bad-key",
        hint=f"make one with `openssl {flags} {kind.upper()}.pem`",
    )
