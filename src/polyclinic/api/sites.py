"""The cases of a site as a study would see them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyclinic.catalog import installed
from polyclinic.config import ConfigError, DataSettings, Mistake, SiteSettings, Task
from polyclinic.config.printing import plain
from polyclinic.config.task_entry import SUFFIX, chosen_task
from polyclinic.data.cases import SiteData
from polyclinic.data.load import load_federation
from polyclinic.data.site_files import read_site_toml


def load_site(
    folder: str | Path,
    task: str | Path | Mapping[str, Any] | Task | None = None,
    *,
    labels: str | None = None,
    resolution: int | None = None,
) -> SiteData:
    """The cases of a site folder by split (`train`, `val`, `test`), all files read and checked.

    The task is by default the one that site.toml names; it is a name, a file that ends in .toml, or
    a table as in a study. `labels` is what the site would train on, by default what site.toml says,
    else full masks. Errors list every mistake: a ConfigError those of the task, a DataError those
    of the files.
    """
    place = Path(folder).resolve()
    mistakes: list[Mistake] = []
    chosen = chosen_task(_entry(task, place), installed(), mistakes)
    if chosen is None:
        raise ConfigError("pc.load_site(…)", mistakes)
    built = chosen.built.with_resolution(resolution) if resolution else chosen.built
    name = read_site_toml(place / "site.toml")[0].name or place.name
    site = SiteSettings(name=name, folder=place, labels=labels)
    (data,) = load_federation(built, DataSettings(), [site], splits_folder=None)
    return data


def _entry(task: str | Path | Mapping[str, Any] | Task | None, place: Path) -> Any:
    """The task as a study would say it; where nothing is said, as the site does."""
    beside = Path()
    if task is None:
        task, beside = read_site_toml(place / "site.toml")[0].task, place
    if isinstance(task, str | Path) and str(task).endswith(SUFFIX):
        return {"file": str(beside / task)}
    return {"name": task} if isinstance(task, str) else plain(task)
