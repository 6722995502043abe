"""Hosting a study: the coordinator's side of every run, over any link to the sites."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

from polyclinic.config import EngineSettings, Study, to_toml
from polyclinic.data.synthetic import federation
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.link import Failure, Link
from polyclinic.engine.flower.protocol import (
    GreetingRequest,
    GreetingResponse,
    check_about,
    open_response,
    read_response,
    requesting,
)
from polyclinic.engine.flower.sites import FlowerSites
from polyclinic.engine.flower.transport import Transport
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.local import prepare
from polyclinic.engine.loop import Event
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.study import (
    Run,
    Watch,
    about,
    assignment_of,
    conduct,
    do_runs,
    refuse_mistaken_runs,
    refuse_no_validation,
    runs_of,
)
from polyclinic.methods import METHODS
from polyclinic.runs import AboutSite, RunError, slug
from polyclinic.runs.texts import plain


def host_study(
    study: Study,
    root: Path,
    link: Link,
    *,
    resume: bool = False,
    fresh: bool = False,
    insecure: bool = False,
    threads: int = os.cpu_count() or 1,
    watch: Watch,
) -> list[Run]:
    """Do all runs of a study that are not finished, with the sites that the link reaches.

    Before anything is trained every site has agreed to every method. Only where that is `insecure`
    are machines believed that say which site they are without a key to prove it.
    """
    refuse_impossible(study)
    runs = runs_of(study, root)
    if not fresh:
        refuse_mistaken_runs(runs, resume=resume)
    prepare(threads)
    transport = Transport(link, study.engine, _greeting(runs[0]) if insecure else None)
    left = [run for run in runs if fresh or not run.folder.finished]
    present = {
        title: greet(next(run for run in left if run.choice.title == title), transport)
        for title in dict.fromkeys(run.choice.title for run in left)
    }

    def performing(run: Run) -> Iterator[Event]:
        sites = present[run.choice.title]
        runner = SiteRunner(assignment_of(run, sites), torch.device("cpu"))
        remote = FlowerSites(runner, transport, run.folder.path, travelling(run.study))
        yield from conduct(run, runner, remote, about(run, sites, runner, threads))

    do_runs(runs, performing, fresh=fresh, watch=watch)
    return runs


def site_names(study: Study) -> list[str]:
    """The sites that take part, by the names that their own files must give them."""
    if study.site:
        return [site.name for site in study.site]
    if study.data.folder is None:
        return [site.name for site in federation(study.task.name)]
    raise RunError("across hospitals a study lists its sites: one [[site]] with a name for each")


def refuse_impossible(study: Study) -> None:
    """Raise an error for what needs the images of all sites, or one file, at every site."""
    if study.network.pretrained is not None:
        raise RunError(
            "network.pretrained is a file of this machine, and across hospitals every site begins "
            "with weights of its own from the seed; leave it out, or use polyclinic run"
        )
    pooling = [each.title for each in study.method if METHODS[each.name].pools]
    if pooling:
        raise RunError(
            f"{', '.join(pooling)} trains on the images of all sites together, which no engine "
            "across hospitals can do; leave it out, or compare with a run of polyclinic run"
        )


def travelling(study: Study) -> str:
    """The settings of a run as they go to the sites: no folder, nothing of the coordinator's."""
    data = study.data.model_copy(update={"source": "synthetic", "size": 1.0})
    sites = tuple(site.model_copy(update={"folder": None}) for site in study.site)
    plain = {"data": data, "site": sites, "engine": EngineSettings()}
    return to_toml(study.model_copy(update=plain))


def greet(run: Run, transport: Transport) -> list[AboutSite]:
    """What each site has, once it has agreed to the run; an error names all that have not.

    A site that a resumed run knows may be away for the moment.
    """
    names = site_names(run.study)
    known: dict[str, AboutSite] = {}
    with suppress(RunError):  # where nothing can be read of the run, no site may be away
        known = {site.name: site for site in run.folder.about().sites}
    patience = None if set(names) <= set(known) else transport.settings.deadline
    replies = dict(transport.exchange(dict.fromkeys(names, _greeting(run)), patience=patience))
    present, refusals = {}, {}
    for name in names:
        try:
            present[name] = _greeted(name, replies[name])
        except PayloadError as error:
            refusals[name] = str(error)
    away = {name: known[name] for name in refusals if name in known}
    if len(away) < len(refusals) or len(present) < transport.settings.quorum * len(names):
        lines = [f"  {name}: {reason}" for name, reason in refusals.items()]
        raise RunError("\n".join(["the study cannot begin, because of these sites:", *lines]))
    if not away:
        refuse_no_validation(run.study, sum(each.scorable for each in present.values()))
    return [present[name].about if name in present else away[name] for name in names]


def events_file(root: Path, study: Study) -> Path:
    """Where the events of a hosted study are written for whoever follows it."""
    return root / slug(study.name) / "events.jsonl"


def _greeting(run: Run) -> bytes:
    request = GreetingRequest(study=travelling(run.study), run="")
    return Payload(requesting(request)).to_bytes()


def _greeted(site: str, reply: bytes | Failure) -> GreetingResponse:
    response = read_response(GreetingResponse, open_response(site, reply, most=0))
    here = version("polyclinic")
    if response.version != here:
        theirs = plain(response.version)
        raise PayloadError(f"it runs Polyclinic {theirs}, and the coordinator {here}")
    check_about(site, response.about)
    return response
