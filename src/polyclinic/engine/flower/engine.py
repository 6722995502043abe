"""The engine across hospitals: the coordinator's side of every run, over any link to sites."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from polyclinic.config import EngineSettings, Study, to_toml
from polyclinic.data.synthetic import federation
from polyclinic.engine.devices import threads_of
from polyclinic.engine.flower.greeting import greet
from polyclinic.engine.flower.protocol import (
    IntroductionRequest,
    requesting,
)
from polyclinic.engine.flower.signing import Signed
from polyclinic.engine.flower.sites import FlowerSites
from polyclinic.engine.flower.transport import Link, Transport
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.flower.witness import Witness
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import Run, assignment_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.study import refuse_unsuitable
from polyclinic.networks.pretrained import fingerprint
from polyclinic.runs import RunError, SiteInfo, slug

log = logging.getLogger("polyclinic.server")


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
        tell: Callable[[str], None] = log.warning,
        sign: Callable[[bytes], Signed] | None = None,
    ) -> None:
        """`sign`, where given, countersigns the heads of the sites' ledgers."""
        introduction = Payload(requesting(IntroductionRequest())).to_bytes() if insecure else None
        self.study = study
        self.transport = Transport(link, study.engine, introduction)
        self.threads = threads_of(threads or 0)
        self.tell, self.sign = tell, sign
        self.witness: Witness | None = None
        self.present: dict[str, list[SiteInfo]] = {}  # by the title of a method

    def prepare(self, runs: Sequence[Run]) -> None:
        """Let every site agree to every method."""
        prepare_process(self.threads)
        refuse_grid(self.study)
        for run in runs:
            refuse_impossible(run.study)
        if not runs:
            return
        file = runs[0].folder.path.parents[1] / "ledgers.json"
        self.witness = Witness(file, self.tell, self.sign)
        self.transport.heard = self.witness.note
        for run in runs:
            if run.choice.title not in self.present:
                self.present[run.choice.title] = greet(
                    run, requests_of(self.study, run), self.transport, self.witness, self.tell
                )
        refuse_unsuitable(
            {run.choice.title: assignment_of(run, self.present[run.choice.title]) for run in runs}
        )

    @contextmanager
    def open(self, run: Run) -> Iterator[FlowerSites]:
        """The sites of one run."""
        assignment = assignment_of(run, self.present[run.choice.title])
        runner = SiteRunner(assignment, torch.device("cpu"))
        assert self.witness is not None, "prepare comes first"
        yield FlowerSites(
            runner,
            self.transport,
            run.folder.path,
            requests_of(self.study, run),
            self.witness,
            self.threads,
            cross_site=run.study.evaluation.cross_site,
        )


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


def refuse_grid(study: Study) -> None:
    """Raise an error where runs would differ in more than method and seed: sites know no more."""
    if study.sweep:
        raise RunError("across hospitals nothing is swept: make a study for each value")
    if len(study.data.each_fold) > 1:
        raise RunError("across hospitals a study has one fold: set data.fold")
    if study.data.leave_out:
        raise RunError("across hospitals no site is left out: take it out of the study")


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
    if study.evaluation.watch:
        raise RunError(
            "evaluation.watch looks at test cases after every round, which hospitals do not allow; "
            "evaluation.validation gives curves of validation cases"
        )
    pooling = [each.title for each in study.method if each.built.pools]
    if pooling:
        raise RunError(
            f"{', '.join(pooling)} trains on the images of all sites together, which no engine "
            "across hospitals can do; leave it out, or compare with a run of polyclinic run"
        )


def travelling(study: Study, site: str) -> str:
    """The settings of a study as they go to a site: no folder, and nothing of any other site."""
    data = study.data.model_copy(update={"source": "synthetic", "size": 1.0, "only": ()})
    sites = tuple(
        each.model_copy(update={"folder": None}) for each in study.site if each.name == site
    )
    network, file = study.network, study.network.pretrained
    if file:
        network = network.model_copy(update={"pretrained": Path(fingerprint(file))})
    plain = {"data": data, "site": sites, "engine": EngineSettings(), "network": network}
    return to_toml(study.model_copy(update=plain))


def requests_of(study: Study, run: Run) -> dict[str, dict[str, Any]]:
    """What every request of a run says to each site: the study, the run, and how many sites.

    Sites hear of each other under names that stand in the same order and say nothing.
    """
    names = site_names(study)
    ranks = {name: f"site-{rank:03d}" for rank, name in enumerate(sorted(names), 1)}
    return {
        site: {
            "study": travelling(study, site),
            "method": run.choice.title,
            "seed": run.seed,
            "sites": tuple(name if name == site else ranks[name] for name in names),
        }
        for site in names
    }


def events_file(root: Path, study: Study) -> Path:
    """Where the events of a hosted study are written for whoever follows it."""
    return root / slug(study.name) / "events.jsonl"
