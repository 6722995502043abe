"""The cases of a site as a study would see them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyclinic.catalog import installed
from polyclinic.config import ConfigError, DataSettings, Mistake, SiteSettings, Task
from polyclinic.config.printing import plain
from polyclinic.config.task_entry import chosen_task
from polyclinic.data.cases import SiteData
from polyclinic.data.folder import read_site
from polyclinic.data.load import load_federation


def load_site(
    folder: str | Path,
    task: str | Mapping[str, Any] | Task | None = None,
    *,
    labels: str | None = None,
    resolution: int | None = None,
) -> SiteData:
    """The cases of a site folder by split (`train`, `val`, `test`), all files read and checked.

    The task is by default the one that site.toml names, and may be a table as in a study; `labels`
    is what the site would train on, by default what site.toml says, else full masks. Errors list
    every mistake: a ConfigError those of the task, a DataError those of the files.
    """
    place = Path(folder).resolve()
    entry = task or read_site(place).toml.task
    wanted = {"name": entry} if isinstance(entry, str) else plain(entry)
    mistakes: list[Mistake] = []
    chosen = chosen_task(wanted, installed(), mistakes)
    if chosen is None:
        raise ConfigError("pc.load_site(…)", mistakes)
    built = chosen.built.with_resolution(resolution) if resolution else chosen.built
    site = SiteSettings(name=place.name, folder=place, labels=labels)
    (data,) = load_federation(built, DataSettings(), [site], splits_folder=None)
    return data
