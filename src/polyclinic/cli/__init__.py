"""The command line: run, report, list, config, weaken, unseen, data, server, site and others."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from polyclinic import __version__
from polyclinic.cli import federation
from polyclinic.cli.audit import audit
from polyclinic.cli.code import tables
from polyclinic.cli.contract import check_method
from polyclinic.cli.deploy import app as deploy_app
from polyclinic.cli.evaluate import compare_models, evaluate
from polyclinic.cli.exchange import Sheet, export_site, import_site
from polyclinic.cli.export import export
from polyclinic.cli.predict import predict
from polyclinic.cli.run import Overrides, Runs, StudyFile, run
from polyclinic.cli.serve import serve
from polyclinic.cli.unseen import unseen
from polyclinic.environment import prepare_environment

if TYPE_CHECKING:
    from polyclinic.data.tasks import Task


# torch and matplotlib take seconds to import, so each command imports what it needs.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Look at and prepare the folders of sites.", no_args_is_help=True)
app.add_typer(data_app, name="data")
data_app.command("import")(import_site)
data_app.command("export")(export_site)
app.add_typer(deploy_app, name="deploy")
app.add_typer(federation.ledger_app, name="ledger")
app.command()(run)
app.command()(federation.server)
app.command()(federation.site)
app.command()(federation.approve)
app.command()(unseen)
app.command()(audit)
app.command()(check_method)
app.command()(export)
app.command()(predict)
app.command()(evaluate)
app.command()(compare_models)
app.command()(serve)


def main() -> None:
    """Run the command line; mistakes of the user become a message, not a traceback."""
    prepare_environment()
    # What is wrong with a file we say ourselves, with its site.
    warnings.filterwarnings("ignore", module="pydicom|highdicom|pylibjpeg")
    try:
        app()
    except ValueError as error:
        out = Console(stderr=True, highlight=False, soft_wrap=True)  # paths stay whole
        out.print(str(error), style="red", markup=False)
        sys.exit(2)


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs or of whole studies.")],
    to: Annotated[
        Path | None, typer.Option(help="Where to write it; default: beside them.")
    ] = None,
    figures: Annotated[
        bool, typer.Option(help="Write every figure as SVG, PDF and PNG, too.")
    ] = False,
) -> None:
    """Write the page, tables and figures that compare runs."""
    from polyclinic.cli.terminal_tables import show_summary
    from polyclinic.report import write_report
    from polyclinic.runs import find_runs

    found = find_runs(paths)
    page = write_report(found, to or paths[0], files=figures)
    show_summary(found)
    typer.echo(f"report: {page}")


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="methods, networks, tasks, kinds, metrics, losses, a method or a .py file."
        ),
    ],
) -> None:
    """Show what exists, one line each, or all about one method."""
    from polyclinic.cli.listing import listing

    for line in listing(what, tables()):
        typer.echo(line)


@app.command()
def config(study: StudyFile, overrides: Overrides = []) -> None:  # noqa: B006
    """Print all settings of a study, defaults included."""
    from polyclinic.config import load_study, to_toml

    typer.echo(to_toml(load_study(study, overrides, tables())), nl=False)


TaskName = Annotated[
    str | None, typer.Option("--task", help="The task; default: the one the site.toml files name.")
]


@app.command()
def weaken(
    site: Annotated[Path, typer.Argument(help="A site folder with masks.")],
    kind: Annotated[str, typer.Option(help="The kind of label: see polyclinic list kinds.")],
    task: TaskName = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the annotator's hand.")] = 0,
    runs: Runs = Path("runs"),
) -> None:
    """Make weak labels from a site's masks, and a contact sheet of them."""
    from rich.progress import Progress

    from polyclinic.api.console import CONSOLE
    from polyclinic.data.formats.store import FOLDER as VOLUMES
    from polyclinic.data.weakening import weaken_site

    with Progress(console=CONSOLE, disable=not CONSOLE.is_terminal) as progress:
        bar = progress.add_task(f"{kind} labels of {site.name}")
        sheet = weaken_site(
            site,
            kind,
            seed=seed,
            task=_task(task) if task else None,
            tasks=tables().task,
            on_case=lambda _, done, total: progress.update(bar, completed=done, total=total),
            volumes=runs / VOLUMES,
        )
    typer.echo(f"contact sheet: {sheet}")


@data_app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A site folder, or a folder of them.")],
    task: TaskName = None,
    sheet: Sheet = Path("contact-sheet.png"),
    runs: Runs = Path("runs"),
) -> None:
    """Check every file of every site; print a summary and draw a contact sheet."""
    from polyclinic.api.console import reading
    from polyclinic.cli.terminal_tables import show_check
    from polyclinic.data.check import check_folder
    from polyclinic.data.contact_sheet import contact_sheet
    from polyclinic.data.formats.store import FOLDER as VOLUMES

    volumes = runs / VOLUMES
    with reading(folder):
        summary = check_folder(folder, _task(task) if task else None, tables().task, volumes)
    show_check(summary)
    with reading(folder):
        contact_sheet(folder, summary.task, sheet, volumes=volumes)
    typer.echo(f"contact sheet: {sheet}")
    if summary.mistakes:
        sys.exit(2)


@data_app.command()
def split(
    folder: Annotated[Path, typer.Argument(help="A site folder, or a folder of them.")],
    ratio: Annotated[
        tuple[float, float, float], typer.Option(help="The shares of train, val and test.")
    ] = (0.7, 0.1, 0.2),
    folds: Annotated[int, typer.Option(min=0, help="Cut this many folds instead.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the cut.")] = 0,
    in_order: Annotated[
        bool, typer.Option("--in-order", help="In the order of patients' names, not drawn.")
    ] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Cut the cases of sites into train, val and test, and write that into the sites' folders."""
    from pydantic import ValidationError

    from polyclinic.api.console import reading
    from polyclinic.config import DataSettings
    from polyclinic.data.formats.store import FOLDER as VOLUMES
    from polyclinic.data.splits import write_splits
    from polyclinic.data.splitting import SplitRule

    try:
        checked = DataSettings(split=ratio, folds=folds)
    except ValidationError as error:
        told = (f"{each['loc'][0]}: {each['msg']}" for each in error.errors())
        raise ValueError("; ".join(told)) from error
    rule = SplitRule(checked.split, checked.folds, seed=seed, in_order=in_order)
    with reading(folder):
        files = write_splits(folder, rule, runs / VOLUMES)
    for file in files:
        typer.echo(str(file))


def _task(name: str) -> "Task":
    from polyclinic.data.tasks import task_called

    return task_called(name, tables().task)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polyclinic {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Personalized federated medical image segmentation."""
