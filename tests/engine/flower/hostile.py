"""A coordinator that means harm, with the real code of a site at its other end."""

from polyclinic.engine.flower.protocol import (
    GreetingRequest,
    GuestRequest,
    ScoreRequest,
    StageRequest,
    requesting,
)
from polyclinic.engine.flower.sealing import sealed
from polyclinic.engine.flower.wire import Payload, header_of, pack
from polyclinic.federation.message import Message
from tests.engine.flower.hospitals import greeting, run_of


class Coordinator:
    """Sends one site whatever it likes; all of it is well-formed."""

    def __init__(self, service, study) -> None:
        self.service, self.run = service, run_of(study)
        self.about = header_of(service.respond(greeting(study)))["response"]["about"]
        request = GreetingRequest(**self.run)
        opened = service.runs.open(request, self.about["kind"], self.about["train"])
        self.first = opened.runner.first_weights()

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

    def guest(self, owner):
        """Crafted weights under the name of another site, encrypted to this one's key."""
        request = GuestRequest(**self._common(2, reads=3), owner=owner)
        model = {f"disclosed/{name}": tensor for name, tensor in self.first.items()}
        hidden = sealed(Message(extras=model), [self.service.sealing.public], "token").extras
        extras = {name.replace("/", f"/{owner}/", 1): each for name, each in hidden.items()}
        return self._asked(pack(requesting(request), Message(extras=extras), "float32"))

    def _common(self, number, reads):
        keep = tuple(range(50))
        return {
            **self.run,
            "run": "token",
            "labels": self.about["kind"],
            "train": self.about["train"],
            "number": number,
            "reads": reads,
            "keep": keep,
        }

    def _asked(self, payload):
        return Payload.from_bytes(self.service.respond(payload.to_bytes()))
