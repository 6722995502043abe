"""Asking whether the server knows a site's key, as its SuperNode will, but without a trace.

A SuperNode signs the time with its key and asks to be activated. Asked without the interval of its
heartbeat, the server refuses everybody, and the refusal tells whom it knows.
"""

from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from polyclinic.config.node_file import ServerAddress
from polyclinic.engine.flower.deploy.contact import Unreachable, ask
from polyclinic.engine.flower.deploy.finding import Finding
from polyclinic.engine.flower.deploy.keys import public_half, read_key

ACTIVATE = "/v1/fleet/activate-node"
PROTOBUF = "application/protobuf"


def check_known(server: ServerAddress, key: Path) -> Finding:
    """Whether the server knows the key, if it runs already."""
    try:
        status = ask(server, ACTIVATE, "POST", *_introduction(read_key(key))).status
    except Unreachable as error:
        return Finding("known", str(error), error.advice)
    advice = f"send {public_half(key)} to the coordinator, or wait until it has been registered"
    answers = {
        400: Finding("known", "the server knows this site's key"),
        401: Finding("known", "the server refuses the signature", "synchronise both clocks (NTP)"),
        412: Finding("known", "the server does not know this site's key", advice),
        502: Finding("known", "not asked: the coordinator has not started yet"),
    }
    unexpected = Finding("known", f"the answer is {status}", "install the coordinator's versions")
    return answers.get(status, unexpected)


def _introduction(key: ec.EllipticCurvePrivateKey) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of the request."""
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    now = datetime.now(UTC).isoformat()
    headers = {
        "content-type": PROTOBUF,
        "accept": PROTOBUF,
        "flwr-public-key": b64encode(public).decode(),
        "flwr-timestamp": now,
        "flwr-signature": b64encode(key.sign(now.encode(), ec.ECDSA(SHA256()))).decode(),
    }
    # One field of protobuf: its number and type, its length in groups of seven bits, its content.
    length = bytes([len(public) & 127 | 128, len(public) >> 7])
    return b"\x0a" + length + public, headers
