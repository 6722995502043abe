"""The consortium's own certificate authority, and the server's certificate signed by it."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyclinic.engine.flower.deploy.keys import write_private
from polyclinic.runs import write_atomic

AUTHORITY_YEARS = 10
USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")  # by which proxy and SuperLink know each other


@dataclass(frozen=True)
class Authority:
    """The files of a certificate authority; the key signs certificates and is needed only then."""

    certificate: Path
    key: Path


def make_authority(authority: Authority, name: str) -> None:
    """Makes an authority of its own; it can sign certificates of servers and nothing else."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _called(name)
    days = AUTHORITY_YEARS * 365
    usage = _usage("key_cert_sign", "crl_sign")
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, SHA384())
    )
    _write(certificate, key, authority.certificate, authority.key)


def make_certificate(
    authority: Authority, certificate: Path, key: Path, hosts: Sequence[str], days: int
) -> None:
    """Makes a new key and a certificate for a server that is reached by these names and numbers."""
    issuer, signer = _read_authority(authority)
    own = ec.generate_private_key(ec.SECP384R1())
    names = dict.fromkeys((*hosts, *LOCAL_NAMES))
    ends = issuer.not_valid_after_utc
    if datetime.now(UTC) + timedelta(days=days) > ends:
        raise ValueError(f"the authority ends on {ends:%Y-%m-%d}, before {days} days have passed")
    signed = (
        _builder(_called(hosts[0]), issuer.subject, own.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, SHA384())
    )
    _write(signed, own, certificate, key)


def read_certificate(path: Path) -> x509.Certificate:
    """The certificate in a PEM file; ValueError where there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path} holds no certificate (PEM)") from None


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and numbers that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # for clocks that are a little late
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _read_authority(authority: Authority) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = read_certificate(authority.certificate)
    key = load_pem_private_key(authority.key.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise ValueError(f"{authority.key} is not the key of {authority.certificate}")
    return certificate, key


def _write(
    certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, to: Path, key_to: Path
) -> None:
    write_private(key_to, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_atomic(to, certificate.public_bytes(Encoding.PEM))


def _called(name: str) -> x509.Name:
    # A common name has 64 characters at most; whom a certificate is for stands in its other names.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in USAGES})
