"""The engine across hospitals: the coordinator's side of every run, over any link to sites."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch

from polyclinic.config import EngineSettings, Study, to_toml
from polyclinic.data.synthetic import federation
from polyclinic.engine.devices import threads_of
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.protocol import (
    GreetingRequest,
    GreetingResponse,
    check_about,
    read_response,
    requesting,
)
from polyclinic.engine.flower.sites import FlowerSites
from polyclinic.engine.flower.transport import Failure, Link, Transport
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import Assignment, Run, assignment_of, runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.study import refuse_no_validation, refuse_unsuitable
from polyclinic.networks.pretrained import fingerprint
from polyclinic.runs import RunError, SiteInfo, slug
from polyclinic.runs.files import plain


class FlowerEngine:
    """Runs a study with the sites that a link reaches, each at its own machine.

    Only where that is `insecure` are machines believed that say which site they are without a key
    to prove it.
    """

    def __init__(
        self,
        study: Study,
        link: Link,
        *,
        insecure: bool = False,
        threads: int | None = None,
    ) -> None:
        introduction = _greeting(runs_of(study, Path())[0]) if insecure else None
        self.transport = Transport(link, study.engine, introduction)
        self.threads = threads_of(threads or 0)
        self.present: dict[tuple[str, int | None], list[SiteInfo]] = {}  # by method and fold

    def prepare(self, runs: Sequence[Run]) -> None:
        """Let every site agree to every method."""
        prepare_process(self.threads)
        for run in runs:
            refuse_impossible(run.study)
        for run in runs:
            if (run.choice.title, run.fold) not in self.present:
                self.present[run.choice.title, run.fold] = greet(run, self.transport)
        refuse_unsuitable({run.choice.title: self._assignment(run) for run in runs})

    @contextmanager
    def open(self, run: Run) -> Iterator[FlowerSites]:
        """The sites of one run."""
        runner = SiteRunner(self._assignment(run), torch.device("cpu"))
        study = travelling(run.study)
        cross = run.study.evaluation.cross_site
        yield FlowerSites(
            runner, self.transport, run.folder.path, study, self.threads, cross_site=cross
        )

    def _assignment(self, run: Run) -> Assignment:
        return assignment_of(run, self.present[run.choice.title, run.fold])


def site_names(study: Study) -> list[str]:
    """The sites that take part, by the names that their own files must give them.

    Nobody here knows of others than those that the study names.
    """
    if study.data.only:
        return list(study.data.only)
    if study.site:
        return [site.name for site in study.site]
    if study.data.folder is None:
        return [site.name for site in federation(study.task.built.name, study.data.federation)]
    raise RunError("across hospitals a study lists its sites: one [[site]] with a name for each")


def refuse_impossible(study: Study) -> None:
    """Raise an error for what needs the images of all sites, or code of this machine."""
    if study.files:
        raise RunError(
            f"{', '.join(study.files)}: a file of this machine, and across hospitals only "
            "installed code runs; make it a package, or use polyclinic run"
        )
    together = [each.title for each in study.method if not each.built.predicts_alone()]
    if study.evaluation.cross_site and together:
        raise RunError(
            f"with {', '.join(together)} a site predicts with the models of all sites, so there "
            "are no models to compare; leave evaluation.cross_site out, or the method"
        )
    pooling = [each.title for each in study.method if each.built.pools]
    if pooling:
        raise RunError(
            f"{', '.join(pooling)} trains on the images of all sites together, which no engine "
            "across hospitals can do; leave it out, or compare with a run of polyclinic run"
        )


def travelling(study: Study) -> str:
    """The settings of a run as they go to the sites: no folder, nothing of the coordinator's."""
    data = study.data.model_copy(update={"source": "synthetic", "size": 1.0})
    sites = tuple(site.model_copy(update={"folder": None}) for site in study.site)
    network, file = study.network, study.network.pretrained
    if file:
        network = network.model_copy(update={"pretrained": Path(fingerprint(file))})
    plain = {"data": data, "site": sites, "engine": EngineSettings(), "network": network}
    return to_toml(study.model_copy(update=plain))


def greet(run: Run, transport: Transport) -> list[SiteInfo]:
    """What each site has, once it has agreed to the run; an error names all that have not.

    A site that a resumed run knows may be away for the moment.
    """
    names = site_names(run.study)
    known: dict[str, SiteInfo] = {}
    with suppress(RunError):  # where nothing can be read of the run, no site may be away
        known = {site.name: site for site in run.folder.about().sites}
    patience = None if set(names) <= set(known) else transport.settings.deadline
    replies = dict(transport.exchange(dict.fromkeys(names, _greeting(run)), patience=patience))
    present, refusals = {}, {}
    for name in names:
        try:
            present[name] = _greeted(name, replies[name], run.study.packages)
        except PayloadError as error:
            refusals[name] = str(error)
    away = {name: known[name] for name in refusals if name in known}
    if len(away) < len(refusals) or len(present) < transport.settings.quorum * len(names):
        lines = [f"  {name}: {reason}" for name, reason in refusals.items()]
        raise RunError("\n".join(["the study cannot begin, because of these sites:", *lines]))
    if not away:
        scorable = sum(each.scorable for each in present.values())
        refuse_no_validation(run.study, scorable, sum(each.about.val for each in present.values()))
    found = {name: response.about for name, response in present.items()} | away
    return [replace(found[name], index=index) for index, name in enumerate(names)]


def events_file(root: Path, study: Study) -> Path:
    """Where the events of a hosted study are written for whoever follows it."""
    return root / slug(study.name) / "events.jsonl"


def _greeting(run: Run) -> bytes:
    request = GreetingRequest(study=travelling(run.study), run="")
    return Payload(requesting(request)).to_bytes()


def _greeted(site: str, reply: bytes | Failure, packages: Mapping[str, str]) -> GreetingResponse:
    response, _ = read_response(GreetingResponse, site, reply, most=0)
    theirs = {"Polyclinic": response.version, **response.packages}
    for package, here in {"Polyclinic": version("polyclinic"), **packages}.items():
        if theirs.get(package) != here:
            there = plain(str(theirs.get(package)))
            raise PayloadError(f"it runs {package} {there}, and the coordinator {here}")
    check_about(site, response.about)
    return response
