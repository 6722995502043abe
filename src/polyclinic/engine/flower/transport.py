"""The transport between the server and the sites: payloads by site name over Flower's grid.

Flower knows machines by numbers and makes errors of its own that carry no sender; here every
answer, and every reason why there is none, has the name of a site. Nothing waits for ever.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from polyclinic.config import EngineSettings
from polyclinic.engine.flower.payload import Payload, PayloadError
from polyclinic.engine.flower.records import from_records, to_records

KIND = "query"  # of all our messages, in Flower's words
PAUSE = 0.5  # seconds between two looks into new replies
MARGIN = 60.0  # seconds that a message lives longer than anybody waits for its answer
SILENCE = 180.0  # seconds without any answer after which payloads under way are sent once more
TRIES = 3  # how often a payload is sent that does not arrive
TWICE = "more than one machine is connected under its name"


@dataclass(frozen=True)
class Trouble:
    """Why a site has not answered."""

    reason: str


Answer = Payload | Trouble


@dataclass
class Errands:
    """Which payloads of an exchange are still to be sent, and which are under way."""

    unsent: dict[str, str]  # site → the last trouble with it
    under_way: dict[str, str] = field(default_factory=dict)  # message → site
    tries: Counter[str] = field(default_factory=Counter)

    def ready(self, machines: Mapping[str, Sequence[int]], at_once: int | None) -> dict[str, int]:
        """The machines of the sites whose payloads can go out."""
        self.unsent |= {site: TWICE for site in self.unsent if len(machines.get(site, ())) > 1}
        busy = {*self.under_way.values()}
        room = len(self.unsent) if at_once is None else max(0, at_once - len(busy - {*self.unsent}))
        free = [site for site in self.unsent if len(machines.get(site, ())) == 1]
        return {site: machines[site][0] for site in free[:room]}

    def sent(self, messages: Mapping[str, str]) -> None:
        """Note the messages that went out."""
        self.under_way |= messages
        for site in messages.values():
            self.tries[site] += 1
            del self.unsent[site]

    def ends(self, site: str, answer: Answer) -> bool:
        """Whether the errand ends with this: an answer, or too many failures."""
        if isinstance(answer, Payload):
            for copy in [each for each, to in self.under_way.items() if to == site]:
                del self.under_way[copy]
            self.unsent.pop(site, None)
            return True
        if site in self.under_way.values():
            return False  # it was sent more than once, and the other copy may arrive
        if self.tries[site] < TRIES:
            self.unsent[site] = answer.reason
            return False
        return True

    def send_again(self) -> None:
        """Let those that are silent have their payload once more."""
        silent = [site for site in self.under_way.values() if self.tries[site] < TRIES]
        self.unsent = dict.fromkeys(silent, "it did not answer") | self.unsent

    def troubles(self, deadline: float) -> Iterator[tuple[str, Trouble]]:
        """Why the errands that are left have not ended."""
        silent = dict.fromkeys(self.under_way.values())
        for site, reason in self.unsent.items():
            if site not in silent:
                yield site, Trouble(f"it could not be reached: {reason}")
        for site in silent:
            yield site, Trouble(f"it did not answer within {deadline:g} seconds")


@dataclass
class Transport:
    """Sends payloads to sites and brings their answers, with deadlines."""

    grid: Grid
    settings: EngineSettings
    introduction: Payload | None = None  # asks machines without a registered name who they are
    silence: float = SILENCE
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    names: dict[int, str] = field(default_factory=dict)  # what machines said they are called
    asked: dict[str, str] = field(default_factory=dict)  # messages that ask machines for a name

    def exchange(
        self, payloads: Mapping[str, Payload], *, patience: float | None = None
    ) -> Iterator[tuple[str, Answer]]:
        """Each site's answer as it arrives; at the end, who has not answered and why.

        A payload that gets lost is sent again when its site is back. Sites that cannot be reached
        are waited for `patience` seconds after the others have answered. After a longer
        silence those that have the payload get it once more: the answer may be what got lost.
        """
        patience = self.settings.patience if patience is None else patience
        errands = Errands(unsent=dict.fromkeys(payloads, "it was not connected"))
        end = self.clock() + self.settings.deadline
        progress = self.clock()
        while errands.unsent or errands.under_way:
            going = errands.ready(self._machines(end), self.settings.at_once)
            outgoing = {number: payloads[site] for site, number in going.items()}
            errands.sent(self._push(outgoing, going, end))
            for site, answer in self._pull(errands.under_way):
                progress = self.clock()
                if errands.ends(site, answer):
                    yield site, answer
            now = self.clock()
            lost = errands.unsent and not errands.under_way and now - progress > patience
            if now >= end or lost:
                break
            if errands.under_way and now - progress > self.silence:
                errands.send_again()
                progress = now
            if errands.unsent or errands.under_way:
                self.sleep(PAUSE)
        yield from errands.troubles(self.settings.deadline)

    def _machines(self, end: float) -> dict[str, list[int]]:
        """The machines that are connected, by site name.

        A registered name is proven by the machine's key. Where nothing is proven, machines are
        asked for theirs; otherwise those without one get nothing.
        """
        nodes = {node.node_id: node.name for node in self.grid.get_nodes()}
        if self.introduction is not None:
            nameless = [number for number, name in nodes.items() if not name]
            self._ask_names(nameless, self.introduction, end)
        found: dict[str, list[int]] = {}
        for number, registered in nodes.items():
            name = registered or self.names.get(number)
            if name:
                found.setdefault(name, []).append(number)
        return found

    def _ask_names(self, nameless: Iterable[int], introduction: Payload, end: float) -> None:
        """Note the names that machines have said since, and ask those that nobody has asked."""
        for text, answer in self._pull(self.asked):
            if isinstance(answer, Payload):
                self.names[int(text)] = str(answer.about.get("site", ""))
        known = {*self.names, *map(int, self.asked.values())}
        unknown = [number for number in nameless if number not in known]
        payloads = dict.fromkeys(unknown, introduction)
        self.asked |= self._push(payloads, map(str, unknown), end)

    def _push(
        self, payloads: Mapping[int, Payload], senders: Iterable[str], end: float
    ) -> dict[str, str]:
        """Send payloads to machines; gives the message of each."""
        if not payloads:
            return {}
        # Longer than we wait: a message that Flower drops for its age looks like a lost one.
        left = end - self.clock() + MARGIN
        messages = [
            FlowerMessage(to_records(payload), number, KIND, ttl=left)
            for number, payload in payloads.items()
        ]
        return dict(zip(self.grid.push_messages(messages), senders, strict=True))

    def _pull(self, under_way: dict[str, str]) -> Iterator[tuple[str, Answer]]:
        """The answers that have come; their messages are under way no more."""
        if not under_way:
            return
        for message in self.grid.pull_messages(list(under_way)):
            # Flower's own errors name no sender: only the message they answer tells the site.
            site = under_way.pop(message.metadata.reply_to_message_id, None)
            if site is not None:
                yield site, _answer(message)


def _answer(message: FlowerMessage) -> Answer:
    if message.has_error():
        return Trouble(message.error.reason or f"Flower's error {message.error.code}")
    try:
        return from_records(message.content)
    except PayloadError as error:
        return Payload({"broken": str(error)})
