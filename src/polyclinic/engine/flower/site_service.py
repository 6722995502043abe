"""A site's service: checks requests, does the work, and lets out what the policy allows."""

import json
import logging
import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from polyclinic.config import Tables
from polyclinic.config.node_file import NodeFile
from polyclinic.engine.devices import threads_of
from polyclinic.engine.flower.approval import Approvals
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.describing import described
from polyclinic.engine.flower.final_models import compare_models
from polyclinic.engine.flower.leaving import leaving_scores
from polyclinic.engine.flower.ledger import Ledger, LedgerBroken
from polyclinic.engine.flower.open_runs import OpenRuns, SiteRun
from polyclinic.engine.flower.order import (
    asked_for,
    check_final,
    check_repeats,
    check_score,
    check_stage,
    stage_of,
)
from polyclinic.engine.flower.own_results import keep_results, keep_trained
from polyclinic.engine.flower.policy import Policy
from polyclinic.engine.flower.protocol import (
    GreetingRequest,
    GreetingResponse,
    GuestRequest,
    IntroductionRequest,
    ModelRequest,
    RunRequest,
    ScoreRequest,
    ScoreResponse,
    StageRequest,
    StageResponse,
    VisitRequest,
    read_request,
    responding,
)
from polyclinic.engine.flower.scrubbing import code_of, refusal
from polyclinic.engine.flower.sealing import SealingKey, sealed
from polyclinic.engine.flower.wire import Payload, pack, unpack
from polyclinic.engine.flower.witness import LEDGER, Countersignatures
from polyclinic.engine.pictures import draw_pictures
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import site_info
from polyclinic.engine.site_runner import Scoring
from polyclinic.federation.message import Message
from polyclinic.runs import SiteInfo

log = logging.getLogger("polyclinic.site")


class SiteService:
    """Everything that one site does for the federation, with data and network kept in memory."""

    def __init__(self, site: NodeFile, tables: Tables) -> None:
        self.site = site
        self.ledger = Ledger(site.state / "ledger.jsonl", site.server.address)
        self.countersigned = Countersignatures(site.state, site.name, site.server.ca)
        self.sealing = SealingKey.kept_in(site.state)
        self._told: dict[str, Any] = {}  # what the reply tells of the ledger
        self.policy = Policy(site.allow, site.privacy, self.ledger)
        self.approvals = Approvals(site.state, site.allow.studies)
        self.runs = OpenRuns(site, tables, self.policy)
        self._latest: tuple[str, Payload] | None = None  # the last stage, and its response
        prepare_process(threads_of(site.threads))

    def respond(self, data: bytes) -> bytes:
        """The response to a payload; an error becomes a refusal without names of the site's own."""
        try:
            return self._respond(data)
        except Exception as error:
            number = secrets.token_hex(4)
            log.exception("refused (%s)", number)
            refused, code = refusal(error, number, self.site), code_of(error)
            payload = self._named(Payload({"refused": refused, "code": code}))
            try:
                facts = {"stage": "refusal", "code": code, "refused": refused}
                return self.ledger.add(payload, facts)
            except (LedgerBroken, OSError):  # the one thing that leaves all the same
                return payload.to_bytes()

    def _respond(self, data: bytes) -> bytes:
        self._told = {}
        payload = Payload.from_bytes(data, self.policy.largest)
        request = read_request(payload)
        self._told = {LEDGER: self.countersigned.receive(payload.header, self.ledger)}
        if isinstance(request, IntroductionRequest):
            return self.ledger.add(self._named(Payload({})), {"stage": "introduction"})
        if isinstance(request, GreetingRequest):
            return self._greet(request)
        self._check_approved(request)
        comes = not isinstance(request, ScoreRequest) or request.finalize
        message = unpack(payload) if comes else Message()
        self.policy.check_received(message)
        facts: dict[str, Any] = {
            **self._about(request),
            "round": request.number,
            "stage": stage_of(request),
            "asked": asked_for(request, payload),
        }
        asked = json.dumps(payload.header["request"]) + facts["asked"]
        if self._latest is not None and self._latest[0] == asked:
            # The response got lost on its way: the same leaves once more, with the same noise.
            return self._sent(self._latest[1], {**facts, "again": True})
        noise = isinstance(request, StageRequest) and self.policy.noisy
        check_repeats(self.ledger.lines(), facts, self.policy.allow, noise=noise)
        response, more = self._done(request, message)
        if isinstance(request, StageRequest):
            self._latest = asked, response
        return self._sent(response, {**facts, **more})

    def _done(self, request: VisitRequest, message: Message) -> tuple[Payload, dict[str, Any]]:
        """The response to a request, and what the ledger says of it."""
        match request:
            case StageRequest():
                return self._work(request, message)
            case ScoreRequest():
                return self._score(request, message if request.finalize else None)
            case ModelRequest() | GuestRequest():
                run, info = self._run(request)
                state, noted = run.state_to_start(request, self.runs.hash(request.study))
                check_final(run.runner.assignment, run.run.study.evaluation, request, noted)
                message = self.sealing.opened(message, request.run, run.runner.weights)
                return compare_models(self.policy, run, info, state, request, message)

    def _greet(self, request: GreetingRequest) -> bytes:
        # First all that can be refused without a look at the data, which would divide them, too.
        run, needed = self.runs.run(request), self.policy.allow.cases
        unseen = self.runs.sites(request.sites, self.runs.kind(request.study), needed)
        self.policy.check_run(run.study, needed, self.runs.untaught(run, unseen))
        self._check_approved(request)
        data = self.runs.data(request.study, run.choice.labels)
        about = site_info(data, run.study.task.built)
        self.runs.open(request, about.kind, about.train)
        response = GreetingResponse(
            about=about,
            scorable=len(data.scorable("val", run.study.task.built.regions)),
            version=version("polyclinic"),
            packages=run.study.packages,
            sealing=self.sealing.public,
        )
        return self._sent(
            Payload(responding(response)), {**self._about(request), "stage": "greeting"}
        )

    def _check_approved(self, request: RunRequest) -> None:
        study = self.runs.hash(request.study)
        self.approvals.check(study, lambda: described(study, request, self.runs))

    def _work(self, request: StageRequest, message: Message) -> tuple[Payload, dict[str, float]]:
        """The response of a stage, and the facts about its noise."""
        run, info = self._run(request)
        study = self.runs.hash(request.study)
        state, noted = run.state_to_start(request, study)
        check_stage(run.runner.assignment, request, noted)
        states = run.states(request.run)
        states.keep_only(info.name, [*request.keep, request.reads])
        stage = run.runner.assignment.stage(request.stage)
        message = self.sealing.opened(message, request.run, run.runner.weights)
        visit = run.runner.visit(info, run.data, stage, message, state, request.number)
        self.policy.check_message(visit.reply)
        reply, noise = self.policy.blurred(visit.reply, message.weights)
        if stage.discloses and (reply.extras or not reply.weights):  # shared ones the server reads
            self.policy.check_recipients(request.recipients)
            reply = sealed(reply, request.recipients, request.run)
        note = {"run": request.run, "round": str(request.number), "stage": request.stage}
        states.save(info.name, request.writes, visit.state, {**note, "study": study})
        run.forget_others(request.run)
        response = StageResponse(
            number=request.number,
            stage=request.stage,
            loss=None if "noise" in noise or math.isnan(visit.loss) else visit.loss,
            seconds=visit.seconds,
            images=visit.images,
        )
        log.info("trained for %.1f seconds with a mean loss of %.3f", visit.seconds, visit.loss)
        return pack(responding(response), reply, request.encoding, message.weights), noise

    def _score(
        self, request: ScoreRequest, message: Message | None
    ) -> tuple[Payload, dict[str, Any]]:
        """The scores, and what the ledger says of them."""
        run, info = self._run(request)
        state, noted = run.state_to_start(request, self.runs.hash(request.study))
        check_score(run.runner.assignment, run.run.study.evaluation, request, noted)
        scoring = Scoring(request.number, request.split, request.metrics, request.model)
        rows, cases, predicted, notes = run.runner.score(info, run.data, scoring, message, state)
        if request.model == "trained":
            keep_trained(run.run.folder, info.name, request.number, rows)
        elif request.split == "test" and state is not None:
            # The server's word on this site is less than the site knows: not its pixels' size.
            own = site_info(run.data, run.runner.assignment.task, info.index)
            keep_results(run.run, run.runner, own, state, request.number, rows)
            if run.run.study.evaluation.pictures:
                task = run.runner.assignment.task
                draw_pictures(run.run.folder, info.name, task, cases, predicted, rows)
        left = leaving_scores(self.policy.allow.scores, request.split, rows, cases, notes)
        response = ScoreResponse(
            number=request.number,
            split=request.split,
            rows=left.rows,
            spreads=left.spreads,
            notes=left.notes,
        )
        return Payload(responding(response)), {"notes": left.notes, "bare": "scores"}

    def _about(self, request: RunRequest) -> dict[str, Any]:
        """What the ledger says of the run that a request is of."""
        study = self.runs.study(request.study)
        run = f"{study.name}, {request.method}, seed {request.seed}"
        return {"run": run, "study": self.runs.hash(request.study)}

    def _named(self, payload: Payload) -> Payload:
        return replace(payload, header={"site": self.site.name, **payload.header, **self._told})

    def _sent(self, payload: Payload, facts: Mapping[str, Any]) -> bytes:
        """The payload with the site's name as it leaves, after a line in the ledger."""
        numbers = payload.header.get("message", {}).get("numbers", {})
        data = self.ledger.add(self._named(payload), {**facts, "numbers": numbers})
        where = f"round {facts['round']}, {facts['stage']}" if "round" in facts else facts["stage"]
        log.info("%s, %s: %.3f MB leave", facts["run"], where, len(data) / 1e6)
        return data

    def _run(self, request: VisitRequest) -> tuple[SiteRun, SiteInfo]:
        run = self.runs.open(request, request.labels, request.train)
        sites = run.runner.assignment.sites
        info = next((each for each in sites if each.name == self.site.name), None)
        kind, images = run.data.kind, len(run.data.train)
        if info is None or (info.kind, info.train) != (kind, images):
            raise PayloadError(
                f"the server takes site {self.site.name} for another one than it is: it has "
                f"{images} training cases with labels of the kind {kind}"
            )
        self.policy.check_run(run.run.study, images, run.runner)
        return run, info
