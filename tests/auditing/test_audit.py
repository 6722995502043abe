"""An overfitted model gives its training cases away, one that never saw them does not."""

import csv
import json
import shutil
from importlib import import_module

import pytest
from typer.testing import CliRunner

from polyclinic.auditing.membership import ALL, audit
from polyclinic.auditing.writing import write_audit
from polyclinic.cli import app
from polyclinic.config import load_study
from polyclinic.exporting.choosing import origins
from polyclinic.runs import RunError
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.federations import run_locally
from tests.small_unet import TABLES, SmallUNet

STUDY = f"""
name = "overfitted"
[task]
name = "octa"
resolution = 32
[data]
size = 0.15
only = ["grove", "inlet"]
[network]
name = "{SmallUNet.name}"
width = 8
[method]
name = "local"
[training]
iterations = 120
batch = 3
augmentation = {{ flips = false, rotation = 0 }}
[federation]
rounds = 1
[evaluation]
every = 0
pictures = false
[engine]
threads = 1
"""


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory):
    """A run with 3 training cases at grove and 8 at inlet, seen many times."""
    folder = tmp_path_factory.mktemp("overfitted")
    (folder / "study.toml").write_text(STUDY)
    study = load_study(folder / "study.toml", [], TABLES)
    (run,) = run_locally(study, folder / "runs", watch=lambda _run, _event: None)
    return run.folder.path


def findings(path, **how):
    found = audit(origins([path], TABLES), **how).findings
    return {(each.site, each.attack): each for each in found}


def test_a_model_overfitted_on_three_cases_gives_them_away(overfitted):
    found = findings(overfitted)
    grove = found["grove", "loss"]
    assert (grove.members, grove.success.auc.value) == (3, 1.0)
    assert found["inlet", "loss"].success.auc.low > 0.6
    assert found[ALL, "loss"].success.auc.value > 0.9
    assert found[ALL, "loss"].members == 11


def test_a_model_that_never_saw_the_cases_tells_nothing(overfitted, tmp_path):
    path = tmp_path / "runs" / "swapped" / "local" / "seed-0"
    shutil.copytree(overfitted, path)
    shutil.copy(path / "weights" / "grove.safetensors", path / "weights" / "inlet.safetensors")
    found = findings(path)
    for attack in ("loss", "difficulty"):
        auc = found["inlet", attack].success.auc
        assert auc.low < 0.5 < auc.high
    # Both sites have one model now, so neither is a reference for the other.
    assert ("inlet", "reference") not in found
    # The models of a run that did not see the cases are, if they are named.
    other = origins([overfitted], TABLES)
    assert findings(path, references=other)["grove", "reference"].success.auc.value > 0.5


def test_the_command_prints_the_table_and_writes_three_files(overfitted, monkeypatch):
    monkeypatch.setattr(import_module("polyclinic.cli.audit"), "tables", lambda: TABLES)
    told = CliRunner().invoke(app, ["audit", str(overfitted)])
    assert told.exit_code == 0, told.output
    assert "no upper bound" in told.output
    content = json.loads((overfitted / "audit.json").read_text())
    rows = list(csv.DictReader((overfitted / "audit.csv").read_text().splitlines()))
    assert [row["site"] for row in rows] == [each["site"] for each in content["findings"]]
    (row,) = [each for each in rows if (each["site"], each["attack"]) == ("grove", "loss")]
    assert (row["auc"], row["auc_low"], row["found_at_1_percent"]) == ("1.0", "", "1.0")
    assert content["references"] == "the run itself"
    figure = (overfitted / "audit.svg").read_text()
    assert "<svg" in figure
    assert "inlet" in figure


def test_a_hospital_audits_its_own_model_and_nobody_elses(tmp_path):
    hospitals = Hospitals(tmp_path, sites=2)
    study = hospitals.study("fedbn", "federation.rounds=1", "evaluation.every=0")
    hospitals.run_with(InProcessLink.of(hospitals.services()), study)
    result = audit(origins([tmp_path / "fjord.toml"], TABLES))
    assert {each.site for each in result.findings} == {"fjord"}
    assert {each.attack for each in result.findings} == {"loss", "difficulty"}
    assert write_audit(result).path.is_relative_to(tmp_path / "state" / "fjord" / "runs")
    (tmp_path / "data" / "fjord").rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="nothing can be told apart"):
        audit(origins([tmp_path / "fjord.toml"], TABLES))
