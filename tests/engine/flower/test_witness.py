"""The coordinator as a witness: cutting a ledger, or writing it anew, is noticed by the other."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from polyclinic.cli import app
from polyclinic.engine.flower.deploy.certificates import (
    Authority,
    make_authority,
    make_certificate,
)
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.ledger_words import as_data, entries, in_words
from polyclinic.engine.flower.signing import Signed, signed_by, signing_with
from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.flower.witness import (
    COUNTERSIGNED,
    Countersignatures,
    Witness,
    differences,
    noted_in,
)
from polyclinic.engine.process import prepare_process
from tests.engine.flower.hospitals import Hospitals, greeting
from tests.engine.flower.in_process import InProcessLink


def polyclinic(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    prepare_process(1)
    return Hospitals(tmp_path_factory.mktemp("hospitals"), sites=2)


def told_by(hospitals, link, study, **changes):
    """What the coordinator is told in a run of a study."""
    told = []
    hospitals.run_with(link, study, tell=told.append, **changes)
    return told


def cut(ledger, lines=1):
    ledger.path.write_text("".join(ledger.path.read_text().splitlines(keepends=True)[:-lines]))


def write_anew(ledger):
    """A chain without a flaw, of other lines."""
    texts = ledger.path.read_text().splitlines()
    ledger.path.unlink()
    for _ in texts:
        ledger.add(Payload({}), {"stage": "invented"})
    assert ledger.mistakes() == []


@pytest.mark.parametrize("tamper", [cut, write_anew])
def test_both_ends_notice_a_ledger_that_was_cut_or_written_anew(hospitals, tamper):
    link = InProcessLink.of(services := hospitals.services(state=tamper.__name__))
    study = hospitals.study("fedavg", "federation.rounds=1")
    assert told_by(hospitals, link, study) == []
    kept = hospitals.run_folder(study).parents[1] / "ledgers.json"
    service, name = services[0], hospitals.names[0]
    assert differences(noted_in(kept, name), service.ledger) == []
    assert service.countersigned.mistakes(service.ledger) == []
    tamper(service.ledger)
    assert service.ledger.mistakes() == []
    found = differences(noted_in(kept, name), service.ledger)
    assert len(found) == 1
    file = hospitals.folder / f"{name}.toml"
    done = polyclinic("ledger", "verify", file, "--against", kept)
    assert done.exit_code == 1
    assert any(words in done.output for words in ("cut off", "written anew"))
    if tamper is write_anew:  # what was countersigned is at the site, too
        assert polyclinic("ledger", "verify", file).exit_code == 1
    # And the coordinator hears of it with the next reply.
    cut(service.ledger, lines=2)
    told = told_by(hospitals, link, study, fresh=True)
    assert [f"{name}: line " in text for text in told] == [True]
    assert json.loads(kept.read_text())["amiss"] == told


def test_a_ledger_that_only_grew_is_taken_for_the_old_one(hospitals):
    link = InProcessLink.of(hospitals.services(state="grown"))
    study = hospitals.study("fedavg", "federation.rounds=1")
    assert told_by(hospitals, link, study) == []
    assert told_by(hospitals, link, study, fresh=True) == []
    kept = hospitals.run_folder(study).parents[1] / "ledgers.json"
    for name in hospitals.names:
        file = hospitals.folder / f"{name}.toml"
        done = polyclinic("ledger", "verify", file, "--against", kept)
        assert done.exit_code == 0, done.output
    with pytest.raises(ValueError, match="has nothing of nobody"):
        noted_in(kept, "nobody")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    authority = Authority(folder / "ca.crt", folder / "ca.key")
    make_authority(authority, "consortium")
    make_certificate(authority, folder / "server.crt", folder / "server.key", ["localhost"], 30)
    return folder


def test_only_the_coordinator_s_own_countersignature_is_kept(authority, tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(Payload({}), {"stage": "greeting"})
    sign = signing_with(authority / "server.crt", authority / "server.key")
    witness = Witness(tmp_path / "ledgers.json", print, sign)
    told = {"lines": 1, "head": ledger.head(), "known": "0" * 64}
    witness.note("north", Payload({"site": "north", "ledger": told}).to_bytes())
    header = witness.header("north")
    site = Countersignatures(tmp_path, "north", authority / "ca.crt")
    for _ in range(2):  # a request that is sent again is kept once
        assert site.receive(header, ledger)["known"] == ledger.head()
    assert len(site.file.read_text().splitlines()) == 1
    assert site.mistakes(ledger) == []
    for change in ({"lines": 2}, {"head": "1" * 64}, {"signed": None}):
        forged = {COUNTERSIGNED: header[COUNTERSIGNED] | change}
        with pytest.raises(ValueError, match="not the coordinator's"):
            site.receive(forged, ledger)
    with pytest.raises(ValueError, match="not the coordinator's"):
        Countersignatures(tmp_path, "south", authority / "ca.crt").receive(header, ledger)
    with pytest.raises(ValueError, match="no countersignature that can be read"):
        site.receive({COUNTERSIGNED: "nonsense"}, ledger)
    assert Witness(tmp_path / "ledgers.json", print).noted == witness.noted
    ledger.path.write_text("")
    assert "was cut off: there are 0 lines" in site.mistakes(ledger)[0]


def test_a_key_that_the_authority_did_not_certify_signs_nothing(authority, tmp_path):
    other = Authority(tmp_path / "ca.crt", tmp_path / "ca.key")
    make_authority(other, "somebody else")
    make_certificate(other, tmp_path / "server.crt", tmp_path / "server.key", ["localhost"], 30)
    signed = signing_with(tmp_path / "server.crt", tmp_path / "server.key")(b"content")
    assert signed_by(other.certificate, b"content", signed)
    assert not signed_by(other.certificate, b"other content", signed)
    assert not signed_by(authority / "ca.crt", b"content", signed)
    broken = signed.model_copy(update={"certificate": "nonsense"})
    assert not signed_by(other.certificate, b"content", broken)


def test_keys_of_another_sort_neither_sign_nor_count(authority, tmp_path):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (tmp_path / "rsa.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    with pytest.raises(ValueError, match="no elliptic-curve key"):
        signing_with(authority / "server.crt", tmp_path / "rsa.key")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rsa")])
    now = datetime.now(UTC)
    own = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    text = own.public_bytes(Encoding.PEM)
    (tmp_path / "rsa.crt").write_bytes(text)
    signed = Signed(signature="", certificate=text.decode())
    assert not signed_by(tmp_path / "rsa.crt", b"content", signed)


def test_replies_that_tell_nothing_or_nonsense_of_a_ledger_are_not_noted(tmp_path):
    witness = Witness(tmp_path / "ledgers.json", print)
    for told in ({}, {"ledger": {"lines": -1, "head": "x"}}, {"ledger": 3}):
        witness.note("north", Payload({"site": "north", **told}).to_bytes())
    witness.note("north", b"nonsense")
    assert witness.noted == {}


def test_the_ledger_is_told_in_words(hospitals, tmp_path):
    link = InProcessLink.of(services := hospitals.services(state="told"))
    study = hospitals.study("fedavg", "federation.rounds=2")
    hospitals.run_with(link, study)
    service = services[0]
    service.respond(greeting(hospitals.study("fedavg", "training.batch=1"), service.site.name))
    text = "\n".join(in_words(service.ledger))
    for words in (
        "all of it to 127.0.0.1:1",
        f"{study.name}, FedAvg, seed 0 (study ",
        "- once the numbers of cases, the kind of labels and versions of programs",
        "- 2 times (rounds 1 to 2) after the stage 'fit' weights of decoder, encoder, head",
        "- once scores of a model on test cases",
        "In no run:\n- once a refusal (policy) without names",
        "0 messages with weights had noise, 2 had none",
        service.ledger.head(),
    ):
        assert words in text
    file = hospitals.folder / f"{service.site.name}.toml"
    assert polyclinic("ledger", "show", file).output == text + "\n"
    told = json.loads(polyclinic("ledger", "show", file, "--json").output)
    assert told == json.loads(json.dumps(as_data(service.ledger)))
    assert sum(each["times"] for each in told["left"]) == told["lines"]
    empty = Ledger(tmp_path / "ledger.jsonl")
    assert list(in_words(empty)) == ["Nothing has left this site."]


def test_noise_lost_answers_and_disclosed_weights_have_their_words(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    update = Payload({}, {"weights/head.a": torch.zeros(2), "extras/disclosed/b": torch.zeros(1)})
    ledger.add(update, {"run": "r", "stage": "fit", "round": 1, "noise": 2.0})
    ledger.add(update, {"run": "r", "stage": "fit", "round": 1, "again": True})
    ledger.add(Payload({}), {"stage": "introduction"})
    first, second, third = entries(ledger)
    assert first.noise == (2.0,)
    assert first.what.endswith("weights of head and extras (private weights for other sites)")
    assert second.what.startswith("once more, because the answer got lost: ")
    assert third.what == "the name of this site"
    assert "with noise 2" in "\n".join(in_words(ledger))


def test_an_unsigned_request_is_refused_where_the_site_has_an_authority(
    hospitals, authority, tmp_path
):
    (service, _) = hospitals.services(state="signed")
    service.countersigned = Countersignatures(tmp_path, service.site.name, authority / "ca.crt")
    payload = Payload.from_bytes(greeting(hospitals.study(), service.site.name))
    noted = {"lines": 0, "head": "0" * 64, "at": "", "content": "0" * 64, "signed": None}
    header = {**payload.header, COUNTERSIGNED: noted}
    answer = header_of(service.respond(Payload(header).to_bytes()))
    assert answer["code"] == "message"
    assert "is not the coordinator's" in answer["refused"]
