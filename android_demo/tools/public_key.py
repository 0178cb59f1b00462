"""Writes the Ed25519 public key of the app's manifest, 64 hex digits, as the PEM file that `verify --key` reads.

public_key.py HEX
"""

import base64
import sys

DER = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of the key (RFC 8410, section 4)."""


def pem(digits: str) -> str:
    """The PEM file's text."""
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if len(key) != 32:
        sys.exit(f"`bundle_key` is {digits}, and it must be the 64 hex digits of an Ed25519 public key, or empty")
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(DER + key).decode()}\n-----END PUBLIC KEY-----\n"


if __name__ == "__main__":
    sys.stdout.write(pem(sys.argv[1]))
