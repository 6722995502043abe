import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyclinic.cli import app
from polyclinic.engine.flower.approval import Approvals, Unapproved
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.wire import Payload
from tests.engine.flower.hospitals import Hospitals


def polyclinic(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_ledger_is_verified_and_summed_up(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1, network="unet")
    site = hospitals.site_file(hospitals.names[0])
    file = tmp_path / f"{site.name}.toml"
    assert "there is no ledger" in str(polyclinic("ledger", "verify", file).exception)
    ledger = Ledger(site.state / "ledger.jsonl")
    ledger.add(Payload({}), {"run": "trial", "round": 1, "stage": "fit"})
    for path in (file, site.state, ledger.path):
        done = polyclinic("ledger", "verify", path)
        assert done.exit_code == 0
        assert "trial: 1 messages" in done.output
        assert ledger.head() in done.output
    ledger.path.write_text(ledger.path.read_text().replace("fit", "fat"))
    done = polyclinic("ledger", "verify", file)
    assert done.exit_code == 1
    assert "line 1" in done.output


def test_insecurity_must_be_typed_and_written(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1, network="unet")
    hospitals.site_file(hospitals.names[0])
    file = tmp_path / f"{hospitals.names[0]}.toml"
    error = polyclinic("site", file).exception
    assert isinstance(error, ValueError)
    assert "type --insecure too" in str(error)
    hospitals.study()
    coordinator = tmp_path / "coordinator.toml"
    coordinator.write_text('[certificates]\nca = "a"\ncertificate = "b"\nkey = "c"\n')
    words = ("server", tmp_path / "study-0.toml", "--coordinator", coordinator)
    error = polyclinic(*words, "--insecure").exception
    assert "needs insecure = true" in str(error)
    assert "give one of them" in str(polyclinic(*words, "--resume", "--fresh").exception)


def test_a_site_that_is_ended_says_so_and_leaves_nothing_behind(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1, network="unet")
    hospitals.site_file(hospitals.names[0])
    file = tmp_path / f"{hospitals.names[0]}.toml"
    command = [sys.executable, "-m", "polyclinic", "site", str(file), "--insecure"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as site:
        assert "warning: insecure" in site.stderr.readline()
        assert "connects to" in site.stderr.readline()
        loaded = Path(f"/proc/{site.pid}/maps")
        assert not loaded.exists() or "libtorch" not in loaded.read_text()
        site.terminate()
        rest = site.stderr.read()
    assert site.returncode == 130
    assert "has left; its state is kept" in rest


def test_a_study_is_shown_in_words_and_approved_and_the_approval_taken_back(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1)
    site = hospitals.site_file(hospitals.names[0], studies="[]")
    file = tmp_path / f"{site.name}.toml"
    assert "no study has asked yet" in polyclinic("approve", file).output
    approvals = Approvals(site.state, ())
    for study in ("ab12", "cd34"):
        with pytest.raises(Unapproved):
            approvals.check(study, lambda study=study: f"what {study} means\n")
    done = polyclinic("approve", file)
    assert done.exit_code == 3
    assert "what ab12 means" in done.output
    assert "cd34: waits" in done.output
    assert "ab12: approved by " in polyclinic("approve", file, "ab").output
    approvals.check("ab12", lambda: "")
    done = polyclinic("approve", file)
    assert "what ab12 means" not in done.output
    assert "beginning of 0 studies" in str(polyclinic("approve", file, "x").exception)
    assert "ab12: waits" in polyclinic("approve", file, "ab", "--withdraw").output
    with pytest.raises(Unapproved):
        approvals.check("ab12", lambda: "")
    polyclinic("approve", file, "ab")
    assert polyclinic("approve", file, "cd").exit_code == 0
    assert polyclinic("approve", file).exit_code == 0
