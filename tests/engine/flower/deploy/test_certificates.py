import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from polyclinic.engine.flower.deploy.certificates import (
    Authority,
    make_authority,
    make_certificate,
    names_of,
    read_certificate,
)
from polyclinic.engine.flower.deploy.keys import is_private


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(Authority(folder / "ca.crt", folder / "ca.key"), "a consortium " * 9)
    return folder


def signed(folder: Path, hosts: list[str], days: int = 30) -> x509.Certificate:
    authority = Authority(folder / "ca.crt", folder / "ca.key")
    make_certificate(authority, folder / "server.crt", folder / "server.key", hosts, days)
    return read_certificate(folder / "server.crt")


def verify(folder: Path, certificate: x509.Certificate, host: str) -> None:
    """A second opinion on names and chain, by cryptography's own verifier."""
    store = Store([read_certificate(folder / "ca.crt")])
    verifier = PolicyBuilder().store(store).build_server_verifier(x509.DNSName(host))
    verifier.verify(certificate, [])


def test_a_certificate_is_good_for_its_names_and_no_others(made):
    certificate = signed(made, ["fl.example.org"])
    assert names_of(certificate) == ("fl.example.org", "localhost", "127.0.0.1", "::1")
    verify(made, certificate, "fl.example.org")
    verify(made, certificate, "localhost")
    with pytest.raises(VerificationError):
        verify(made, certificate, "other.example.org")


def test_a_number_is_a_name_too(made):
    assert names_of(signed(made, ["10.1.2.3"]))[-1] == "::1"
    assert "10.1.2.3" in names_of(signed(made, ["10.1.2.3"]))


def test_another_authority_does_not_vouch_for_it(made, tmp_path):
    make_authority(Authority(tmp_path / "ca.crt", tmp_path / "ca.key"), "others")
    with pytest.raises(VerificationError):
        verify(tmp_path, signed(made, ["fl.example.org"]), "fl.example.org")


def test_a_certificate_lasts_as_long_as_was_asked(made):
    ends = signed(made, ["fl.example.org"], days=30).not_valid_after_utc
    assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)


def test_a_certificate_cannot_outlive_its_authority(made):
    with pytest.raises(ValueError, match="the authority ends on"):
        signed(made, ["fl.example.org"], days=4000)


def test_keys_are_private_and_match(made):
    signed(made, ["fl.example.org"])
    assert is_private(made / "ca.key")
    assert is_private(made / "server.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "server.crt", made / "server.key")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_agrees_in_its_strictest_mode(made):
    signed(made, ["fl.example.org"])
    ca, certificate = made / "ca.crt", made / "server.crt"
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", ca]
    done = subprocess.run([*map(str, command), str(certificate)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_no_certificate_is_named(tmp_path):
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(ValueError, match=r"ca\.crt holds no certificate"):
        read_certificate(tmp_path / "ca.crt")


def test_an_authority_signs_with_its_own_key_only(made, tmp_path):
    make_authority(Authority(tmp_path / "ca.crt", tmp_path / "ca.key"), "others")
    strangers = Authority(made / "ca.crt", tmp_path / "ca.key")
    with pytest.raises(ValueError, match=r"ca\.key is not the key of .*ca\.crt"):
        make_certificate(strangers, tmp_path / "s.crt", tmp_path / "s.key", ["a"], 1)


def test_a_certificate_without_names_has_none(made):
    assert names_of(read_certificate(made / "ca.crt")) == ()
