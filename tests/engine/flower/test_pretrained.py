"""Starts across hospitals: a file travels as its hash, and drawn images are learned at each site.

A site opens only files that it lists, and learns only within its limits.
"""

import shutil

import pytest
import torch
from safetensors.torch import save_file

from polyclinic.engine.flower.engine import travelling
from polyclinic.engine.flower.protocol import StageRequest, requesting
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import header_of, pack
from polyclinic.engine.pretraining import learned
from polyclinic.engine.process import prepare_process
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights
from polyclinic.networks import UNet
from tests.engine.flower.hospitals import Hospitals, greeting, run_of
from tests.engine.flower.in_process import InProcessLink


@pytest.fixture
def hospitals(tmp_path):
    prepare_process(1)
    torch.manual_seed(5)
    start = UNet(channels=1, classes=2, width=2).state_dict()
    save_file({name: each.contiguous() for name, each in start.items()}, tmp_path / "a.safetensors")
    return Hospitals(tmp_path, sites=2)


def test_the_path_stays_with_the_coordinator(hospitals, tmp_path):
    study = hospitals.study("fedper", f"network.pretrained={tmp_path / 'a.safetensors'}")
    text = travelling(study, hospitals.names[0])
    assert "a.safetensors" not in text
    assert "sha256-" in text


def test_a_site_opens_no_file_that_it_does_not_list(hospitals, tmp_path):
    service, _ = hospitals.services()
    study = hospitals.study("fedavg", f"network.pretrained={tmp_path / 'a.safetensors'}")
    response = header_of(service.respond(greeting(study)))
    assert "none of the files in allow.weights has" in response["refused"]


def assert_alike_on_one_machine(hospitals, services, study):
    """The study ends with the same models in both engines, and with others than from chance."""
    hospitals.run_with(InProcessLink.of(services), study)
    plain = hospitals.study("fedper")
    local, other = hospitals.run_locally(study), hospitals.run_locally(plain)
    for name in hospitals.names:
        here = hospitals.site_model(study, name)
        there, elsewhere = (
            load_tensors(run / "weights" / f"{name}.safetensors")[0] for run in (local, other)
        )
        assert all(torch.equal(here[key], there[key]) for key in there)
        assert not all(torch.equal(here[key], elsewhere[key]) for key in here)


def test_sites_with_the_file_start_from_it_as_on_one_machine(hospitals, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "elsewhere" / "b.safetensors")
    services = hospitals.services('weights = ["elsewhere/b.safetensors"]\n')
    study = hospitals.study("fedper", f"network.pretrained={tmp_path / 'a.safetensors'}")
    assert_alike_on_one_machine(hospitals, services, study)


def drawn_start(hospitals, method, steps, *overrides):
    start = ("training.pretrain=synthetic", f"training.pretrain_steps={steps}")
    return hospitals.study(method, *start, *overrides)


@pytest.fixture
def nothing_learned():
    """Nobody learns from drawn images while the test runs."""
    before = learned.cache_info()
    yield
    after = learned.cache_info()
    assert (before.hits, before.misses) == (after.hits, after.misses)


@pytest.mark.usefixtures("nothing_learned")
def test_a_start_that_takes_too_long_is_refused_before_its_first_step(hospitals):
    service, _ = hospitals.services("iterations = 2\n")
    study = drawn_start(hospitals, "fedavg", 3)
    stage = {"labels": "mask", "train": 4, "stage": "fit", "number": 1, "reads": -1, "writes": 2}
    stage |= {"run": "the run", "keep": (), "encoding": "float32", "recipients": ()}
    asked = requesting(StageRequest(**run_of(study), **stage))
    message = Message(Weights.pack({"any": torch.zeros(1)}))
    for request in (greeting(study), pack(asked, message, "float32").to_bytes()):
        refused = header_of(service.respond(request))["refused"]
        assert "training.pretrain_steps = 3 is more than the 2 allowed" in refused


@pytest.mark.usefixtures("nothing_learned")
def test_nothing_is_learned_for_a_study_that_nobody_approved(hospitals):
    service = SiteService(hospitals.site_file(hospitals.names[0], studies="[]"), hospitals.tables)
    response = header_of(service.respond(greeting(drawn_start(hospitals, "fedavg", 2))))
    assert response["code"] == "approval"
    (waiting,) = service.approvals.waiting()
    text = service.approvals.description(waiting).read_text()
    assert "starting from random weights, then 2 steps on drawn images" in text


def test_sites_that_learn_from_drawn_images_start_as_on_one_machine(hospitals):
    study = drawn_start(hospitals, "fedper", 2)
    assert_alike_on_one_machine(hospitals, hospitals.services(), study)
