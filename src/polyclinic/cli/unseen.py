"""polyclinic unseen: what the models of finished runs are worth to a site that took no part."""

from pathlib import Path
from typing import Annotated

import typer

from polyclinic.cli.code import tables


def unseen(
    site: Annotated[Path, typer.Argument(help="The folder of a site that took no part.")],
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs or of whole studies.")],
    iterations: Annotated[
        int | None,
        typer.Option(min=0, help="Steps to train what is tuned there; default: as in the run."),
    ] = None,
) -> None:
    """Try the models of runs on a site that took no part: each, together, and tuned there.

    The tables are those of all sites that took no part; they go into the report, too.
    """
    from polyclinic.api.console import CONSOLE
    from polyclinic.config import SiteSettings
    from polyclinic.data.load import load_federation
    from polyclinic.data.site_files import read_site_toml
    from polyclinic.engine.devices import device_of
    from polyclinic.engine.unseen import finished_run, try_models
    from polyclinic.report.elsewhere import unseen as unseen_sites
    from polyclinic.report.exports import to_terminal
    from polyclinic.report.reading import read_runs
    from polyclinic.runs import SPLITS, RunFolder, find_runs

    name = read_site_toml(site / "site.toml")[0].name or site.resolve().name
    for path in find_runs(paths):
        run = finished_run(RunFolder(path), tables())
        study = run.study
        place = SiteSettings(name=name, folder=site.resolve())
        (data,) = load_federation(
            study.task.built, study.data, [place], splits_folder=path.parents[2] / SPLITS
        )
        try_models(run, data, device_of(study.engine.device), iterations=iterations)
    found = unseen_sites(read_runs(paths))
    for table in found.tables if found else ():
        CONSOLE.print(to_terminal(table))
