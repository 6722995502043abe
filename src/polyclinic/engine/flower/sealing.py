"""Private weights on their way to other sites, which nobody between can read.

What a site discloses is encrypted under a key drawn for this one reply (ChaCha20-Poly1305), and
that key under the public key of each recipient (HPKE, RFC 9180: X25519, HKDF-SHA256). Names and
sizes of tensors stay readable, for the server to see what it hands on.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from polyclinic.engine.flower.deploy.keys import write_private
from polyclinic.federation.message import Message, models_in
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.weights import Weights

KEYS = "sealed keys"  # stands among the names of disclosed tensors
ROOM = 1024  # bytes that a sealed tensor may have beyond its values
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_KEY, _NONCE, _MARK = 32, 12, 32  # bytes of a content key, a nonce, and the hash of a public key
_WRAPPED = 32 + _KEY + 16  # what HPKE makes of a content key
log = logging.getLogger("polyclinic.site")


class NotOpened(ValueError):
    """What another site disclosed cannot be used here."""


@dataclass(frozen=True)
class SealingKey:
    """A site's key for what others disclose to it."""

    private: X25519PrivateKey

    @classmethod
    def kept_in(cls, state: Path) -> "SealingKey":
        """The key in a site's state folder, made at the first time."""
        file = state / "sealing.key"
        if not file.exists():
            state.mkdir(parents=True, exist_ok=True)
            write_private(file, X25519PrivateKey.generate().private_bytes_raw())
        return cls(X25519PrivateKey.from_private_bytes(file.read_bytes()))

    @property
    def public(self) -> str:
        """The public half, in hexadecimal digits."""
        return self.private.public_key().public_bytes_raw().hex()

    def opened(self, message: Message, run: str, network: Weights) -> Message:
        """A message with what others disclosed in the clear; who cannot be opened is left out."""
        plain = {k: t for k, t in message.extras.items() if not k.startswith(f"{DISCLOSED}/")}
        models = models_in(message.extras, DISCLOSED)
        for site in sorted(models):
            try:
                model = self._model(models[site], run, network)
            except NotOpened as error:
                log.warning("what %s disclosed is left out: %s", site, error)
                continue
            plain |= {f"{DISCLOSED}/{site}/{name}": tensor for name, tensor in model.items()}
        return replace(message, extras=plain)

    def _model(
        self, tensors: Mapping[str, Tensor], run: str, network: Weights
    ) -> dict[str, Tensor]:
        if KEYS not in tensors:
            raise NotOpened("there are no keys with it")
        key = self._content_key(tensors[KEYS], run)
        found = {}
        for name in sorted(tensors.keys() - {KEYS}):
            # What does not differ from the server's own is filled in by the server, in the clear.
            sealed = tensors[name].dtype == torch.uint8
            tensor = _open(tensors[name], key, run, name) if sealed else tensors[name]
            fits = name in network and tensor.shape == network[name].shape
            if not fits or tensor.dtype != network[name].dtype or not tensor.isfinite().all():
                raise NotOpened(f"{name} is no tensor of the network, or not finite")
            found[name] = tensor
        return found

    def _content_key(self, keys: Tensor, run: str) -> bytes:
        data, mark = _bytes(keys), _mark(self.public)
        for start in range(0, len(data), _MARK + _WRAPPED):
            if data[start : start + _MARK] == mark:
                wrapped = data[start + _MARK : start + _MARK + _WRAPPED]
                try:
                    return _SUITE.decrypt(wrapped, self.private, info=_context(run))
                except (InvalidTag, ValueError) as error:
                    raise NotOpened("its key cannot be opened") from error
        raise NotOpened("it was not sealed for this site")


def sealed(message: Message, recipients: Iterable[str], run: str) -> Message:
    """A reply with what it discloses readable by the holders of these public keys alone."""
    disclosed = {k: t for k, t in message.extras.items() if k.startswith(f"{DISCLOSED}/")}
    key = secrets.token_bytes(_KEY)
    extras = {name: tensor for name, tensor in message.extras.items() if name not in disclosed}
    for name, tensor in disclosed.items():
        nonce = secrets.token_bytes(_NONCE)
        content = save({"": tensor.detach().cpu().contiguous()})
        context = _context(run, name.partition("/")[2])
        hidden = nonce + ChaCha20Poly1305(key).encrypt(nonce, content, context)
        extras[name] = torch.frombuffer(bytearray(hidden), dtype=torch.uint8)
    wrapped = b"".join(
        _mark(each) + _SUITE.encrypt(key, _public(each), info=_context(run)) for each in recipients
    )
    extras[f"{DISCLOSED}/{KEYS}"] = torch.frombuffer(bytearray(wrapped or b"\0"), dtype=torch.uint8)
    return replace(message, extras=extras)


def _open(hidden: Tensor, key: bytes, run: str, name: str) -> Tensor:
    data = _bytes(hidden)
    try:
        content = ChaCha20Poly1305(key).decrypt(data[:_NONCE], data[_NONCE:], _context(run, name))
        return load(content)[""]
    except (InvalidTag, ValueError, KeyError, SafetensorError) as error:
        raise NotOpened(f"{name} cannot be opened") from error


def _public(key: str) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(bytes.fromhex(key))


def _mark(key: str) -> bytes:
    return hashlib.sha256(bytes.fromhex(key)).digest()


def _context(run: str, name: str = "") -> bytes:
    return f"polyclinic disclosed {run} {name}".encode()


def _bytes(tensor: Tensor) -> bytes:
    return bytes(tensor.numpy().tobytes())
