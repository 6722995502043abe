"""Turns sites in any readable layout into site folders of our own."""

import csv
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tomli_w

from polyclinic.data.check import check_folder
from polyclinic.data.errors import refuse
from polyclinic.data.folder import SiteFolder, find_sites, read_site
from polyclinic.data.site_files import COLUMNS
from polyclinic.data.tasks import Task


def import_folder(source: Path, destination: Path, task: Task) -> list[Path]:
    """Copy every site in `source` into a site folder below `destination`, and return those.

    The source is only read, and checked completely before anything is copied. Sites appear in
    `destination` when the last file of the last one is copied; a name taken there is refused.
    """
    if destination.resolve().is_relative_to(source.resolve()):
        refuse([f"{destination} lies within {source}, which is only read; choose another place"])
    sites = [read_site(folder) for folder in find_sites(source)]
    taken = [
        f"site {site.name}: {destination / site.name} is there already; move it away first"
        for site in sites
        if (destination / site.name).exists()
    ]
    refuse([*taken, *check_folder(source, task).mistakes])
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=destination) as unfinished:
        folders = [Path(unfinished, site.name) for site in sites]
        for site, folder in zip(sites, folders, strict=True):
            _copy(site, folder, task)
        return [folder.rename(destination / folder.name) for folder in folders]


def _copy(site: SiteFolder, folder: Path, task: Task) -> None:
    for case in site.cases:
        _copy_file(case.image, folder / "images", case.name)
        parts = {Path("masks"): case.mask, Path("views"): case.view}
        parts |= {Path("labels", kind): label for kind, label in case.labels.items()}
        for part, original in parts.items():
            # What lies within an HDF5 image file has gone with it.
            if original and original != case.image:
                _copy_file(original, folder / part, case.name)
    rows = [(case.name, case.patient, case.split or "") for case in site.cases]
    with (folder / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    (folder / "site.toml").write_text(_about(site, task), encoding="utf-8")


def _about(site: SiteFolder, task: Task) -> str:
    spacing = list(site.toml.spacing) if site.toml.spacing else None
    known: dict[str, Any] = {
        "name": site.name,
        "task": task.name,
        "labels": site.toml.labels,
        "spacing": spacing,
        **site.toml.preparation,
        "annotates": list(site.toml.annotates),
        **site.toml.masks.written(),
        "weak": site.toml.weak.written(),
    }
    return tomli_w.dumps({key: value for key, value in known.items() if value})


def _copy_file(file: Path, folder: Path, case: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / f"{case}{file.suffix}")
