"""A site that took no part: what the models of a run are worth to it.

It tries every site's model, all of them together, the shared model, also with statistics of its
own, the method's own way to predict outside where it has one, and what it trains itself: what is
private, and all but the encoder. Sites' models lie together only where the local engine ran.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyclinic.config import Tables
from polyclinic.data.cases import Batch, Cases, SiteData
from polyclinic.engine.run import Run, assignment_of, run_in, site_info
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import read_state
from polyclinic.federation.estimating import reestimate
from polyclinic.federation.message import Message
from polyclinic.federation.method import plain_loss
from polyclinic.federation.mixing import mix
from polyclinic.federation.scoring import predictions, rows_of
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.contract import likeliest
from polyclinic.networks.parts import BATCH_NORMS, Names, everything, parameters, statistics
from polyclinic.runs import (
    DECODER,
    ENSEMBLE,
    REESTIMATED,
    ROUTED,
    SHARED,
    TUNED,
    GuestScore,
    RunError,
    RunFolder,
    write_guests,
)


def try_models(
    run: Run, data: SiteData, device: torch.device, *, iterations: int | None = None
) -> list[GuestScore]:
    """Score a finished run's models on the site's test cases; the run folder keeps the scores.

    What the site trains is trained for `iterations`, by default as long as a site of the run was.
    """
    runner = SiteRunner(assignment_of(run, run.folder.about().sites), device)
    server, _ = read_state(run.folder.weights_path("server"))
    rows = score_unseen(run.folder, runner, data, server.weights, iterations)
    if not rows:
        raise RunError(f"site {data.name} has no test cases with masks to try models on")
    return rows


def score_unseen(
    run: RunFolder,
    runner: SiteRunner,
    data: SiteData,
    server: Mapping[str, Tensor],
    iterations: int | None = None,
) -> list[GuestScore]:
    """The same for a run whose sites' models are in its folder; nothing without test cases."""
    task, metrics = runner.assignment.task, runner.assignment.metrics
    cases = data.scorable("test", task.regions)
    if not len(cases):
        return []
    rows = [
        GuestScore(model, data.name, *row)
        for model, predicted in _Guest(run, runner, data, cases, server, iterations).predictions()
        for row in rows_of(predicted, cases, data, task, list(metrics), metrics)
    ]
    write_guests(run, rows, unseen=data.name)
    return rows


def finished_run(folder: RunFolder, tables: Tables) -> Run:
    """The run in a folder, with all its sites' models."""
    run = run_in(folder, tables)
    missing = [s.name for s in folder.about().sites if not folder.weights_path(s.name).exists()]
    if missing:
        raise RunError(
            f"{folder.path} lacks the models of {', '.join(missing)}: across hospitals they stay "
            "at the sites, so a site that took no part cannot try them"
        )
    return run


def tune(site: Site, names: Names, iterations: int | None = None) -> None:
    """Train these weights on the site's own cases, all others at rest."""
    others = everything(site.net) - names

    def loss(site: Site, batch: Batch) -> Tensor:
        rest(site.net, others)
        return plain_loss(site, batch)

    steps = site.rounds * site.steps if iterations is None else iterations
    alone = replace(site, round=1, rounds=1)
    alone.fit(loss, only=names & parameters(site.net), steps=steps, stream="tune")


def rest(net: nn.Module, names: Names) -> None:
    """Let the norm layers with these statistics use and keep them, as when predicting."""
    for path, module in net.named_modules():
        if isinstance(module, BATCH_NORMS) and f"{path}.running_mean" in names:
            module.eval()


class _Guest:
    """A site at which the models of a run are tried."""

    def __init__(
        self,
        run: RunFolder,
        runner: SiteRunner,
        data: SiteData,
        cases: Cases,
        server: Mapping[str, Tensor],
        iterations: int | None,
    ) -> None:
        self.run, self.runner, self.data, self.cases = run, runner, data, cases
        self.message = Message(Weights.pack(server))
        self.iterations = iterations
        self.method = runner.assignment.method
        self.reestimates = runner.assignment.reestimates
        net, shared = runner.net, self.message.weights.names
        self.heard = self.method.predicts_with(net)
        learned = parameters(net) | statistics(net)  # others tell which site this is
        self.tuned = self.method.tuned_outside(net, shared) & learned
        self.private = self.tuned - shared

    def predictions(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """The classes that each model predicts; probabilities are added up on the way."""
        models, total = {}, torch.zeros(())
        for info in self.runner.assignment.sites:
            state, _ = read_state(self.run.weights_path(info.name))
            site = self.runner.opened(info, self.data, state)
            with self.method.in_use(site):
                if self.reestimates:
                    reestimate(self.method, site)
                models[info.name] = site.weights.copy()
                found = self.probabilities(site)
            total = total + found
            yield info.name, likeliest(found).numpy()
        yield ENSEMBLE, likeliest(total / len(models)).numpy()
        net = self.runner.net
        if not self.private:
            yield SHARED, self.classes(self.opened())
        if not self.private & parameters(net) and statistics(net):
            site = self.opened()
            reestimate(self.method, site)
            yield REESTIMATED, self.classes(site)
        if routed := self.method.outside(self.opened(), models):
            yield ROUTED, self.classes(routed)
        if self.tuned & parameters(net):
            yield TUNED, self.classes(self.trained(self.tuned, {}))
        encoder = frozenset(name for name in self.heard if "encoder" in name.split("."))
        yield DECODER, self.classes(self.trained(self.heard - encoder, models))

    def opened(self) -> Site:
        """The site with the shared weights; what is private is as it was before the run."""
        info = site_info(self.data, self.runner.assignment.task)
        site = self.runner.opened(info, self.data, None)
        site.message = self.message
        site.load(self.message.weights)
        return site

    def trained(self, names: Names, models: Mapping[str, Weights]) -> Site:
        """The site after training these weights, the private ones from the mean of the models."""
        site = self.opened()
        if models and self.private:
            private = {owner: model.pick(self.private) for owner, model in models.items()}
            site.load(mix(private, [1 / len(models)] * len(models)))
        tune(site, names, self.iterations)
        if self.reestimates:
            reestimate(self.method, site)
        return site

    def classes(self, site: Site) -> NDArray[np.uint8]:
        """The class of each pixel of the test cases."""
        return likeliest(self.probabilities(site)).numpy()

    def probabilities(self, site: Site) -> Tensor:
        """Those of the test cases."""
        return torch.cat([batch.cpu() for batch in predictions(self.method, site, self.cases)])
