"""The work at sites on this machine, in whichever process it is done."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from polyclinic.data.cases import SiteData
from polyclinic.engine.pictures import draw_pictures, look_inside
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.sites import Reply, Scored
from polyclinic.engine.states import SiteState, StateFolder
from polyclinic.engine.tensors import DamagedFile
from polyclinic.federation.message import Message
from polyclinic.federation.scoring import seconds_an_image
from polyclinic.runs import RoundLine, RunFolder, SiteInfo


@dataclass(frozen=True)
class LocalWorker:
    """One process's runner with the sites' data and the folder of their states."""

    runner: SiteRunner
    data: Mapping[str, SiteData]
    run: RunFolder
    states: StateFolder
    pictures: bool

    def work(self, info: SiteInfo, stage: str, message: Message, number: int, since: int) -> Reply:
        """A visit to a site, whose state is read before and written after it."""
        data, state = self.data[info.name], self._state(info, since)
        work = self.runner.assignment.stage(stage)
        visit = self.runner.visit(info, data, work, message, state, number)
        self.states.save(info.name, number, visit.state, {"round": str(number), "stage": stage})
        line = RoundLine(
            round=number,
            stage=stage,
            site=info.name,
            loss=visit.loss,
            seconds=visit.seconds,
            images=visit.images,
            down=message.nbytes,
            up=visit.reply.nbytes,
            extras=tuple(sorted({*message.extras, *visit.reply.extras})),
            numbers=dict(visit.reply.numbers),
            parts=visit.reply.bytes_by_part(),
        )
        return Reply(visit.reply, line)

    def score(
        self, info: SiteInfo, scoring: Scoring, message: Message | None, since: int
    ) -> Scored:
        """Scores of a site's model; the final ones come with pictures."""
        data, state = self.data[info.name], self._state(info, since)
        assignment = self.runner.assignment
        rows, cases, predicted, notes = self.runner.score(info, data, scoring, message, state)
        if self.pictures and scoring.split == "test" and scoring.model == "shared":
            draw_pictures(self.run, info.name, assignment.task, cases, predicted, rows)
            model_of = partial(self.states.load, since=since)
            look_inside(self.run, self.runner, info, cases, self.data, model_of)
        predicting = None
        if scoring.split == "test" and len(cases):
            site = self.runner.opened(info, data, state)
            predicting = seconds_an_image(site, assignment.method, cases)
        return replace(Scored.of(scoring, info.name, rows, notes), predicting=predicting)

    def _state(self, info: SiteInfo, since: int) -> SiteState | None:
        try:
            return self.states.load(info.name, since)
        except DamagedFile as error:
            newest = max((self.run.path / "checkpoint" / "server").iterdir())
            raise DamagedFile(
                f"{error}; bring it back from a backup, or remove {newest}: the run then goes on "
                "from the round before"
            ) from error
