"""The post between the server and the sites: parcels by site name over Flower's grid.

Flower knows machines by numbers and makes errors of its own that carry no sender; here every
answer, and every reason why there is none, has the name of a site. Nothing waits for ever.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from polyclinic.config import EngineSettings
from polyclinic.engine.flower.parcel import Parcel, ParcelError
from polyclinic.engine.flower.records import from_records, to_records

KIND = "query"  # of all our messages, in Flower's words
PAUSE = 0.5  # seconds between two looks into the letter box
MARGIN = 60.0  # seconds that a message lives longer than anybody waits for its answer
TRIES = 3  # how often a parcel is sent that does not arrive
TWICE = "more than one machine is connected under its name"


@dataclass(frozen=True)
class Trouble:
    """Why a site has not answered."""

    reason: str


Answer = Parcel | Trouble


@dataclass
class Post:
    """Sends parcels to sites and brings their answers, with deadlines."""

    grid: Grid
    settings: EngineSettings
    introduction: Parcel | None = None  # asks machines without a registered name who they are
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    names: dict[int, str] = field(default_factory=dict)  # what machines said they are called
    asked: dict[str, str] = field(default_factory=dict)  # messages that ask machines for a name

    def exchange(
        self, parcels: Mapping[str, Parcel], *, patience: float | None = None
    ) -> Iterator[tuple[str, Answer]]:
        """Each site's answer as it arrives; at the end, who has not answered and why.

        A parcel that gets lost on its way is sent again when its site is back. Sites that cannot be
        reached are waited for `patience` seconds after the others have answered.
        """
        patience = self.settings.patience if patience is None else patience
        unsent = dict.fromkeys(parcels, "it was not connected")  # site → the last trouble with it
        under_way: dict[str, str] = {}  # message → site
        tries: Counter[str] = Counter()
        end = self.clock() + self.settings.deadline
        progress = self.clock()
        while unsent or under_way:
            machines = self._machines(end)
            unsent |= {site: TWICE for site in unsent if len(machines.get(site, ())) > 1}
            going = {s: machines[s][0] for s in unsent if len(machines.get(s, ())) == 1}
            under_way |= self._push({going[site]: parcels[site] for site in going}, going, end)
            for site in going:
                tries[site] += 1
                del unsent[site]
            for site, answer in self._pull(under_way):
                progress = self.clock()
                if isinstance(answer, Trouble) and tries[site] < TRIES:
                    unsent[site] = answer.reason
                else:
                    yield site, answer
            now = self.clock()
            if now >= end or (unsent and not under_way and now - progress > patience):
                break
            if unsent or under_way:
                self.sleep(PAUSE)
        for site, reason in unsent.items():
            yield site, Trouble(f"it could not be reached: {reason}")
        for site in under_way.values():
            yield site, Trouble(f"it did not answer within {self.settings.deadline:g} seconds")

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

    def _ask_names(self, nameless: Iterable[int], introduction: Parcel, end: float) -> None:
        """Note the names that machines have said since, and ask those that nobody has asked."""
        for text, answer in self._pull(self.asked):
            if isinstance(answer, Parcel):
                self.names[int(text)] = str(answer.about.get("site", ""))
        known = {*self.names, *map(int, self.asked.values())}
        unknown = [number for number in nameless if number not in known]
        parcels = dict.fromkeys(unknown, introduction)
        self.asked |= self._push(parcels, map(str, unknown), end)

    def _push(
        self, parcels: Mapping[int, Parcel], senders: Iterable[str], end: float
    ) -> dict[str, str]:
        """Send parcels to machines; gives the message of each."""
        if not parcels:
            return {}
        # Longer than we wait: a message that Flower drops for its age looks like a lost one.
        left = end - self.clock() + MARGIN
        messages = [
            Message(to_records(parcel), number, KIND, ttl=left)
            for number, parcel in parcels.items()
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


def _answer(message: Message) -> Answer:
    if message.has_error():
        return Trouble(message.error.reason or f"Flower's error {message.error.code}")
    try:
        return from_records(message.content)
    except ParcelError as error:
        return Parcel({"broken": str(error)})
