"""The link to the sites' machines that Flower's grid is: payloads out, replies in, by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from polyclinic.engine.flower.carrier import PayloadError, from_records, to_records
from polyclinic.runs.texts import plain

KIND = "query"  # of all our messages, in Flower's words


@dataclass(frozen=True)
class Failure:
    """Why there is no reply from a site; a `final` one is not cured by sending again."""

    reason: str
    final: bool = False


class Link:
    """A link over Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def machines(self) -> dict[int, str]:
        """The machines that are connected, with the name each is registered under, if any."""
        return {node.node_id: node.name for node in self.grid.get_nodes()}

    def send(self, payloads: Mapping[int, bytes], seconds: float) -> list[str]:
        """Send payloads to machines; gives the number of each message, which lives for a while."""
        messages = [
            FlowerMessage(to_records(payload), machine, KIND, ttl=seconds)
            for machine, payload in payloads.items()
        ]
        return list(self.grid.push_messages(messages))

    def receive(self, messages: Sequence[str]) -> Iterator[tuple[str, bytes | Failure]]:
        """The replies that have come, each with the number of the message that it answers."""
        for reply in self.grid.pull_messages(messages):
            # Flower's own errors name no sender: only the message they answer tells the site.
            yield reply.metadata.reply_to_message_id, _content(reply)


def _content(reply: FlowerMessage) -> bytes | Failure:
    if reply.has_error():
        return Failure(plain(reply.error.reason or f"Flower's error {reply.error.code}"))
    try:
        return from_records(reply.content)
    except PayloadError as error:
        return Failure(f"its reply cannot be read: {error}", final=True)
