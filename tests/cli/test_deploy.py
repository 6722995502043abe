import importlib.util

import pytest

from polyclinic.engine.flower.deploy.keys import fingerprint
from tests.cli.commands import polyclinic as polyclinic
from tests.engine.flower.deploy.loopback import STUDY


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trial.toml").write_text(STUDY)
    return "trial.toml"


def test_init_names_every_site_with_its_fingerprint_and_folder(polyclinic, study, tmp_path):
    code, out, err = polyclinic("deploy", "init", study, "--address", "fl.example.org:443")
    assert (code, err) == (0, "")
    own = fingerprint(tmp_path / "deployment" / "coordinator" / "public-keys" / "north.pub")
    assert f"north: {own}  deployment/sites/north\n" in out
    assert "next: deployment/README.md" in out


def test_init_refuses_an_address_without_a_port(polyclinic, study):
    code, _, err = polyclinic("deploy", "init", study, "--address", "fl.example.org")
    assert code == 2
    assert "must be a host and a port" in err


def test_a_hospital_makes_its_key_and_sends_the_public_half(polyclinic, study, tmp_path):
    code, out, _ = polyclinic("deploy", "key", "sent/north")
    assert code == 0
    assert f"{fingerprint(tmp_path / 'sent' / 'north.pub')}: tell them" in out
    polyclinic(
        *("deploy", "init", study, "--address", "fl.example.org:443"),
        *("--to", "made", "--public-keys", "sent"),
    )
    assert not (tmp_path / "made" / "sites" / "north" / "keys").exists()
    code, _, err = polyclinic("deploy", "key", "sent/north")
    assert code == 2
    assert "exists and is kept" in err


def test_check_ends_with_one_and_a_cross_where_something_is_wrong(polyclinic, study):
    polyclinic("deploy", "init", study, "--address", "127.0.0.1:9")
    code, out, _ = polyclinic("deploy", "check", "deployment/sites/north/node.toml")
    assert code == 1
    assert "✓ key: " in out
    assert "✗ server: no connection" in out
    assert out.endswith("not ready: see the lines with ✗\n")


def test_check_tells_the_mistakes_of_a_site_file(polyclinic, study, tmp_path):
    (tmp_path / "node.toml").write_text('nmae = "north"')
    code, _, err = polyclinic("deploy", "check", "node.toml")
    assert code == 2
    assert "did you mean name?" in err


def test_without_flower_there_is_a_sentence_and_no_traceback(polyclinic, study, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "polyclinic.cli.deploy.find_spec", lambda name: None if name == "flwr" else found(name)
    )
    code, _, err = polyclinic("deploy", "key", "keys/north")
    assert code == 2
    assert "pip install 'polyclinic[flower]'" in err
