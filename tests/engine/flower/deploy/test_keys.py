import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from polyclinic.engine.flower.deploy.keys import fingerprint, is_private, make_key, write_private


def test_the_private_half_is_for_its_owner_alone_whatever_the_mask(tmp_path):
    before = os.umask(0)
    try:
        make_key(tmp_path / "keys" / "north")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys" / "north").stat().st_mode) == 0o600
    assert is_private(tmp_path / "keys" / "north")


def test_the_public_half_belongs_to_the_private_one_and_holds_nothing_of_it(tmp_path):
    public = make_key(tmp_path / "north")
    private = load_ssh_private_key((tmp_path / "north").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert load_ssh_public_key(public.read_bytes()) == private.public_key()
    assert public == tmp_path / "north.pub"
    assert public.read_text().endswith(" north\n")


def test_both_halves_have_one_fingerprint_and_every_key_another(tmp_path):
    public = make_key(tmp_path / "north")
    assert fingerprint(public) == fingerprint(tmp_path / "north")
    assert fingerprint(make_key(tmp_path / "south")) != fingerprint(public)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_the_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path):
    public = make_key(tmp_path / "north")
    command = ["ssh-keygen", "-lf", str(public)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert fingerprint(public) == shown.split()[1]


def test_a_key_is_never_overwritten(tmp_path):
    make_key(tmp_path / "north")
    before = (tmp_path / "north").read_bytes()
    with pytest.raises(ValueError, match="exists and is kept"):
        make_key(tmp_path / "north")
    assert (tmp_path / "north").read_bytes() == before


def test_a_file_that_others_can_read_is_not_private(tmp_path):
    write_private(tmp_path / "secret", b"x")
    (tmp_path / "secret").chmod(0o640)
    assert not is_private(tmp_path / "secret")


def test_writing_privately_replaces_an_open_file_by_a_closed_one(tmp_path):
    (tmp_path / "secret").write_text("old")
    (tmp_path / "secret.part").write_text("left by a crash")
    write_private(tmp_path / "secret", b"new")
    assert (tmp_path / "secret").read_bytes() == b"new"
    assert is_private(tmp_path / "secret")


def written(path: Path, key, encryption) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, encryption))
    return path


def test_keys_that_flower_would_refuse_are_refused_with_a_reason(tmp_path):
    other = written(tmp_path / "other", ed25519.Ed25519PrivateKey.generate(), NoEncryption())
    with pytest.raises(ValueError, match=r"no elliptic-curve key; make one by"):
        fingerprint(other)
    (tmp_path / "text").write_text("not a key")
    with pytest.raises(ValueError, match="no key in OpenSSH's format"):
        fingerprint(tmp_path / "text")
    (tmp_path / "text.pub").write_text("not a key")
    with pytest.raises(ValueError, match="no public key in OpenSSH's format"):
        fingerprint(tmp_path / "text.pub")
    half = ed25519.Ed25519PrivateKey.generate().public_key()
    (tmp_path / "other.pub").write_bytes(half.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises(ValueError, match=r"no elliptic-curve key; make one by"):
        fingerprint(tmp_path / "other.pub")


def test_a_key_with_a_passphrase_is_refused_because_nobody_could_type_it(tmp_path):
    key = ec.generate_private_key(ec.SECP384R1())
    try:
        locked = written(tmp_path / "locked", key, BestAvailableEncryption(b"secret"))
    except Exception as error:  # noqa: BLE001 (bcrypt is not installed everywhere)
        pytest.skip(f"cannot make a key with a passphrase: {error}")
    with pytest.raises(ValueError, match="or has a passphrase"):
        fingerprint(locked)
