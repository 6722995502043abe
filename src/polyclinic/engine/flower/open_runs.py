"""The runs that a site has at hand: their settings, its data, and the network to work with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from shutil import rmtree

from polyclinic.config import SiteSettings, Study, Tables, read_study
from polyclinic.config.node_file import NodeFile
from polyclinic.config.reading import read_toml
from polyclinic.data.cases import SiteData
from polyclinic.data.load import load_federation
from polyclinic.engine.devices import device_of
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.order import study_hash
from polyclinic.engine.flower.policy import Policy
from polyclinic.engine.flower.protocol import NO_STATE, RunRequest, VisitRequest
from polyclinic.engine.flower.scrubbing import DataRefusal
from polyclinic.engine.run import Run, assignment_of, runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState, StateFolder
from polyclinic.engine.tensors import DamagedFile
from polyclinic.runs import SiteInfo, write_atomic

ADVICE = "Bring it back from a backup, or start the study with --fresh"


class StateMismatch(ValueError):
    """The server believes in a state that this site does not have."""

    refuses = "state"


@dataclass(frozen=True)
class SiteRun:
    """A run as this site sees it, its data, and the network to work with."""

    run: Run
    data: SiteData
    runner: SiteRunner

    def states(self, token: str) -> StateFolder:
        """Where this site's states lie; a second coordinator of the same run has its own."""
        return StateFolder(self.run.folder.path / "states" / _folder_of(token))

    def state_to_start(
        self, request: VisitRequest, study: str
    ) -> tuple[SiteState | None, dict[str, str] | None]:
        """The state that the server believes in, and what is noted about it; None at first.

        `study` is the hash of the study that the request is of.
        """
        if request.reads == NO_STATE:
            return None, None
        site, states = self.data.name, self.states(request.run)
        present = states.rounds(site)
        if request.reads in present:
            try:
                state, note = states.read(site, request.reads)
            except DamagedFile as error:
                raise StateMismatch(f"{error}. {ADVICE}") from error
            if note.get("run") == request.run:
                if note.get("study") != study:
                    raise StateMismatch(
                        "the settings of the study are not those with which the state began. "
                        "Bring them back, or start the study with --fresh"
                    )
                return state, note
        raise StateMismatch(
            f"site {site} does not have the state that the server believes in (version "
            f"{request.reads}; it has {', '.join(map(str, present)) or 'none'}): its state folder "
            f"was lost or replaced. {ADVICE}"
        )

    def forget_others(self, token: str) -> None:
        """Remove the states of all runs but this one and the latest other one."""
        folders = [f for f in (self.run.folder.path / "states").glob("*") if f.is_dir()]
        others = [folder for folder in folders if folder.name != _folder_of(token)]
        for folder in sorted(others, key=lambda each: each.stat().st_mtime_ns)[:-1]:
            rmtree(folder)


def _folder_of(token: str) -> str:
    return sha256(token.encode()).hexdigest()[:16]


class OpenRuns:
    """Studies, data and networks by the text of the study; the latest few stay in memory.

    A study can name what is in the tables, but never a file of this machine.
    """

    def __init__(self, site: NodeFile, tables: Tables, policy: Policy) -> None:
        self.site, self.policy = site, policy
        self.tables = replace(tables, open_file=None)
        self.device = device_of(site.device, "device")
        self.study = lru_cache(maxsize=4)(self._read_study)
        self.data = lru_cache(maxsize=2)(self._read_data)
        self._opened: tuple[object, SiteRun] | None = None  # of the latest request

    def kind(self, text: str) -> str:
        """The kind of labels that site or study name; without a word, masks."""
        return self._wish(text).labels or "mask"

    def hash(self, text: str) -> str:
        """What the study is known by here."""
        return study_hash(text, self.study(text).packages)

    def runs(self, text: str) -> list[Run]:
        """All runs of a study."""
        return runs_of(self.study(text), self.site.state / "runs")

    def run(self, request: RunRequest) -> Run:
        """The run that a request is of; PayloadError where the study has none such."""
        for run in self.runs(request.study):
            if (run.choice.title, run.seed) == (request.method, request.seed):
                return run
        raise PayloadError("the study has no run of this method with this seed")

    def untaught(self, run: Run, sites: tuple[SiteInfo, ...]) -> SiteRunner:
        """The network of a run with these sites, without a look at any data or a step of training.

        Its weights may be others than those that the run starts from.
        """
        assignment = assignment_of(run, sites)
        training = assignment.training.model_copy(update={"pretrain": "none"})
        return SiteRunner(replace(assignment, training=training), self.device)

    def open(self, request: RunRequest, labels: str, train: int) -> SiteRun:
        """The run of a request, at a site with such labels and so many training cases.

        Limits are checked before the network is trained to start from, which takes time.
        """
        asked = (request.study, request.method, request.seed)
        if self._opened is None or self._opened[0] != (asked, request.sites, labels, train):
            run = self.run(request)
            sites = self.sites(request.sites, labels, train)
            self.policy.check_run(run.study, train, self.untaught(run, sites))
            runner = SiteRunner(assignment_of(run, sites), self.device)
            opened = SiteRun(run, self.data(request.study, run.choice.labels), runner)
            self._opened = (asked, request.sites, labels, train), opened
        return self._opened[1]

    def sites(self, names: Sequence[str], labels: str, train: int) -> tuple[SiteInfo, ...]:
        """The sites of a study as this one knows them: of the others, only that they are there."""
        own = self.site.name
        return tuple(
            SiteInfo(name, place, labels, train if name == own else 0)
            for place, name in enumerate(names)
        )

    def _read_study(self, text: str) -> Study:
        """The settings of a run, which a reader at the site finds in its state folder too."""
        file = self.site.state / "study.toml"
        write_atomic(file, text)
        # A whole study: the site follows no base, which would be a file of its own.
        study = read_study(read_toml(file), self.tables, source=file, beside=file.parent)
        wanted = study.network.pretrained
        if wanted is None:
            return study
        network = study.network.model_copy(update={"pretrained": self.policy.weights(wanted.name)})
        return study.model_copy(update={"network": network})

    def _wish(self, text: str) -> SiteSettings:
        """What the study says of this site, with the site's own kind of labels and folder."""
        name = self.site.name
        sites = self.study(text).site
        wish = next((each for each in sites if each.name == name), SiteSettings(name=name))
        kinds = [*dict.fromkeys(filter(None, (self.site.labels, wish.labels)))]
        if len(kinds) > 1:
            raise PayloadError(
                f"the study wants site {name} to train on {kinds[1]}, "
                f"but its own settings say {kinds[0]}"
            )
        own = {"folder": self.site.data, "labels": next(iter(kinds), None)}
        return wish.model_copy(update=own)

    def _read_data(self, text: str, labels: str | None) -> SiteData:
        study, wish = self.study(text), self._wish(text)
        try:
            (data,) = load_federation(
                study.task.built,
                study.data,
                [wish],
                labels=labels,
                splits_folder=self.site.state / "splits",
            )
        except Exception as error:
            raise DataRefusal(str(error)) from error
        return data
