"""A site's key: it signs what the site asks of the server, and only its public half travels."""

import base64
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from polyclinic.runs.files import replacing

CURVES = ("secp256r1", "secp384r1", "secp521r1")


def make_key(path: Path) -> Path:
    """Makes a key that only its owner can read, beside it `.pub`, and gives the path of that."""
    if path.exists():
        raise ValueError(f"{path} exists and is kept; remove it first to make another")
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_private(path, private)
    half = public_half(path)
    half.write_bytes(public + f" {path.name}\n".encode())
    return half


def public_half(path: Path) -> Path:
    """Where the public half of a key lies."""
    return path.with_name(f"{path.name}.pub")


def fingerprint(path: Path) -> str:
    """The fingerprint of a .pub or a private key, as ssh-keygen shows it; ValueError if none."""
    public = _public(path).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def is_private(path: Path) -> bool:
    """Whether nobody but its owner can read or write a file."""
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def _public(path: Path) -> ec.EllipticCurvePublicKey:
    """The public half of a key or a .pub; ValueError where it is none that Flower can use."""
    key: object = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        if path.suffix == ".pub":
            key = load_ssh_public_key(path.read_bytes())
        else:
            key = load_ssh_private_key(path.read_bytes(), password=None).public_key()
    if key is None:
        kind = "public key" if path.suffix == ".pub" else "key"
        raise ValueError(f"{path} is no {kind} in OpenSSH's format, or has a passphrase")
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in CURVES:
        raise ValueError(f"{path} is no elliptic-curve key; make one by `polyclinic deploy key`")
    return key
