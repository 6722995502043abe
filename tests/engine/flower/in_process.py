"""A link to sites without processes or sockets: the sites' services are in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.transport import Failure

Responding = Callable[[bytes], bytes]


@dataclass
class InProcessLink:
    """Machines by number, each with the function that responds for it and its registered name."""

    responding: dict[int, Responding] = field(default_factory=dict)
    registered: dict[int, str] = field(default_factory=dict)
    replies: dict[str, bytes | Failure] = field(default_factory=dict)
    numbers: count = field(default_factory=lambda: count(1))
    crossed: list[bytes] = field(default_factory=list)
    """Everything that was sent either way."""
    left: list[bytes] = field(default_factory=list)
    """What left the sites."""

    @classmethod
    def of(cls, services: Iterable[SiteService]) -> InProcessLink:
        listed = list(enumerate(services, start=101))
        names = {number: service.site.name for number, service in listed}
        return cls({number: service.respond for number, service in listed}, names)

    def machines(self):
        return {number: self.registered.get(number, "") for number in self.responding}

    def send(self, payloads, seconds):
        return [self._send(machine, payload) for machine, payload in payloads.items()]

    def receive(self, messages):
        found = [(each, self.replies.pop(each)) for each in messages if each in self.replies]
        return found[::-1]  # replies come in any order

    def _send(self, machine: int, payload: bytes) -> str:
        number = f"message-{next(self.numbers)}"
        self.crossed.append(payload)
        try:
            reply = self.responding[machine](payload)
            self.crossed.append(reply)
            self.left.append(reply)
            self.replies[number] = reply
        except NoReply:
            pass
        except Exception as error:  # noqa: BLE001
            self.replies[number] = Failure(str(error))
        return number


class NoReply(Exception):
    """Raised by a responding function that stays silent."""
