"""Where the sites of a study come from: drawn, or read from a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.errors import listed, refuse
from polyclinic.data.folder import find_sites
from polyclinic.data.site_files import read_site_toml
from polyclinic.data.synthetic import federation
from polyclinic.data.tasks import Task

EACH = "each"


@dataclass(frozen=True)
class Source:
    """One site's source: a folder, or None for a drawn site; None elsewhere: as its folder says."""

    name: str | None
    folder: Path | None
    kind: str | None
    preparation: Mapping[str, Any] = field(default_factory=dict)  # what the study says of it
    annotates: tuple[str, ...] = ()  # what the study takes of its annotation; empty: all


def listed_sites(
    task: Task, data: DataSettings, sites: Sequence[SiteSettings]
) -> list[SiteSettings]:
    """All sites of a study: those it says something of, then the others of its source.

    With `data.only` it is these of them. A DataError tells which names mean no site.
    """
    there = _there(task, data)
    aliases = {name: names for names, _ in there for name in names}
    named = {alias for site in sites for alias in aliases.get(site.name, (site.name,))}
    others = [
        SiteSettings.model_construct(name=names[0], folder=folder)
        for names, folder in there
        if not named.intersection(names)
    ]
    found = [*sites, *others]
    if not data.only:
        return found
    only = {alias for name in data.only for alias in aliases.get(name, (name,))}
    unknown = [name for name in data.only if name not in {*aliases, *named}]
    left_out = [site.name for site in sites if site.name not in only]
    refuse(
        [
            *_unknown(unknown, "data.only", there, data),
            *(f"[[site]] {name} is not in data.only; add it there or drop it" for name in left_out),
        ]
    )
    return [site for site in found if site.name in only]


def left_out(
    task: Task, data: DataSettings, sites: Sequence[SiteSettings]
) -> tuple[str | None, ...]:
    """What runs of a study leave out: no site, the one that it names, or none and each in turn."""
    if data.leave_out is None:
        return (None,)
    names = [site.name for site in listed_sites(task, data, sites)]
    if data.leave_out == EACH:
        return (None, *names)
    if data.leave_out not in names:
        near = did_you_mean(data.leave_out, names)
        refuse([f'data.leave_out: no site "{data.leave_out}" takes part{near}'])
    return (data.leave_out,)


def sources_of(
    task: Task, data: DataSettings, sites: Sequence[SiteSettings], labels: str | None = None
) -> list[Source]:
    """Exactly these sites, or every one of the source; unknown names raise a DataError."""
    if not sites and data.folder:
        return [Source(None, folder, labels) for folder in find_sites(data.folder)]
    if not sites:
        return [Source(site.name, None, labels) for site in federation(task.name, data.federation)]
    common = any(site.folder is None for site in sites)
    there = _there(task, data) if common else []
    folders = {name: folder for names, folder in there for name in names}
    missing = [site.name for site in sites if site.folder is None and site.name not in folders]
    refuse(_unknown(missing, "[[site]]", there, data))
    return [
        Source(
            site.name,
            site.folder or folders[site.name],
            labels or site.labels,
            site.preparation,
            site.annotates,
        )
        for site in sites
    ]


Place = tuple[tuple[str, ...], Path | None]  # the names a site goes by, and its folder


def _there(task: Task, data: DataSettings) -> list[Place]:
    """The sites of the source, by the name in their site.toml and by their folder's."""
    if data.source == "none":
        return []
    if data.folder is None:
        return [((site.name,), None) for site in federation(task.name, data.federation)]
    return [
        (tuple(filter(None, (read_site_toml(folder / "site.toml")[0].name, folder.name))), folder)
        for folder in find_sites(data.folder)
    ]


def _unknown(
    names: Sequence[str], key: str, there: Sequence[Place], data: DataSettings
) -> list[str]:
    known = [name for several, _ in there for name in several]
    source = f"{data.source}; there are {listed(known, most=10)}"
    if data.source == "none":
        source = "no data.source; give it a folder of its own, or the study a source"
    return [f'{key}: no site "{name}" in {source}{did_you_mean(name, known)}' for name in names]
