"""A trained model in use: the network with its weights, and the cases it can be judged by."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch

from polyclinic.config import SiteSettings
from polyclinic.data.cases import SiteData
from polyclinic.data.errors import DataError
from polyclinic.data.load import load_federation
from polyclinic.data.site_files import SiteToml, read_site_toml
from polyclinic.data.sources import listed_sites, sources_of
from polyclinic.data.tasks import Task, as_at_site
from polyclinic.engine.run import assignment_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import read_state
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
    state, _ = read_state(folder.weights_path(origin.owner))
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
    server = read_state(folder.weights_path(SERVER))[0].weights
    for info in folder.about().sites:
        path = folder.weights_path(info.name)
        if not path.exists():
            return False
        own = read_state(path)[0].weights
        if any(not torch.equal(own[name], server[name]) for name in own if name in server):
            return False
    return True


def cases_of(origin: Origin) -> list[SiteData]:
    """The cases of all sites that lie here, the model's own among them; none that can't be read."""
    study = origin.run.study
    if origin.node is None and study.engine.name != "local":
        return []
    try:
        return load_federation(
            study.task.built,
            study.data,
            _places(origin),
            labels=origin.run.choice.labels,
            splits_folder=origin.root / SPLITS,
        )
    except (DataError, OSError):
        return []


def as_at_its_site(origin: Origin) -> tuple[Task, SiteToml]:
    """The task as the model's site prepares its images, and what its site.toml says.

    The server's model has the study's task. Of a site whose folder is not here, only the study
    knows something.
    """
    study = origin.run.study
    task = study.task.built
    named = {site.name: site.preparation for site in study.site}
    known = as_at_site(task, named.get(origin.owner, {}), [])
    if origin.owner == SERVER or (origin.node is None and study.engine.name != "local"):
        return task, SiteToml()
    try:
        sources = sources_of(task, study.data, _places(origin))
    except (DataError, OSError):
        return known, SiteToml()
    for source in sources:
        toml = read_site_toml(source.folder / "site.toml")[0] if source.folder else SiteToml()
        folder = source.folder.name if source.folder else ""
        if (source.name or toml.name or folder) == origin.owner:
            return as_at_site(task, {**toml.preparation, **source.preparation}, []), toml
    return known, SiteToml()


def _places(origin: Origin) -> tuple[SiteSettings, ...]:
    """All sites of the study; at a hospital its own folder."""
    node, study, listed = origin.node, origin.run.study, origin.run.study.site
    if node is None:
        return tuple(listed_sites(study.task.built, study.data, listed))
    own = [site for site in listed if site.name == node.name]
    named = own[0] if own else SiteSettings(name=node.name)
    return (named.model_copy(update={"folder": node.data, "labels": node.labels or named.labels}),)
