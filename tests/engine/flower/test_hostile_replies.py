"""One of three sites means harm: the coordinator trusts no number of its replies."""

from dataclasses import replace

import pytest
import torch

from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.process import prepare_process
from polyclinic.runs import RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.engine.flower.spoilers import listing

ONCE = ("federation.rounds=1", "training.iterations=1", "evaluation.every=0")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    prepare_process(1)
    return Hospitals(tmp_path_factory.mktemp("hospitals"), sites=3)


def counting(images):
    def spoil(payload):
        numbers = payload.header["message"]["numbers"]
        return listing(payload, numbers={**numbers, "images": images})

    return spoil


def scaled(factor):
    def spoil(payload):
        return replace(payload, tensors={n: t * factor for n, t in payload.tensors.items()})

    return spoil


def filled(value):
    def spoil(payload):
        tensors = {n: torch.full_like(t, value) for n, t in payload.tensors.items()}
        return replace(payload, tensors=tensors)

    return spoil


def left_out(hospitals, spoil, *overrides):
    """What the coordinator says of the first site, once another has an unspoilt model."""
    state = f"state-{id(spoil)}"
    link = InProcessLink.of(hospitals.services(state=state))
    honest = link.responding[101]

    def hostile(data: bytes) -> bytes:
        answer = honest(data)
        if header_of(data)["request"].get("stage") != "fit":
            return answer
        return spoil(Payload.from_bytes(answer)).to_bytes()

    link.responding[101] = hostile
    study = hospitals.study("fedavg", *ONCE, *overrides)
    hospitals.run_with(link, study)
    folder = RunFolder(hospitals.run_folder(study))
    (line,) = [each for each in folder.rounds() if each.missed]
    assert (line.site, line.stage) == (hospitals.names[0], "fit")
    weights = hospitals.site_model(study, hospitals.names[1], state)
    assert all(float(t.abs().max()) < 100 for t in weights.values() if t.is_floating_point())
    return line.missed


@pytest.mark.parametrize("images", [1e30, -5.0, 10**9, 0.5, 7.0])
def test_a_site_cannot_count_its_images_anew(hospitals, images):
    said = left_out(hospitals, counting(images))
    assert "images" in said


def test_weights_that_are_finite_but_absurd_are_left_out(hospitals):
    assert "weights beyond ±1e+06" in left_out(hospitals, filled(3e38))


def test_a_change_far_longer_than_the_others_is_left_out(hospitals):
    assert "times as long as the median one" in left_out(hospitals, scaled(1000.0))


def test_the_study_says_how_much_longer_a_change_may_be(hospitals):
    said = left_out(hospitals, scaled(2.0), "engine.name=flower", "engine.stray=1.5")
    assert "times as long as the median one" in said
