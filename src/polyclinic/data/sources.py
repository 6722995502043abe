"""Where the sites of a study come from: drawn, or read from a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.errors import listed, refuse
from polyclinic.data.folder import find_sites
from polyclinic.data.site_files import read_site_toml
from polyclinic.data.synthetic import federation
from polyclinic.data.tasks import Task


@dataclass(frozen=True)
class Source:
    """One site's source: a folder, or None for a drawn site; None elsewhere: as its folder says."""

    name: str | None
    folder: Path | None
    kind: str | None
    annotates: tuple[str, ...] = ()  # what the study takes of its annotation; empty: all


def sources_of(
    task: Task, data: DataSettings, sites: Sequence[SiteSettings], labels: str | None = None
) -> list[Source]:
    """Every site of the source, or those that are listed; unknown names raise a DataError."""
    if not sites and data.folder:
        return [Source(None, folder, labels) for folder in find_sites(data.folder)]
    if not sites:
        return [Source(site.name, None, labels) for site in federation(task.name)]
    common = _common(task, data) if any(site.folder is None for site in sites) else {}
    there = listed(list(common), most=10)
    refuse(
        [
            f'no site "{site.name}" in {data.source}; there are {there}'
            + did_you_mean(site.name, list(common))
            for site in sites
            if site.folder is None and site.name not in common
        ]
    )
    return [
        Source(site.name, site.folder or common[site.name], labels or site.labels, site.annotates)
        for site in sites
    ]


def _common(task: Task, data: DataSettings) -> Mapping[str, Path | None]:
    """The sites of the study's source by name: their folder's, or the one in their site.toml."""
    if data.folder is None:
        return {site.name: None for site in federation(task.name)}
    folders = find_sites(data.folder)
    named = ((read_site_toml(folder / "site.toml")[0].name, folder) for folder in folders)
    both = {name: folder for name, folder in named if name}
    return {**both, **{folder.name: folder for folder in folders}}
