"""The transport between the server and the sites: payloads by site name, with deadlines.

A link knows machines by numbers and makes errors of its own; here every reply, and every reason why
there is none, has the name of a site. Nothing waits for ever.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from polyclinic.config import EngineSettings
from polyclinic.engine.flower.carrier import PayloadError, from_records, to_records
from polyclinic.engine.flower.wire import header_of
from polyclinic.runs.files import plain

PAUSE = 0.5  # seconds between two looks for new replies
MARGIN = 60.0  # seconds that a message lives longer than anybody waits for its reply
SILENCE = 180.0  # seconds without any reply after which open payloads are sent once more
TRIES = 3  # how often a payload is sent that does not arrive
TWICE = "more than one machine is connected under its name"
KIND = "query"  # of all our messages, in Flower's words


@dataclass(frozen=True)
class Failure:
    """Why there is no reply from a site; a `final` one is not cured by sending again."""

    reason: str
    final: bool = False


@dataclass(frozen=True)
class Link:
    """A link over Flower's grid."""

    grid: Grid

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


@dataclass
class Deliveries:
    """Which payloads of an exchange are still to be sent, and which wait for a reply."""

    unsent: dict[str, str]  # site → the last failure with it
    open: dict[str, str] = field(default_factory=dict)  # message → site
    tries: Counter[str] = field(default_factory=Counter)

    def ready(self, machines: Mapping[str, Sequence[int]], at_once: int | None) -> dict[str, int]:
        """The machines of the sites whose payloads can go out."""
        self.unsent |= {site: TWICE for site in self.unsent if len(machines.get(site, ())) > 1}
        busy = {*self.open.values()}
        room = len(self.unsent) if at_once is None else max(0, at_once - len(busy - {*self.unsent}))
        free = [site for site in self.unsent if len(machines.get(site, ())) == 1]
        return {site: machines[site][0] for site in free[:room]}

    def sent(self, messages: Mapping[str, str]) -> None:
        """Note the messages that went out."""
        self.open |= messages
        for site in messages.values():
            self.tries[site] += 1
            del self.unsent[site]

    def ends(self, site: str, reply: bytes | Failure) -> bool:
        """Whether the delivery ends with this: a reply, or too many failures."""
        if not isinstance(reply, Failure) or reply.final:
            for copy in [each for each, to in self.open.items() if to == site]:
                del self.open[copy]
            self.unsent.pop(site, None)
            return True
        if site in self.open.values():
            return False  # it was sent more than once, and the other copy may arrive
        if self.tries[site] < TRIES:
            self.unsent[site] = reply.reason
            return False
        return True

    def send_again(self) -> None:
        """Let those that are silent have their payload once more."""
        silent = [site for site in self.open.values() if self.tries[site] < TRIES]
        self.unsent = dict.fromkeys(silent, "it did not answer") | self.unsent

    def failures(self, deadline: float) -> Iterator[tuple[str, Failure]]:
        """Why the deliveries that are left have not ended."""
        silent = dict.fromkeys(self.open.values())
        for site, reason in self.unsent.items():
            if site not in silent:
                yield site, Failure(f"it could not be reached: {reason}")
        for site in silent:
            yield site, Failure(f"it did not answer within {deadline:g} seconds")


@dataclass
class Transport:
    """Sends payloads to sites and brings their replies, with deadlines."""

    link: Link
    settings: EngineSettings
    greeting: bytes | None = None  # asks machines without a registered name who they are
    heard: Callable[[str, bytes], None] | None = None  # hears every reply of a site
    silence: float = SILENCE
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    names: dict[int, str] = field(default_factory=dict)  # what machines said they are called
    asked: dict[str, str] = field(default_factory=dict)  # messages that ask machines for a name

    def exchange(
        self, payloads: Mapping[str, bytes], *, patience: float | None = None
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Each site's reply as it arrives; at the end, who has not answered and why.

        A payload that gets lost is sent again when its site is back. Sites that cannot be reached
        are waited for `patience` seconds after the others have answered. After a longer
        silence those that have the payload get it once more: the reply may be what got lost.
        """
        patience = self.settings.patience if patience is None else patience
        deliveries = Deliveries(unsent=dict.fromkeys(payloads, "it was not connected"))
        end = self.clock() + self.settings.deadline
        progress = self.clock()
        while deliveries.unsent or deliveries.open:
            ready = deliveries.ready(self._machines(end), self.settings.at_once)
            outgoing = {machine: payloads[site] for site, machine in ready.items()}
            deliveries.sent(self._send(outgoing, ready, end))
            for site, reply in self._receive(deliveries.open):
                progress = self.clock()
                if deliveries.ends(site, reply):
                    if self.heard and isinstance(reply, bytes):
                        self.heard(site, reply)
                    yield site, reply
            now = self.clock()
            lost = deliveries.unsent and not deliveries.open and now - progress > patience
            if now >= end or lost:
                break
            if deliveries.open and now - progress > self.silence:
                deliveries.send_again()
                progress = now
            if deliveries.unsent or deliveries.open:
                self.sleep(PAUSE)
        yield from deliveries.failures(self.settings.deadline)

    def _machines(self, end: float) -> dict[str, list[int]]:
        """The machines that are connected, by site name.

        A registered name is proven by the machine's key. Where nothing is proven, machines are
        asked for theirs; otherwise those without one get nothing.
        """
        machines = self.link.machines()
        if self.greeting is not None:
            nameless = [number for number, name in machines.items() if not name]
            self._ask_names(nameless, self.greeting, end)
        found: dict[str, list[int]] = {}
        for number, registered in machines.items():
            name = registered or self.names.get(number)
            if name:
                found.setdefault(name, []).append(number)
        return found

    def _ask_names(self, nameless: Iterable[int], greeting: bytes, end: float) -> None:
        """Note the names that machines have said since, and ask those that nobody has asked."""
        for number, reply in self._receive(self.asked):
            if isinstance(reply, bytes):
                self.names[int(number)] = _name_in(reply)
        known = {*self.names, *map(int, self.asked.values())}
        unknown = [number for number in nameless if number not in known]
        self.asked |= self._send(dict.fromkeys(unknown, greeting), map(str, unknown), end)

    def _send(
        self, payloads: Mapping[int, bytes], senders: Iterable[str], end: float
    ) -> dict[str, str]:
        """Send payloads to machines; gives the message of each."""
        if not payloads:
            return {}
        # Longer than we wait: a message that is dropped for its age looks like a lost one.
        left = end - self.clock() + MARGIN
        return dict(zip(self.link.send(payloads, left), senders, strict=True))

    def _receive(self, waiting: dict[str, str]) -> Iterator[tuple[str, bytes | Failure]]:
        """The replies that have come; their messages wait no more."""
        if not waiting:
            return
        for message, reply in self.link.receive(list(waiting)):
            site = waiting.pop(message, None)
            if site is not None:
                yield site, reply


def _name_in(reply: bytes) -> str:
    try:
        return str(header_of(reply).get("site", ""))
    except PayloadError:
        return ""
