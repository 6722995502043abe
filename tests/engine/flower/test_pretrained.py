"""Across hospitals a start from a file travels as its hash; a site opens only what it lists."""

import shutil

import pytest
import torch
from safetensors.torch import save_file

from polyclinic.engine.flower.engine import travelling
from polyclinic.engine.flower.wire import header_of
from polyclinic.engine.process import prepare_process
from polyclinic.engine.tensors import load_tensors
from polyclinic.networks import UNet
from tests.engine.flower.hospitals import Hospitals, greeting
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


def test_sites_with_the_file_start_from_it_as_on_one_machine(hospitals, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "elsewhere" / "b.safetensors")
    services = hospitals.services('weights = ["elsewhere/b.safetensors"]\n')
    study = hospitals.study("fedper", f"network.pretrained={tmp_path / 'a.safetensors'}")
    plain = hospitals.study("fedper")
    hospitals.run_with(InProcessLink.of(services), study)
    local, other = hospitals.run_locally(study), hospitals.run_locally(plain)
    for name in hospitals.names:
        here = hospitals.site_model(study, name)
        there, elsewhere = (
            load_tensors(run / "weights" / f"{name}.safetensors")[0] for run in (local, other)
        )
        assert all(torch.equal(here[key], there[key]) for key in there)
        assert not all(torch.equal(here[key], elsewhere[key]) for key in here)
