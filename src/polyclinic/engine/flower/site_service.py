"""A site's service: checks requests, does the work, and lets out what the policy allows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch

from polyclinic.config import SiteSettings, Study, load_study
from polyclinic.config.node_file import NodeFile
from polyclinic.data.cases import SiteData, with_masks
from polyclinic.data.load import load_federation
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.payload import Payload, PayloadError
from polyclinic.engine.flower.policy import Policy, PolicyRefusal
from polyclinic.engine.flower.protocol import (
    NO_STATE,
    Hello,
    Rows,
    Score,
    Welcome,
    Work,
    Worked,
    read_ask,
)
from polyclinic.engine.flower.scrubbing import scrubbed
from polyclinic.engine.flower.wire import pack, unpack
from polyclinic.engine.local import prepare
from polyclinic.engine.models import keep_model
from polyclinic.engine.pictures import draw_pictures
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState, StateFolder
from polyclinic.engine.study import TABLES, Run, about_site, assignment_of, device_of, task_of
from polyclinic.federation.message import Message
from polyclinic.federation.server import SiteInfo
from polyclinic.runs import AboutSite, RunFolder, run_path, write_atomic

log = logging.getLogger("polyclinic.site")


class StateMismatch(ValueError):
    """The server believes in a state that this site does not have."""


@dataclass(frozen=True)
class Case:
    """A run as this site sees it: settings, folder, data, and the network to work with."""

    study: Study
    folder: RunFolder
    data: SiteData
    runner: SiteRunner

    @property
    def states(self) -> StateFolder:
        """Where this site's states of the run lie."""
        return StateFolder(self.folder.path / "states")


class SiteService:
    """Everything that one site does for the federation, with data and network kept in memory."""

    def __init__(self, site: NodeFile) -> None:
        self.site = site
        self.ledger = Ledger(site.state / "ledger.jsonl")
        self.policy = Policy(site.allow, site.privacy, self.ledger)
        self.device = torch.device(device_of(site.device))
        self._study = lru_cache(maxsize=4)(self._read_study)
        self._data = lru_cache(maxsize=2)(self._read_data)
        self._open = lru_cache(maxsize=2)(self._open_run)
        self._latest: tuple[Payload, Payload] | None = None  # the last work, and its answer
        prepare(site.threads or torch.get_num_threads())

    def answer(self, payload: Payload) -> Payload:
        """The answer to a payload; an error becomes a refusal without paths or case names."""
        try:
            return self._answer(payload)
        except Exception as error:
            log.exception("refused")
            text = (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            return Payload({"site": self.site.name, "refused": scrubbed(text, self.site)})

    def _answer(self, payload: Payload) -> Payload:
        if payload.nbytes > self.policy.largest:
            raise PayloadError(
                f"a message of {payload.nbytes / 2**20:.0f} MB is larger than the "
                f"{self.site.allow.message_megabytes:g} MB that this site allows"
            )
        ask = read_ask(payload.about.get("ask"))
        if isinstance(ask, Hello):
            return self._welcome(ask)
        if isinstance(ask, Work):
            return self._work(ask, payload)
        return self._score(ask, unpack(payload) if ask.finalize else None)

    def _welcome(self, ask: Hello) -> Payload:
        study = self._study(ask.study)
        data = self._data(ask.study)
        about = about_site(data)
        runner = self._open(ask.study, (about,)).runner
        self._check(study, len(data.train), runner)
        scorable = len(with_masks(data.val))
        welcome = Welcome(about=about, scorable=scorable, version=version("polyclinic"))
        return self._sent(Payload({"answer": welcome.model_dump()}), ask, {"stage": "hello"})

    def _work(self, ask: Work, asked: Payload) -> Payload:
        facts: dict[str, Any] = {"round": ask.number, "stage": ask.stage}
        if self._latest is not None and self._latest[0] == asked:
            # The answer got lost on its way: the same leaves once more, with the same noise.
            return self._sent(self._latest[1], ask, {**facts, "again": True})
        message = unpack(asked)
        case, info = self._case(ask)
        state = self._state(case, ask)
        case.states.keep_only(info.name, [*ask.keep, ask.reads])
        stage = case.runner.assignment.stage(ask.stage)
        visit = case.runner.visit(info, case.data, stage, message, state, ask.number)
        self.policy.check_message(visit.reply)
        reply, noise = self.policy.blurred(visit.reply, message.weights)
        note = {"run": ask.run, "round": str(ask.number), "stage": ask.stage}
        case.states.save(info.name, ask.writes, visit.state, note)
        worked = Worked(
            number=ask.number,
            stage=ask.stage,
            loss=visit.loss,
            seconds=visit.seconds,
            images=visit.images,
        )
        payload = pack(reply, ask.encoding, message.weights)
        payload.about["answer"] = worked.model_dump()
        log.info("trained for %.1f seconds with a mean loss of %.3f", visit.seconds, visit.loss)
        self._latest = asked, payload
        return self._sent(payload, ask, {**facts, **noise})

    def _score(self, ask: Score, message: Message | None) -> Payload:
        case, info = self._case(ask)
        state = self._state(case, ask)
        rows, cases, predicted = case.runner.score(
            info, case.data, ask.split, ask.metrics, message, state, ask.number
        )
        if ask.split == "test" and state is not None:
            (choice,) = case.study.method
            keep_model(case.folder, info.name, choice.title, state, case.runner.assignment)
            if case.study.evaluation.pictures:
                task = case.runner.assignment.task
                draw_pictures(case.folder, info.name, task, cases, predicted, rows)
        # A case's name may be a patient's number, so only its place among the cases leaves.
        aliases = {name: f"{ask.split} {place}" for place, name in enumerate(cases.names, 1)}
        leaving = tuple((aliases[row.case], row.region, row.metric, row.value) for row in rows)
        answer = Rows(number=ask.number, split=ask.split, rows=leaving)
        payload = Payload({"answer": answer.model_dump()})
        return self._sent(payload, ask, {"round": ask.number, "stage": f"score {ask.split}"})

    def _sent(
        self, payload: Payload, ask: Hello | Work | Score, facts: Mapping[str, Any]
    ) -> Payload:
        """The payload with the site's name, after a line in the ledger."""
        study = self._study(ask.study)
        (choice,) = study.method
        run = f"{study.name}, {choice.title}, seed {study.seeds[0]}"
        numbers = payload.about.get("message", {}).get("numbers", {})
        self.ledger.add(payload, {"run": run, **facts, "numbers": numbers})
        where = f"round {facts['round']}, {facts['stage']}" if "round" in facts else facts["stage"]
        log.info("%s, %s: %.3f MB leave", run, where, payload.nbytes / 1e6)
        return replace(payload, about={"site": self.site.name, **payload.about})

    def _case(self, ask: Work | Score) -> tuple[Case, SiteInfo]:
        infos = [SiteInfo(*each) for each in ask.sites]
        sites = tuple(
            AboutSite(name=info.name, kind=info.kind, train=info.images, val=0, test=0)
            for info in infos
        )
        info = next((each for each in infos if each.name == self.site.name), None)
        case = self._open(ask.study, sites)
        own = (case.data.kind, len(case.data.train))
        if info is None or (info.kind, info.images) != own:
            raise PayloadError(
                f"the server takes site {self.site.name} for another one than it is: it has "
                f"{own[1]} training cases with labels of the kind {own[0]}"
            )
        self._check(case.study, own[1], case.runner)
        return case, info

    def _check(self, study: Study, cases: int, runner: SiteRunner) -> None:
        discloses = any(stage.discloses for stage in runner.assignment.stages)
        shown = any(stage.from_images for stage in runner.assignment.stages)
        needed = runner.assignment.method.predicts_with(runner.net) if discloses else frozenset()
        leaving = runner.shared | needed
        self.policy.check_study(study, cases, leaving, discloses=discloses, from_images=shown)

    def _state(self, case: Case, ask: Work | Score) -> SiteState | None:
        if ask.reads == NO_STATE:
            return None
        present = case.states.rounds(self.site.name)
        if ask.reads in present:
            state, note = case.states.read(self.site.name, ask.reads)
            if note.get("run") == ask.run:
                return state
        raise StateMismatch(
            f"site {self.site.name} does not have the state that the server believes in (version "
            f"{ask.reads}; it has {', '.join(map(str, present)) or 'none'}): its state folder was "
            "lost or replaced. Bring it back from a backup, or start the study with --fresh"
        )

    def _open_run(self, text: str, sites: tuple[AboutSite, ...]) -> Case:
        study = self._study(text)
        (choice,), (seed,) = study.method, study.seeds
        path = run_path(self.site.state / "runs", study.name, choice.title, seed)
        run = Run(choice, seed, RunFolder(path), study)
        runner = SiteRunner(assignment_of(run, sites), self.device)
        return Case(study, run.folder, self._data(text), runner)

    def _read_study(self, text: str) -> Study:
        """The settings of a run, which a reader at the site finds in its state folder too."""
        file = self.site.state / "study.toml"
        write_atomic(file, text)
        study = load_study(file, [], TABLES)
        if study.network.pretrained is not None:
            raise PolicyRefusal(
                "network.pretrained names a file, and a site opens none for a study"
            )
        return study

    def _read_data(self, text: str) -> SiteData:
        study = self._study(text)
        (choice,) = study.method
        wishes = {each.name: each.labels for each in study.site}
        kinds = list(dict.fromkeys(_given(self.site.labels, wishes.get(self.site.name))))
        if len(kinds) > 1:
            raise PayloadError(
                f"the study wants site {self.site.name} to train on {kinds[1]}, "
                f"but its own settings say {kinds[0]}"
            )
        place = SiteSettings(
            name=self.site.name, folder=self.site.data, labels=kinds[0] if kinds else None
        )
        (data,) = load_federation(
            task_of(study),
            study.data,
            [place],
            labels=choice.labels,
            splits_folder=self.site.state / "splits",
        )
        return data


def _given(*values: str | None) -> Iterable[str]:
    return [value for value in values if value is not None]
