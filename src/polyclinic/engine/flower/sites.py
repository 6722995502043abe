"""The sites of a run across hospitals, asked over the transport; every answer is checked."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.flower.payload import Payload, PayloadError
from polyclinic.engine.flower.protocol import NO_STATE, Rows, Work, Worked, read_answer
from polyclinic.engine.flower.protocol import Score as ScoreAsk
from polyclinic.engine.flower.reply_checks import (
    BadAnswer,
    Signature,
    check_disclosure,
    check_message,
    odd_ones,
    opened,
)
from polyclinic.engine.flower.transport import Answer, Transport
from polyclinic.engine.flower.wire import bytes_by_part, pack, unpack
from polyclinic.engine.loop import Reply, Scored
from polyclinic.engine.reply_store import ReplyStore
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.weights import Weights
from polyclinic.runs import RoundLine, Score, Split, write_atomic

SPARE = 64 * 2**20  # bytes that messages may have however small the network is


class Versions:
    """Which state of each site the server believes in after each round; kept in a file."""

    def __init__(self, file: Path, resumed: bool) -> None:
        self.file = file
        kept = json.loads(file.read_text()) if resumed and file.exists() else {}
        self.run: str = kept.get("run") or secrets.token_hex(8)
        self.of: dict[str, dict[int, int]] = {
            site: {int(number): version for number, version in versions.items()}
            for site, versions in kept.get("versions", {}).items()
        }

    def before(self, site: str, since: int) -> int:
        """The version in force at a site after round `since`."""
        rounds = [number for number in self.of.get(site, {}) if number <= since]
        return self.of[site][max(rounds)] if rounds else NO_STATE

    def note(self, site: str, number: int, version: int) -> None:
        """A site's message of this round was accepted, so its state is believed in."""
        self.of.setdefault(site, {})[number] = version
        text = json.dumps({"run": self.run, "versions": self.of})
        write_atomic(self.file, text)

    def forget_from(self, number: int) -> None:
        """This round begins anew: what an interrupted attempt left is not believed in."""
        for versions in self.of.values():
            for later in [each for each in versions if each >= number]:
                del versions[later]


class FlowerSites:
    """The sites of one run, each behind a SuperNode of its own."""

    def __init__(self, runner: SiteRunner, transport: Transport, folder: Path, study: str) -> None:
        self.runner = runner
        self.transport = transport
        self.study = study
        self.scored = self.trained = runner.assignment.sites
        self.quorum = transport.settings.quorum
        checkpoint = Checkpoint(folder / "checkpoint")
        self.versions = Versions(checkpoint.folder / "sites.json", checkpoint.exists)
        self.held = ReplyStore(checkpoint.folder / "held")
        self.shared = runner.first_weights()
        self.usual: dict[str, Signature] = {}  # of the messages of each stage
        self.largest = SPARE + 16 * runner.weights.nbytes  # no method sends nearly as much
        self.needed: Sequence[int] = ()
        self.current = -1

    def ask(
        self, stage: Stage, messages: Mapping[str, Message], *, number: int, since: int
    ) -> Iterator[tuple[str, Reply]]:
        """Let the sites work on a stage; each reply as it comes, once it is known to be usual."""
        if number != self.current:
            self.current = number
            self.versions.forget_from(number)
        version = self._version(stage, number)
        payloads = {
            site: self._payload(self._work(stage, site, number, since, version), message)
            for site, message in messages.items()
        }
        held: dict[str, Reply] = {}
        signatures: dict[str, Signature] = {}
        for site, answer in self.transport.exchange(payloads):
            reply = self._reply(site, answer, messages[site], payloads[site], stage, number)
            if reply.message is not None and (reply.message.weights or messages[site].weights):
                signatures[site] = Signature.of(reply.message)
                if signatures[site] != self.usual.get(stage.name):
                    held[site] = replace(reply, message=self.held.seat(site, reply.message))
                    continue
            if reply.message is not None:
                self.versions.note(site, number, version)
            yield site, reply
        odd = odd_ones(signatures, self.shared)
        for site, reply in held.items():
            if site in odd:
                yield site, _missed(number, stage.name, site, f"its message has {odd[site]}")
                continue
            self.usual[stage.name] = signatures[site]
            self.versions.note(site, number, version)
            yield site, reply
        self.held.clear()

    def score(
        self,
        messages: Mapping[str, Message] | None,
        *,
        split: Split,
        metrics: Sequence[str],
        number: int,
        since: int,
    ) -> Iterator[Scored]:
        """Score every site's model, in the order of the sites."""
        payloads = {}
        for info in self.scored:
            ask = ScoreAsk(
                **self._common(info.name, number, since),
                split=split,
                metrics=tuple(metrics),
                finalize=messages is not None,
            )
            payloads[info.name] = self._payload(ask, messages[info.name] if messages else None)
        answers = dict(self.transport.exchange(payloads))
        for site in payloads:
            yield self._scored(site, answers[site], split, number)

    def forget(self, needed: Sequence[int]) -> None:
        """The sites hear with the next message which states may still be asked for."""
        self.needed = tuple(needed)

    def keep(self, last: int) -> None:
        """Nothing is kept here: a site's final model is a file at the site."""

    def _work(self, stage: Stage, site: str, number: int, since: int, version: int) -> Work:
        common = self._common(site, number, since)
        encoding = self.transport.settings.encoding
        return Work(**common, stage=stage.name, writes=version, encoding=encoding)

    def _common(self, site: str, number: int, since: int) -> dict[str, Any]:
        versions = {self.versions.before(site, each) for each in (*self.needed, since)}
        return {
            "study": self.study,
            "run": self.versions.run,
            "sites": tuple((s.name, s.index, s.kind, s.images) for s in self.scored),
            "number": number,
            "reads": self.versions.before(site, since),
            "keep": tuple(sorted(versions - {NO_STATE})),
        }

    def _version(self, stage: Stage, number: int) -> int:
        """A number for the states after this stage that no other stage of the run has."""
        names = [each.name for each in self.runner.assignment.stages]
        return number * len(names) + names.index(stage.name)

    def _payload(self, ask: Work | ScoreAsk, message: Message | None) -> Payload:
        encoding = self.transport.settings.encoding
        exact = "float32" if encoding == "difference" else encoding
        payload = pack(message, exact) if message is not None else Payload({})
        return replace(payload, about={"ask": ask.model_dump(mode="json"), **payload.about})

    def _reply(
        self,
        site: str,
        answer: Answer,
        sent: Message,
        payload: Payload,
        stage: Stage,
        number: int,
    ) -> Reply:
        """The site's reply with its line; without a message where it cannot be used."""
        try:
            back = opened(site, answer)
            worked = read_answer(Worked, back.about.get("answer"))
            if (worked.number, worked.stage) != (number, stage.name):
                raise BadAnswer(f"it answered for round {worked.number}, stage {worked.stage}")
            if back.nbytes > self.largest:
                raise BadAnswer(f"its message of {back.nbytes / 2**20:.0f} MB is too large")
            message = unpack(back, sent.weights)
            check_message(message, self._known(stage))
            if stage.discloses:
                check_disclosure(message, self.runner.weights)
        except (BadAnswer, PayloadError) as error:
            return _missed(number, stage.name, site, str(error))
        line = RoundLine(
            round=number,
            stage=stage.name,
            site=site,
            loss=worked.loss,
            seconds=worked.seconds,
            images=worked.images,
            down=payload.nbytes + 8 * len(sent.numbers),
            up=back.nbytes + 8 * len(message.numbers),
            extras=tuple(sorted({*sent.extras, *message.extras})),
            numbers=dict(message.numbers),
            parts=bytes_by_part(back),
        )
        return Reply(message, line)

    def _known(self, stage: Stage) -> Weights:
        """The weights that a reply of this stage may have."""
        return self.runner.first_weights(stage) if stage.shares else self.shared

    def _scored(self, site: str, answer: Answer, split: Split, number: int) -> Scored:
        try:
            rows = read_answer(Rows, opened(site, answer).about.get("answer"))
            if (rows.number, rows.split) != (number, split):
                raise BadAnswer(f"it answered for round {rows.number}, split {rows.split}")
        except (BadAnswer, PayloadError) as error:
            return Scored(number, split, site, (), missed=str(error))
        return Scored(number, split, site, tuple(Score(number, split, site, *r) for r in rows.rows))


def _missed(number: int, stage: str, site: str, reason: str) -> Reply:
    return Reply(None, RoundLine(round=number, stage=stage, site=site, missed=reason))
