"""A trained model in use: the network with its weights, and the cases it can be judged by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch

from polyclinic.config import SiteSettings
from polyclinic.data.cases import SiteData
from polyclinic.data.errors import DataError
from polyclinic.data.load import load_federation
from polyclinic.engine.run import assignment_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.engine.tensors import group, load_tensors
from polyclinic.exporting.choosing import SERVER, Origin
from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.runs import SPLITS, RunError


@contextmanager
def in_use(origin: Origin) -> Iterator[tuple[Method, Site]]:
    """The method, and the site whose network has the weights that it predicts with."""
    folder = origin.run.folder
    runner = SiteRunner(assignment_of(origin.run, folder.about().sites), torch.device("cpu"))
    method, sites = runner.assignment.method, runner.assignment.sites
    state = _state(folder.weights_path(origin.owner))
    nothing = cast(SiteData, None)  # a site that only predicts needs no cases of its own
    if origin.owner == SERVER:
        lacking = method.predicts_with(runner.net) - set(state.weights)
        if lacking:
            raise RunError(
                f"with {origin.run.choice.title} the server has no whole model: sites keep "
                f"{len(lacking)} weights such as {min(lacking)} to themselves; export a site's"
            )
        site = runner.opened(sites[0], nothing, None)
        site.load({name: state.weights[name] for name in site.weights if name in state.weights})
        yield method, site
        return
    info = next(each for each in sites if each.name == origin.owner)
    site = runner.opened(info, nothing, state)
    with method.in_use(site):
        yield method, site


def same_everywhere(origin: Origin) -> bool:
    """Whether all sites use the server's model, so that their scores are its scores."""
    folder = origin.run.folder
    server = _state(folder.weights_path(SERVER)).weights
    for info in folder.about().sites:
        path = folder.weights_path(info.name)
        if not path.exists():
            return False
        own = _state(path).weights
        if any(not torch.equal(own[name], server[name]) for name in own if name in server):
            return False
    return True


def cases_of(origin: Origin) -> list[SiteData]:
    """The cases of the model's site, or of all sites for the server's; none that can't be read."""
    study, node = origin.run.study, origin.node
    labels = origin.run.choice.labels
    try:
        if node is not None:
            place = SiteSettings(name=node.name, folder=node.data, labels=node.labels)
            splits = node.state / "splits"
            return load_federation(
                study.task.built, study.data, [place], labels=labels, splits_folder=splits
            )
        if study.engine.name != "local":
            return []
        splits = origin.run.folder.path.parents[2] / SPLITS
        data = load_federation(
            study.task.built, study.data, study.site, labels=labels, splits_folder=splits
        )
    except (DataError, OSError):
        return []
    return [site for site in data if origin.owner in (SERVER, site.name)]


def _state(path: Path) -> SiteState:
    tensors, _ = load_tensors(path)
    return SiteState(group(tensors, "weights"), group(tensors, "memory"))
