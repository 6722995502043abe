"""The cases of a site as a study would see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polyclinic.catalog import installed
from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.errors import DataError
from polyclinic.data.folder import read_site
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import task_called

if TYPE_CHECKING:
    from polyclinic.data.cases import SiteData
    from polyclinic.data.tasks import Task


def load_site(
    folder: str | Path,
    task: str | Task | None = None,
    *,
    labels: str | None = None,
    resolution: int | None = None,
) -> SiteData:
    """The cases of a site folder by split (`train`, `val`, `test`), all files read and checked.

    The task is by default the one that site.toml names; `labels` is what the site would train on,
    by default what site.toml says, else full masks. A DataError lists every mistake.
    """
    place = Path(folder)
    tasks = installed().task
    named = task or read_site(place).toml.task
    if named is None:
        raise DataError([f"say for which task ({', '.join(tasks)}): {place} names none"])
    chosen = task_called(named, tasks) if isinstance(named, str) else named
    if resolution:
        chosen = chosen.with_resolution(resolution)
    site = SiteSettings(name=place.resolve().name, folder=place.resolve(), labels=labels)
    (data,) = load_federation(chosen, DataSettings(), [site], splits_folder=None)
    return data
