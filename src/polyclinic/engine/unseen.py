"""A site that took no part: what the models of a finished run are worth to it.

It tries every site's model, all of them together, the method's own way to predict outside where it
has one, and the shared weights with a private part that it trains on its own cases. Sites' models
lie together only where the local engine ran.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyclinic.config import Tables, load_study
from polyclinic.data.cases import Batch, Cases, SiteData
from polyclinic.engine.run import Run, assignment_of, site_info
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import read_state
from polyclinic.evaluation.scoring import numbered, score_cases
from polyclinic.federation.estimating import reestimate
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, plain_loss
from polyclinic.federation.scoring import predictions
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.contract import likeliest
from polyclinic.networks.parts import BATCH_NORMS, Names, parameters, statistics
from polyclinic.runs import RunError, RunFolder, slug

ENSEMBLE, ROUTED, TUNED = "ensemble", "routed", "tuned here"


class UnseenScore(NamedTuple):
    """One metric of one region of one of the site's test cases, by one model of the run."""

    model: str
    case: str
    region: str
    metric: str
    value: float
    patient: int


def try_models(
    run: Run, data: SiteData, device: torch.device, *, iterations: int | None = None
) -> list[UnseenScore]:
    """Score a run's models on the site's test cases, and keep the table in the run folder.

    The private part is trained for `iterations`, by default as long as a site of the run trained.
    """
    runner = SiteRunner(assignment_of(run, run.folder.about().sites), device)
    metrics = runner.assignment.metrics
    regions = runner.assignment.task.regions
    cases = data.scorable("test", regions)
    if not len(cases):
        raise RunError(f"site {data.name} has no test cases with masks to try models on")
    true, spacing = cases.masks.cpu().numpy(), cases.spacing.numpy()
    rows = [
        UnseenScore(model, *row)
        for model, predicted in _predictions(run.folder, runner, data, cases, iterations)
        for row in score_cases(
            predicted,
            true,
            cases.names,
            data.known(regions),
            spacing,
            list(metrics),
            metrics,
            numbered(cases.patients),
            () if data.mask_groups else range(len(runner.assignment.task.classes)),
        )
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([UnseenScore._fields, *rows])
    run.folder.write_atomic(f"unseen-{slug(data.name)}.csv", text.getvalue())
    return rows


def finished_run(folder: RunFolder, tables: Tables) -> Run:
    """The run in a folder, with all its sites' models."""
    if not folder.finished:
        raise RunError(f"{folder.path} is not finished: its models are not there yet")
    missing = [s.name for s in folder.about().sites if not folder.weights_path(s.name).exists()]
    if missing:
        raise RunError(
            f"{folder.path} lacks the models of {', '.join(missing)}: across hospitals they stay "
            "at the sites, so a site that took no part cannot try them"
        )
    study = load_study(folder.path / "study.toml", [], tables)
    return Run(study.method[0], study.seeds[0], folder, study)


def tune(method: Method, site: Site, iterations: int | None, *, reestimates: bool = False) -> None:
    """Train what is private and heard in predictions, with the message's weights at rest.

    Where only running statistics are private, the site's images pass by and nothing learns. Where
    the run's sites estimate their statistics anew, so does this one in the end.
    """
    _train_private(method, site, iterations, statistics_too=not reestimates)
    if reestimates:
        reestimate(method, site)


def rest(net: nn.Module, shared: Names) -> None:
    """Let the norm layers whose statistics are shared use and keep them, as when predicting."""
    for path, module in net.named_modules():
        if isinstance(module, BATCH_NORMS) and f"{path}.running_mean" in shared:
            module.eval()


def _train_private(
    method: Method, site: Site, iterations: int | None, *, statistics_too: bool
) -> None:
    shared = site.message.weights.names
    site.load(site.message.weights)
    private = method.tuned_outside(site.net, shared)
    learning = private & parameters(site.net)
    if not learning and not (statistics_too and private & statistics(site.net)):
        return

    def loss(site: Site, batch: Batch) -> Tensor:
        rest(site.net, shared)
        return plain_loss(site, batch)

    steps = site.rounds * site.steps if iterations is None else iterations
    replace(site, round=1, rounds=1).fit(
        loss,
        only=learning or None,
        steps=steps,
        stream="tune",
        update=None if learning else lambda _: None,
    )


def _predictions(
    folder: RunFolder, runner: SiteRunner, data: SiteData, cases: Cases, iterations: int | None
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """The classes that each model predicts; probabilities are added up on the way."""
    method = runner.assignment.method
    found, models = [], {}
    for info in runner.assignment.sites:
        site = runner.opened(info, data, read_state(folder.weights_path(info.name))[0])
        with method.in_use(site):
            if runner.assignment.reestimates:
                reestimate(method, site)
            models[info.name] = site.weights.copy()
            found.append(_probabilities(method, site, cases))
        yield info.name, _classes(found[-1])
    yield ENSEMBLE, _classes(torch.stack(found).mean(0))
    guest = site_info(data, runner.assignment.task)
    site = runner.opened(guest, data, None)
    server, _ = read_state(folder.weights_path("server"))
    site.message = Message(Weights.pack(server.weights))
    site.load(site.message.weights)
    if routed := method.outside(replace(site, memory={}), models):
        yield ROUTED, _classes(_probabilities(method, routed, cases))
    tune(method, site, iterations, reestimates=runner.assignment.reestimates)
    yield TUNED, _classes(_probabilities(method, site, cases))


def _probabilities(method: Method, site: Site, cases: Cases) -> Tensor:
    return torch.cat([batch.cpu() for batch in predictions(method, site, cases)])


def _classes(probabilities: Tensor) -> NDArray[np.uint8]:
    return likeliest(probabilities).numpy()
