"""Code from outside across hospitals: installed everywhere, and agreed to by every site."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from polyclinic.catalog import installed
from polyclinic.config import EngineSettings, load_study, to_toml
from polyclinic.engine.flower.coordinator import across_hospitals
from polyclinic.engine.flower.engine import refuse_impossible
from polyclinic.engine.flower.leaving import DIGITS
from polyclinic.engine.flower.protocol import GreetingRequest, requesting
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.weights import Weights
from polyclinic.methods.fedavg import FedAvg
from polyclinic.runs import RunError, RunFolder
from tests.engine.flower.hospitals import Hospitals, run_of
from tests.engine.flower.in_process import InProcessLink
from tests.federations import equal
from tests.outside import CODE, IN_FILE, NAMES, study_text
from tests.small_unet import TABLES

ALLOWED = 'packages = ["Fed.Mine"]\n'


@dataclass(frozen=True)
class Slow(FedAvg):
    """Known to this test only."""

    def combine(self, server, replies):
        before = server.weights
        super().combine(server, replies)
        server.weights = Weights(before.layout, (before.flat + server.weights.flat) / 2)


@pytest.fixture
def hospitals(tmp_path):
    """Two of them, whose site.toml names the task from outside."""
    made = Hospitals(tmp_path, sites=2)
    for name in made.names:
        about = tmp_path / "data" / name / "site.toml"
        about.write_text(f'name = "{name}"\ntask = "fovea"\n')
    return made


def study_of(hospitals, names, *overrides):
    file = hospitals.folder / "outside.toml"
    sites = "".join(f'[[site]]\nname = "{name}"\n' for name in hospitals.names)
    file.write_text(study_text(names) + sites)
    return load_study(file, overrides, installed())


def services(hospitals, extra):
    files = [hospitals.site_file(name, extra) for name in hospitals.names]
    return [SiteService(file, installed(file.allow.packages)) for file in files]


def refusal(service, study):
    request = GreetingRequest(**run_of(study, study=to_toml(study)))
    return header_of(service.respond(Payload(requesting(request)).to_bytes()))["refused"]


def test_a_method_that_only_a_test_has_is_the_same_across_hospitals(tmp_path):
    hospitals = Hospitals(tmp_path, sites=2, tables=replace(TABLES, method={"slow": Slow}))
    study = hospitals.study("slow")
    local = RunFolder(hospitals.run_locally(study))
    hospitals.run_with(InProcessLink.of(hospitals.services()), study)
    remote = RunFolder(hospitals.run_folder(study))
    first, second = (load_tensors(run.weights_path("server"))[0] for run in (local, remote))
    assert equal(first, second)


@pytest.mark.usefixtures("package")
def test_a_study_made_of_a_package_runs_at_sites_that_allow_it(hospitals):
    study = study_of(hospitals, NAMES)
    link = InProcessLink.of(services(hospitals, ALLOWED))
    hospitals.run_with(link, study)
    folder = RunFolder(hospitals.run_folder(study))
    assert folder.finished
    assert {score.metric for score in folder.scores("test")} == {"dice", "area"}
    assert folder.about().versions["fed-mine"] == "1.2"
    local = RunFolder(hospitals.run_locally(study))
    here = {score[3:]: score.value for score in local.scores("test")}
    there = sorted(score.value for score in folder.scores("test"))
    assert sorted(round(value, DIGITS) for value in here.values()) == there


@pytest.mark.usefixtures("package")
def test_a_site_that_does_not_allow_the_package_says_so(hospitals):
    study = study_of(hospitals, NAMES)
    link = InProcessLink.of(services(hospitals, ""))
    with pytest.raises(RunError, match=r"fed-mine 1\.2, whose code does not run here.*packages"):
        hospitals.run_with(link, study)


@pytest.mark.usefixtures("package")
def test_a_site_with_another_version_of_the_package_is_told(hospitals):
    study = study_of(hospitals, NAMES)
    (about,) = (hospitals.folder / "packages").glob("*.dist-info/METADATA")
    about.write_text(about.read_text().replace("Version: 1.2", "Version: 1.3"))
    link = InProcessLink.of(services(hospitals, ALLOWED))
    with pytest.raises(RunError, match=r"it runs fed-mine 1\.3, and the coordinator 1\.2"):
        hospitals.run_with(link, study)


def test_a_site_follows_no_base_into_its_own_folder(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1)
    study = hospitals.study("fedavg")
    (service,) = hospitals.services()
    service.site.state.mkdir(parents=True, exist_ok=True)
    (service.site.state / "its-own.toml").write_text(to_toml(study))
    text = 'base = "its-own.toml"\n' + to_toml(study)
    request = GreetingRequest(**run_of(study, study=text))
    answer = header_of(service.respond(Payload(requesting(request)).to_bytes()))
    assert "base" in answer["refused"]


def test_a_file_is_refused_by_the_coordinator_and_by_every_site(hospitals, forgotten):
    (hospitals.folder / "mine.py").write_text(CODE)
    study = study_of(hospitals, {**IN_FILE, "task": "octa"}, "data.seed=1")
    with pytest.raises(RunError, match=r"mine\.py:FedMine.*a file of this machine"):
        refuse_impossible(across_hospitals(study))
    alone = study.model_copy(update={"engine": EngineSettings()})
    for service in services(hospitals, ""):
        assert "only installed code may run" in refusal(service, alone)
