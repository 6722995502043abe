"""The runs that a site has at hand: their settings, its data, and the network to work with."""

from dataclasses import dataclass, replace
from functools import lru_cache

from polyclinic.config import SiteSettings, Study, Tables, load_study
from polyclinic.config.node_file import NodeFile
from polyclinic.data.cases import SiteData
from polyclinic.data.load import load_federation
from polyclinic.engine.devices import device_of
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.policy import Policy
from polyclinic.engine.flower.scrubbing import DataRefusal
from polyclinic.engine.run import Run, assignment_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import StateFolder
from polyclinic.runs import RunFolder, SiteInfo, run_path, write_atomic


@dataclass(frozen=True)
class SiteRun:
    """A run as this site sees it, its data, and the network to work with."""

    run: Run
    data: SiteData
    runner: SiteRunner

    @property
    def states(self) -> StateFolder:
        """Where this site's states of the run lie."""
        return StateFolder(self.run.folder.path / "states")


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
        self.open = lru_cache(maxsize=2)(self._open_run)

    def kind(self, text: str) -> str:
        """The kind of labels that site or study name; without a word, masks."""
        return self._wish(text).labels or "mask"

    def runner(self, text: str, *sites: SiteInfo) -> SiteRunner:
        """The network of a run with these sites, without a look at any data."""
        return SiteRunner(assignment_of(self._run(text), sites), self.device)

    def _open_run(self, text: str, sites: tuple[SiteInfo, ...]) -> SiteRun:
        return SiteRun(self._run(text), self.data(text), self.runner(text, *sites))

    def _run(self, text: str) -> Run:
        study = self.study(text)
        (choice,), (seed,) = study.method, study.seeds
        where = (study.name, choice.title, seed, study.data.fold)
        path = run_path(self.site.state / "runs", *where)
        return Run(choice, seed, RunFolder(path), study)

    def _read_study(self, text: str) -> Study:
        """The settings of a run, which a reader at the site finds in its state folder too."""
        file = self.site.state / "study.toml"
        write_atomic(file, text)
        study = load_study(file, [], self.tables)
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

    def _read_data(self, text: str) -> SiteData:
        study, wish = self.study(text), self._wish(text)
        (choice,) = study.method
        try:
            (data,) = load_federation(
                study.task.built,
                study.data,
                [wish],
                labels=choice.labels,
                splits_folder=self.site.state / "splits",
            )
        except Exception as error:
            raise DataRefusal(str(error)) from error
        return data
