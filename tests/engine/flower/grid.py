"""Flower's grid without processes or sockets: the sites' services are in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from flwr.app import Error, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from polyclinic.engine.flower.payload import Payload
from polyclinic.engine.flower.records import from_records, to_records
from polyclinic.engine.flower.site_service import SiteService

try:  # not public, but without it no message can be made outside Flower's own processes
    from flwr.supercore.task_identity import TaskIdentity
except ImportError:  # pragma: no cover
    TaskIdentity = None

if TaskIdentity is not None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

Answering = Callable[[Payload], Payload]


@dataclass
class InProcessGrid(Grid):
    """Machines by number, each with the function that answers for it and its registered name."""

    answering: dict[int, Answering] = field(default_factory=dict)
    registered: dict[int, str] = field(default_factory=dict)
    replies: dict[str, FlowerMessage] = field(default_factory=dict)
    numbers: count = field(default_factory=lambda: count(1))
    crossed: list[bytes] = field(default_factory=list)
    """Everything that was sent either way, as bytes."""
    left: list[Payload] = field(default_factory=list)
    """What of it left a site, as it arrived."""

    @classmethod
    def of(cls, services: Iterable[SiteService]) -> InProcessGrid:
        listed = list(enumerate(services, start=101))
        names = {number: service.site.name for number, service in listed}
        return cls({number: service.answer for number, service in listed}, names)

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.answering)

    def get_nodes(self):
        return [
            NodeInfo(node_id=number, name=self.registered.get(number, ""))
            for number in self.answering
        ]

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids):
        found = [self.replies.pop(each) for each in message_ids if each in self.replies]
        return found[::-1]  # answers come in any order

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def _push(self, message: FlowerMessage) -> str:
        number = f"message-{next(self.numbers)}"
        message.metadata.__dict__["_message_id"] = number
        answer = self.answering[message.metadata.dst_node_id]
        try:
            content = answer(from_records(self._through(message.content)))
            records = self._through(to_records(content))
            self.left.append(from_records(records))
            self.replies[number] = FlowerMessage(records, reply_to=message)
        except NoAnswer:
            pass
        except Exception as error:  # noqa: BLE001
            self.replies[number] = FlowerMessage(Error(5, str(error)), reply_to=message)
        return number

    def _through(self, content: RecordDict) -> RecordDict:
        """The content after a journey over the wire: Flower's own objects, taken apart and back."""
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        contents = {key: each.deflate() for key, each in get_all_nested_objects(content).items()}
        self.crossed += contents.values()
        return inflate_object_from_contents(content.object_id, contents)


class NoAnswer(Exception):
    """Raised by an answering function that stays silent."""
