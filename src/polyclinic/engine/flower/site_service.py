"""A site's service: checks requests, does the work, and lets out what the policy allows."""

import logging
import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from polyclinic.config import Study, Tables
from polyclinic.config.node_file import NodeFile
from polyclinic.engine.devices import threads_of
from polyclinic.engine.flower.carrier import PayloadError
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
    study_hash,
)
from polyclinic.engine.flower.own_results import keep_results, keep_trained
from polyclinic.engine.flower.policy import Policy
from polyclinic.engine.flower.protocol import (
    NO_STATE,
    GreetingRequest,
    GreetingResponse,
    GuestRequest,
    ModelRequest,
    Request,
    ScoreRequest,
    ScoreResponse,
    StageRequest,
    StageResponse,
    VisitRequest,
    read_request,
    responding,
)
from polyclinic.engine.flower.scrubbing import refusal
from polyclinic.engine.flower.wire import Payload, pack, unpack
from polyclinic.engine.pictures import draw_pictures
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import site_info
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.engine.tensors import DamagedFile
from polyclinic.federation.message import Message
from polyclinic.runs import SiteInfo

log = logging.getLogger("polyclinic.site")
STATE_ADVICE = "Bring it back from a backup, or start the study with --fresh"


class StateMismatch(ValueError):
    """The server believes in a state that this site does not have."""


class SiteService:
    """Everything that one site does for the federation, with data and network kept in memory."""

    def __init__(self, site: NodeFile, tables: Tables) -> None:
        self.site = site
        self.ledger = Ledger(site.state / "ledger.jsonl")
        self.policy = Policy(site.allow, site.privacy, self.ledger)
        self.runs = OpenRuns(site, tables, self.policy)
        self._latest: tuple[bytes, Payload] | None = None  # the last stage, and its response
        prepare_process(threads_of(site.threads))

    def respond(self, data: bytes) -> bytes:
        """The response to a payload; an error becomes a refusal without names of the site's own."""
        try:
            return self._respond(data)
        except Exception as error:
            code = secrets.token_hex(4)
            log.exception("refused (%s)", code)
            refused = refusal(error, code, self.site)
            payload = Payload({"site": self.site.name, "refused": refused})
            try:
                return self.ledger.add(payload, {"stage": "refusal", "refused": refused})
            except (LedgerBroken, OSError):  # the one thing that leaves all the same
                return payload.to_bytes()

    def _respond(self, data: bytes) -> bytes:
        payload = Payload.from_bytes(data, self.policy.largest)
        request = read_request(payload)
        if isinstance(request, GreetingRequest):
            return self._greet(request)
        comes = not isinstance(request, ScoreRequest) or request.finalize
        message = unpack(payload) if comes else Message()
        self.policy.check_received(message)
        facts: dict[str, Any] = {
            "round": request.number,
            "stage": stage_of(request),
            "study": study_hash(request.study),
            "asked": asked_for(request, payload),
        }
        if self._latest is not None and self._latest[0] == data:
            # The response got lost on its way: the same leaves once more, with the same noise.
            return self._sent(self._latest[1], request, {**facts, "again": True})
        check_repeats(self.ledger.lines(), facts, self.policy.allow.repeats)
        response, more = self._done(request, message)
        if isinstance(request, StageRequest):
            self._latest = data, response
        return self._sent(response, request, {**facts, **more})

    def _done(self, request: VisitRequest, message: Message) -> tuple[Payload, dict[str, Any]]:
        """The response to a request, and what the ledger says of it."""
        match request:
            case StageRequest():
                return self._work(request, message)
            case ScoreRequest():
                return self._score(request, message if request.finalize else None)
            case ModelRequest() | GuestRequest():
                run, info = self._run(request)
                state, noted = self._state(run, request)
                check_final(run.runner.assignment, run.run.study.evaluation, request, noted)
                return compare_models(self.policy, run, info, state, request, message)

    def _greet(self, request: GreetingRequest) -> bytes:
        # First all that can be refused without a look at the data, which would divide them, too.
        needed = self.policy.allow.cases
        alone = SiteInfo(self.site.name, 0, self.runs.kind(request.study), needed)
        self._check(self.runs.study(request.study), needed, self.runs.runner(request.study, alone))
        data = self.runs.data(request.study)
        about = site_info(data, self.runs.study(request.study).task.built)
        run = self.runs.open(request.study, (about,))
        self._check(run.run.study, len(data.train), run.runner)
        response = GreetingResponse(
            about=about,
            scorable=len(data.scorable("val", run.run.study.task.built.regions)),
            version=version("polyclinic"),
            packages=run.run.study.packages,
        )
        return self._sent(Payload(responding(response)), request, {"stage": "greeting"})

    def _work(self, request: StageRequest, message: Message) -> tuple[Payload, dict[str, float]]:
        """The response of a stage, and the facts about its noise."""
        run, info = self._run(request)
        state, noted = self._state(run, request)
        check_stage(run.runner.assignment, request, noted)
        run.states.keep_only(info.name, [*request.keep, request.reads])
        stage = run.runner.assignment.stage(request.stage)
        visit = run.runner.visit(info, run.data, stage, message, state, request.number)
        self.policy.check_message(visit.reply)
        reply, noise = self.policy.blurred(visit.reply, message.weights)
        note = {"run": request.run, "round": str(request.number), "stage": request.stage}
        note["study"] = study_hash(request.study)
        run.states.save(info.name, request.writes, visit.state, note)
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
        state, noted = self._state(run, request)
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
        leaving, notes = leaving_scores(self.policy.allow.scores, request.split, rows, cases, notes)
        response = ScoreResponse(
            number=request.number, split=request.split, rows=leaving, notes=notes
        )
        return Payload(responding(response)), {"notes": notes, "bare": "scores"}

    def _sent(self, payload: Payload, request: Request, facts: Mapping[str, Any]) -> bytes:
        """The payload with the site's name as it leaves, after a line in the ledger."""
        study = self.runs.study(request.study)
        run = f"{study.name}, {study.method[0].title}, seed {study.seeds[0]}"
        numbers = payload.header.get("message", {}).get("numbers", {})
        named = replace(payload, header={"site": self.site.name, **payload.header})
        data = self.ledger.add(named, {"run": run, **facts, "numbers": numbers})
        where = f"round {facts['round']}, {facts['stage']}" if "round" in facts else facts["stage"]
        log.info("%s, %s: %.3f MB leave", run, where, len(data) / 1e6)
        return data

    def _run(self, request: VisitRequest) -> tuple[SiteRun, SiteInfo]:
        sites = tuple(SiteInfo(*each) for each in request.sites)
        info = next((each for each in sites if each.name == self.site.name), None)
        run = self.runs.open(request.study, sites)
        kind, images = run.data.kind, len(run.data.train)
        if info is None or (info.kind, info.train) != (kind, images):
            raise PayloadError(
                f"the server takes site {self.site.name} for another one than it is: it has "
                f"{images} training cases with labels of the kind {kind}"
            )
        self._check(run.run.study, images, run.runner)
        return run, info

    def _check(self, study: Study, cases: int, runner: SiteRunner) -> None:
        discloses = any(stage.discloses for stage in runner.assignment.stages)
        shown = any(stage.from_images for stage in runner.assignment.stages)
        needed = runner.assignment.method.predicts_with(runner.net) if discloses else frozenset()
        leaving = needed.union(*map(runner.shared_in, runner.assignment.stages))
        self.policy.check_study(study, cases, leaving, discloses=discloses, from_images=shown)

    def _state(
        self, run: SiteRun, request: VisitRequest
    ) -> tuple[SiteState | None, dict[str, str] | None]:
        """The state to start from, and what is noted about it; None before the first visit."""
        if request.reads == NO_STATE:
            return None, None
        present = run.states.rounds(self.site.name)
        if request.reads in present:
            try:
                state, note = run.states.read(self.site.name, request.reads)
            except DamagedFile as error:
                raise StateMismatch(f"{error}. {STATE_ADVICE}") from error
            if note.get("run") == request.run:
                if note.get("study") != study_hash(request.study):
                    raise StateMismatch(
                        "the settings of the study are not those with which the state began. "
                        "Bring them back, or start the study with --fresh"
                    )
                return state, note
        raise StateMismatch(
            f"site {self.site.name} does not have the state that the server believes in (version "
            f"{request.reads}; it has {', '.join(map(str, present)) or 'none'}): its state folder "
            f"was lost or replaced. {STATE_ADVICE}"
        )
