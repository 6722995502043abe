"""A coordinator that means harm, against the real code of a site."""

import math

import pytest
import torch

from polyclinic.engine.flower.engine import travelling
from polyclinic.engine.flower.protocol import ScoreRequest, StageRequest, requesting
from polyclinic.engine.flower.wire import Payload, header_of, pack
from polyclinic.engine.process import prepare_process
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights
from polyclinic.runs import SiteInfo
from tests.engine.flower.hospitals import Hospitals, greeting


@pytest.fixture(autouse=True)
def _one_thread():
    prepare_process(1)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=1)


class Coordinator:
    """Sends one site whatever it likes; all of it is well-formed."""

    def __init__(self, service, study) -> None:
        self.service, self.text = service, travelling(study)
        about = header_of(service.respond(greeting(study)))["response"]["about"]
        self.sites = ((about["name"], 0, about["kind"], about["train"]),)
        infos = tuple(SiteInfo(*each) for each in self.sites)
        self.first = service.runs.open(self.text, infos).runner.first_weights()

    def stage(self, stage="fit", number=1, reads=-1, writes=1, weights=None, **changes):
        request = StageRequest(
            **self._common(number, reads), stage=stage, writes=writes, encoding="float32"
        ).model_copy(update=changes)
        message = Message(self.first if weights is None else weights)
        return self._asked(pack(requesting(request), message, "float32"))

    def score(self, number=2, reads=1, split="val", metrics=("dice",), weights=None, **changes):
        request = ScoreRequest(
            **self._common(number, reads), split=split, metrics=metrics, finalize=True
        ).model_copy(update=changes)
        if not request.finalize:
            return self._asked(Payload(requesting(request)))
        message = Message(self.first if weights is None else weights)
        return self._asked(pack(requesting(request), message, "float32"))

    def _common(self, number, reads):
        keep = tuple(range(50))
        return {
            "study": self.text,
            "run": "token",
            "sites": self.sites,
            "number": number,
            "reads": reads,
            "keep": keep,
        }

    def _asked(self, payload):
        return Payload.from_bytes(self.service.respond(payload.to_bytes()))


def changed(weights, name_has, value):
    """The weights with one value of one tensor replaced."""
    tensors = {name: tensor.clone() for name, tensor in weights.items()}
    name = next(name for name in tensors if name_has in name)
    tensors[name].view(-1)[0] = value
    return Weights.pack(tensors)


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_no_value_in_a_message_turns_clipping_off(hospitals, value):
    (service,) = hospitals.services("[privacy]\nclip = 0.001\nnoise = 1.0\n")
    attacker = Coordinator(service, hospitals.study())
    lines = len(service.ledger.lines())
    answer = attacker.stage(weights=changed(attacker.first, "running_mean", value))
    assert "the server's message has" in answer.header["refused"]
    assert not answer.tensors
    assert not any(line["bytes"] for line in service.ledger.lines()[lines:])


def test_an_honest_message_leaves_clipped_with_its_epsilon_and_without_its_loss(hospitals):
    (service,) = hospitals.services("[privacy]\nclip = 0.001\nnoise = 1.0\n")
    answer = Coordinator(service, hospitals.study()).stage()
    assert answer.header["response"]["loss"] is None
    line = service.ledger.lines()[-1]
    assert line["epsilon"] == service.ledger.epsilon(1e-5) == pytest.approx(4.3772, abs=1e-3)
    assert all(torch.isfinite(tensor).all() for tensor in answer.tensors.values())
