"""The sites of a run across hospitals, asked over the transport; every response is checked."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.cross_site import CrossSite
from polyclinic.engine.flower.protocol import (
    NO_STATE,
    ScoreRequest,
    ScoreResponse,
    StageRequest,
    StageResponse,
    VisitRequest,
    read_response,
    requesting,
)
from polyclinic.engine.flower.replies import (
    Signature,
    check_disclosure,
    check_message,
    check_scores,
    conflicts,
    length_of_change,
    length_of_extras,
    miscounted,
    strays,
)
from polyclinic.engine.flower.transport import Failure, Transport
from polyclinic.engine.flower.versions import Versions
from polyclinic.engine.flower.wire import Payload, pack, unpack
from polyclinic.engine.flower.witness import Witness
from polyclinic.engine.reply_store import ReplyStore
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.sites import Reply, Scored
from polyclinic.evaluation import METRICS
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.server import Server
from polyclinic.runs import RoundLine, RunFolder

SPARE = 64 * 2**20  # bytes that messages may have however small the network is


class FlowerSites:
    """The sites of one run, each behind a SuperNode of its own."""

    def __init__(
        self,
        runner: SiteRunner,
        transport: Transport,
        folder: Path,
        requests: Mapping[str, Mapping[str, Any]],
        witness: Witness,
        threads: int,
        *,
        cross_site: bool = False,
    ) -> None:
        """`requests` is what every request says to each site of the study and the run."""
        self.runner, self.threads = runner, threads
        self.run, self.cross_site = RunFolder(folder), cross_site
        self.transport = transport
        self.requests, self.witness = requests, witness
        self.scored = self.trained = runner.assignment.sites
        self.quorum = transport.settings.quorum
        checkpoint = Checkpoint(folder / "checkpoint")
        self.versions = Versions(checkpoint)
        self.held = ReplyStore(checkpoint.folder / "held")
        self.shared = runner.first_weights()
        self.images = {site.name: site.train for site in self.scored}  # as they said at first
        self.largest = SPARE + 16 * runner.weights.nbytes  # no method sends nearly as much
        self.needed: Sequence[int] = ()
        self.current = -1

    def ask(
        self, stage: Stage, messages: Mapping[str, Message], *, number: int, since: int
    ) -> Iterator[tuple[str, Reply]]:
        """Let the sites work on a stage; their replies once all are there to be compared."""
        if number != self.current:
            self.current = number
            self.versions.forget_from(number)
        version = self._version(stage, number)
        payloads, sizes = {}, {}
        for site, message in messages.items():
            request = StageRequest(
                **self.common(site, number, since),
                stage=stage.name,
                writes=version,
                encoding=self.transport.settings.encoding,
                recipients=self.witness.recipients(site) if stage.discloses else (),
            )
            payload = self.payload(site, request, message)
            payloads[site], sizes[site] = payload.to_bytes(), payload.nbytes
        held: dict[str, Reply] = {}
        signatures: dict[str, Signature] = {}
        changes: dict[str, float] = {}
        extras: dict[str, float] = {}
        steps: dict[str, float] = {}
        for site, response in self.transport.exchange(payloads):
            reply = self._reply(site, response, messages[site], sizes[site], stage, number)
            if reply.message is not None and (reply.message.weights or messages[site].weights):
                signatures[site] = Signature.of(reply.message)
                changes[site] = length_of_change(reply.message.weights, messages[site].weights)
                extras[site] = length_of_extras(reply.message)
                if reply.message.weights:
                    steps[site] = reply.message.numbers["steps"]
                held[site] = replace(reply, message=self.held.store(site, reply.message))
                continue
            if reply.message is not None:
                self.versions.note(site, number, version)
            yield site, reply
        left_out = conflicts(signatures, self.shared) | miscounted(steps, self.images)
        most = self.transport.settings.stray
        for lengths, what in ((changes, "a change of the weights"), (extras, "a vector of extras")):
            usual = {site: length for site, length in lengths.items() if site not in left_out}
            left_out |= strays(usual, most, what)
        for site, reply in held.items():
            if site in left_out:
                reason = f"its message has {left_out[site]}"
                yield site, _missed(number, stage.name, site, reason)
                continue
            self.versions.note(site, number, version)
            yield site, reply
        self.held.clear()

    def score(
        self, scoring: Scoring, messages: Mapping[str, Message] | None, *, since: int
    ) -> Iterator[Scored]:
        """Score every site's model, in the order of the sites."""
        payloads = {}
        for info in self.scored:
            request = ScoreRequest(
                **self.common(info.name, scoring.round, since),
                split=scoring.split,
                metrics=scoring.metrics,
                finalize=messages is not None,
                model=scoring.model,
            )
            message = messages[info.name] if messages else None
            payloads[info.name] = self.payload(info.name, request, message).to_bytes()
        responses = dict(self.transport.exchange(payloads))
        for site in payloads:
            yield self.scores_in(site, responses[site], scoring)

    def forget(self, needed: Sequence[int]) -> None:
        """The sites hear with the next message which states may still be asked for."""
        self.needed = tuple(needed)

    def keep(self, last: int, server: Server) -> Iterable[RoundLine]:
        """Nothing is kept here: a site's final model is a file at the site."""
        return CrossSite(self, server, last).run() if self.cross_site else ()

    def common(self, site: str, number: int, since: int) -> dict[str, Any]:
        """What every request to a site says, for work on its state of round `since`."""
        versions = {self.versions.before(site, each) for each in (*self.needed, since)}
        info = next(each for each in self.scored if each.name == site)
        return {
            **self.requests[site],
            "run": self.versions.run,
            "labels": info.kind,
            "train": info.train,
            "number": number,
            "reads": self.versions.before(site, since),
            "keep": tuple(sorted(versions - {NO_STATE})),
        }

    def _version(self, stage: Stage, number: int) -> int:
        """A number for the states after this stage that no other stage of the run has."""
        names = [each.name for each in self.runner.assignment.stages]
        return number * len(names) + names.index(stage.name)

    def payload(self, site: str, request: VisitRequest, message: Message | None) -> Payload:
        """A request with the message that goes with it, if any."""
        encoding = self.transport.settings.encoding
        exact = "float32" if encoding == "difference" else encoding
        header = {**requesting(request), **self.witness.header(site)}
        if message is None:
            return Payload(header)
        names = dict(zip((each.name for each in self.scored), request.sites, strict=True))
        extras = {_renamed(key, names): each for key, each in message.extras.items()}
        return pack(header, replace(message, extras=extras), exact)

    def _reply(
        self,
        site: str,
        response: bytes | Failure,
        sent: Message,
        down: int,
        stage: Stage,
        number: int,
    ) -> Reply:
        """The site's reply with its line; without a message where it cannot be used."""
        try:
            worked, payload = read_response(StageResponse, site, response, self.largest)
            if (worked.number, worked.stage) != (number, stage.name):
                raise PayloadError(f"it answered for round {worked.number}, another stage")
            message = unpack(payload, sent.weights)
            known = self.runner.first_weights(stage) if stage.shares else self.shared
            check_message(message, known, self.images[site])
            if stage.discloses:
                check_disclosure(message, self.runner.weights)
        except PayloadError as error:
            return _missed(number, stage.name, site, str(error))
        line = RoundLine(
            round=number,
            stage=stage.name,
            site=site,
            loss=math.nan if worked.loss is None else worked.loss,
            seconds=worked.seconds,
            images=worked.images,
            down=down + 8 * len(sent.numbers),
            up=payload.nbytes + 8 * len(message.numbers),
            extras=tuple(sorted({*sent.extras, *message.extras})),
            numbers=dict(message.numbers),
            parts=payload.bytes_by_part(message),
        )
        return Reply(message, line)

    def scores_in(self, site: str, response: bytes | Failure, scoring: Scoring) -> Scored:
        """The scores in a site's response, or why there are none."""
        try:
            scores, _ = read_response(ScoreResponse, site, response, self.largest)
            if (scores.number, scores.split) != (scoring.round, scoring.split):
                raise PayloadError(f"it answered for round {scores.number}, split {scores.split}")
            known = {**METRICS, **self.runner.assignment.metrics}
            asked = {name: known[name] for name in scoring.metrics}
            check_scores(scores, self.runner.assignment.task.regions, asked)
        except PayloadError as error:
            return replace(Scored.of(scoring, site, ()), missed=str(error))
        # Of a site that gives only means, these are all that tables can say of its cases.
        spreads = {f"spread of {name}, {region}": each for region, name, each in scores.spreads}
        return Scored.of(scoring, site, scores.rows, {**scores.notes, **spreads})


def _missed(number: int, stage: str, site: str, reason: str) -> Reply:
    return Reply(None, RoundLine(round=number, stage=stage, site=site, missed=reason))


def _renamed(key: str, names: Mapping[str, str]) -> str:
    """The name of an extra with sites in it called as the receiver knows them."""
    first, *rest = key.split("/")
    return "/".join((first, *(names.get(each, each) for each in rest)))
