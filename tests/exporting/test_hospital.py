"""At a hospital its own model is exported and used, without the coordinator."""

import numpy as np
import pytest

from polyclinic.engine.flower.ledger import Ledger
from polyclinic.exporting.choosing import origins
from polyclinic.exporting.packaging import packaged
from polyclinic.exporting.trained import cases_of
from polyclinic.predict import load
from polyclinic.runs import RunError, RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.small_unet import TABLES


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    return Hospitals(tmp_path_factory.mktemp("hospitals"), sites=2)


@pytest.fixture(scope="module")
def study(hospitals):
    study = hospitals.study("fedbn", "federation.rounds=1", "evaluation.every=0")
    hospitals.run_with(InProcessLink.of(hospitals.services()), study)
    return study


def test_a_hospital_finds_its_own_model_cases_and_scores(hospitals, study):
    """Also while another study is in progress, of which there are states alone."""
    begun = hospitals.folder / "state" / "fjord" / "runs" / "a-begun-one" / "fedbn" / "seed-0"
    (begun / "states").mkdir(parents=True)
    (origin,) = origins([hospitals.folder / "fjord.toml"], TABLES)
    assert origin.owner == "fjord"
    (data,) = cases_of(origin)
    assert (data.name, len(data.test)) == ("fjord", 2)
    own = origin.run.folder.scores("test")
    assert {row.site for row in own} == {"fjord"}
    assert {row.case for row in own} == set(data.test.names)
    coordinators = RunFolder(hospitals.run_folder(study)).scores("test")
    told = [row.value for row in coordinators if row.site == "fjord"]
    assert [row.value for row in own] == told


def test_the_coordinator_has_no_models_of_sites(hospitals, study):
    with pytest.raises(RunError, match="lacks the model of fjord: across hospitals it stays there"):
        origins([hospitals.run_folder(study)], TABLES, sites=["fjord"])


def test_a_hospital_without_a_model_is_told_so(hospitals):
    hospitals.site_file("fjord", state="elsewhere")
    file = hospitals.folder / "fjord.toml"
    with pytest.raises(RunError, match="has no models yet"):
        origins([file], TABLES)
    hospitals.site_file("fjord")


@pytest.mark.slow
def test_its_package_names_the_head_of_its_ledger_and_predicts(hospitals, study, tmp_path):
    found = origins([hospitals.folder / "fjord.toml"], TABLES)
    packaged(found).write(tmp_path / "fjord.polyclinic")
    model = load(tmp_path / "fjord.polyclinic", threads=1)
    ledger = Ledger(hospitals.folder / "state" / "fjord" / "ledger.jsonl")
    assert model.facts.ledger == ledger.head()
    assert model.facts.quality.cases == 1
    assert {score.site for score in model.facts.scores} == {"fjord"}
    image = next((hospitals.folder / "data" / "fjord" / "images").glob("test-*"))
    assert model.predict(image).shape == (32, 32)
    assert np.unique(model.predict(image)).max() <= 1
