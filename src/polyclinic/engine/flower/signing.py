"""Signatures with the key of the server's certificate, checked by the consortium's authority."""

import base64
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from pydantic import BaseModel, ConfigDict


class Signed(BaseModel):
    """A signature (ECDSA with SHA-256, base64), and the certificate of its key (PEM)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    signature: str
    certificate: str


def signing_with(certificate: Path, key: Path) -> Callable[[bytes], Signed]:
    """A function that signs; ValueError where the key is of another sort than `deploy init`'s."""
    private = load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} is no elliptic-curve key, with which ledgers are countersigned")
    own = x509.load_pem_x509_certificate(certificate.read_bytes())
    text = own.public_bytes(Encoding.PEM).decode()

    def sign(content: bytes) -> Signed:
        signature = private.sign(content, ec.ECDSA(hashes.SHA256()))
        return Signed(signature=base64.b64encode(signature).decode(), certificate=text)

    return sign


def signed_by(ca: Path, content: bytes, signed: Signed | None) -> bool:
    """Whether a key that the authority certified has signed the content."""
    if signed is None:
        return False
    try:
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
        certificate = x509.load_pem_x509_certificate(signed.certificate.encode())
        certificate.verify_directly_issued_by(authority)
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(base64.b64decode(signed.signature), content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
