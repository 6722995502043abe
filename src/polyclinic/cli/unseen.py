"""polyclinic unseen: what the models of finished runs are worth to a site that took no part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import tables

if TYPE_CHECKING:
    from rich.table import Table

    from polyclinic.engine.unseen import UnseenScore


def unseen(
    site: Annotated[Path, typer.Argument(help="The folder of a site that took no part.")],
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs or of whole studies.")],
    iterations: Annotated[
        int | None,
        typer.Option(min=0, help="Steps to train a private part; default: as in the run."),
    ] = None,
) -> None:
    """Try the models of runs on a site that took no part: each, together, and tuned there."""
    from polyclinic.api.console import CONSOLE
    from polyclinic.config import SiteSettings
    from polyclinic.data.load import load_federation
    from polyclinic.data.site_files import read_site_toml
    from polyclinic.engine.devices import device_of
    from polyclinic.engine.unseen import finished_run, try_models
    from polyclinic.runs import SPLITS, RunFolder, find_runs

    name = read_site_toml(site / "site.toml")[0].name or site.resolve().name
    for path in find_runs(paths):
        run = finished_run(RunFolder(path), tables())
        study = run.study
        place = SiteSettings(name=name, folder=site.resolve())
        (data,) = load_federation(
            study.task.built, study.data, [place], splits_folder=path.parents[2] / SPLITS
        )
        device = device_of(study.engine.device)
        rows = try_models(run, data, device, iterations=iterations)
        titles = {metric.name: metric.built.title for metric in study.metric}
        title = f"{study.method[0].title}, seed {study.seeds[0]}"
        CONSOLE.print(_table(title, data.name, rows, titles))


def _table(run: str, site: str, rows: list[UnseenScore], titles: Mapping[str, str]) -> Table:
    from statistics import fmean

    from rich.table import Table

    metrics = list(dict.fromkeys(row.metric for row in rows))
    table = Table(title=f"{run}: models at {site}, mean over cases and regions")
    for heading in ("model", *(titles[metric] for metric in metrics)):
        table.add_column(heading)
    for model in dict.fromkeys(row.model for row in rows):
        values = (
            fmean(row.value for row in rows if (row.model, row.metric) == (model, metric))
            for metric in metrics
        )
        table.add_row(model, *(f"{value:.4f}" for value in values))
    return table
