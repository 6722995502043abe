"""Across hospitals no network starts from a file: sites have none, and open none."""

import pytest

from polyclinic.engine.flower.engine import refuse_impossible
from polyclinic.engine.flower.wire import header_of
from polyclinic.engine.process import prepare_process
from polyclinic.runs import RunError
from tests.engine.flower.hospitals import Hospitals, greeting


@pytest.fixture
def hospitals(tmp_path):
    prepare_process(1)
    return Hospitals(tmp_path, sites=1)


def test_a_study_that_starts_from_a_file_is_refused_before_anything_is_sent(hospitals):
    refuse_impossible(hospitals.study())
    with pytest.raises(RunError, match=r"network.pretrained is a file of this machine"):
        refuse_impossible(hospitals.study("fedavg", "network.pretrained=a.pth"))


def test_a_site_opens_no_file_that_a_study_names(hospitals, tmp_path):
    (service,) = hospitals.services()
    secret = tmp_path / "secret.pth"
    secret.write_bytes(b"of the hospital")
    study = hospitals.study("fedavg", f"network.pretrained={secret}")
    response = header_of(service.respond(greeting(study)))
    assert "a site opens none for a study" in response["refused"]
