"""`polyclinic data import` and `polyclinic data export`: sites from and to other layouts."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import tables

if TYPE_CHECKING:
    from polyclinic.data.import_choices import Choices
    from polyclinic.data.tasks import Task

Runs = Annotated[Path, typer.Option("--runs", help="Where volumes and the salt of names are kept.")]
Sheet = Annotated[Path, typer.Option(help="Where to draw the contact sheet.")]


def import_site(
    source: Annotated[Path, typer.Argument(help="A folder of sites, or of images and masks.")],
    destination: Annotated[Path, typer.Argument(help="Where the site folders will stand.")],
    task: Annotated[str | None, typer.Option("--task", help="The task they are for.")] = None,
    name: Annotated[
        str | None, typer.Option(help="The site's name; default: the folder's.")
    ] = None,
    masks: Annotated[str | None, typer.Option(help='Which files are masks: "manual/*".')] = None,
    images: Annotated[str | None, typer.Option(help="Which files are images.")] = None,
    axis: Annotated[str | None, typer.Option(help="Along which a volume is cut.")] = None,
    modality: Annotated[
        str | None, typer.Option(help="Which DICOM images count, where there are several: MR.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help='What masks\' values mean: "0=background,255=vessel".')
    ] = None,
    colours: Annotated[
        str | None, typer.Option(help='What their colours mean: "#ff0000=rim,#0000ff=cup".')
    ] = None,
    sheet: Sheet = Path("contact-sheet.png"),
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Leave out what has mistakes, import the rest.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Turn images and masks in (nearly) any layout into site folders."""
    from polyclinic.data.import_choices import Choices
    from polyclinic.data.understanding import Unclear

    choices = Choices(masks, images, name, axis, modality, values, colours)
    while True:
        try:
            _import(source, destination, task, choices, sheet, leave_out, yes, runs)
            return
        except Unclear as unclear:
            if not sys.stdin.isatty():
                raise
            answer = typer.prompt(unclear.question)
            if unclear.option == "task":
                task = answer
            else:
                choices = replace(choices, **{unclear.option: answer})


def export_site(
    site: Annotated[Path, typer.Argument(help="A site folder.")],
    destination: Annotated[Path, typer.Argument(help="The dataset's folder, not there yet.")],
    format_: Annotated[str, typer.Option("--format", help="Only nnunet so far.")] = "nnunet",
    task: Annotated[str | None, typer.Option("--task", help="The task it is for.")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Write a site's images and masks as a dataset of another program."""
    from polyclinic.api.console import reading
    from polyclinic.data.exporting import export_nnunet
    from polyclinic.data.formats.store import FOLDER as VOLUMES
    from polyclinic.data.site_files import read_site_toml

    if format_ != "nnunet":
        raise ValueError(f'no format "{format_}" (allowed: nnunet)')
    said, _ = read_site_toml(site / "site.toml")
    chosen = _task([task or said.task])
    with reading(site):
        counts, left = export_nnunet(site, destination, chosen, runs / VOLUMES)
    for line in left:
        typer.echo(f"left out: {line}")
    typer.echo(f"{destination}: {counts['Tr']} cases to train on, {counts['Ts']} to test on")


def _import(
    source: Path,
    destination: Path,
    task: str | None,
    choices: "Choices",
    sheet: Path,
    leave_out: bool,
    yes: bool,
    runs: Path,
) -> None:
    from polyclinic.api.console import reading
    from polyclinic.cli.terminal_tables import show_understood
    from polyclinic.data.formats.store import FOLDER as VOLUMES
    from polyclinic.data.importing import import_sites
    from polyclinic.data.understanding import understanding

    def agree() -> bool:
        shown.stop()
        typer.echo(f"contact sheet: {sheet}")
        ask = sys.stdin.isatty() and not yes
        sites = ", ".join(site.name for site in understood.sites)
        return not ask or typer.confirm(f"Write {sites} to {destination}?")

    with reading(source) as shown, understanding(source, choices, runs / VOLUMES) as understood:
        show_understood(understood)
        chosen = _task([task] if task else [site.toml.task for site in understood.sites])
        folders, left = import_sites(
            understood, destination, chosen, sheet=sheet, agree=agree, leave_out=leave_out
        )
    for line in left:
        typer.echo(f"left out: {line}")
    for folder in folders:
        typer.echo(str(folder))
    if not folders:
        typer.echo("nothing was written")


def _task(names: list[str | None]) -> "Task":
    """The one task that is named; a person is to say it where there is none, or several."""
    from polyclinic.data.tasks import task_called
    from polyclinic.data.understanding import Unclear

    known = tables().task
    named = {name for name in names if name}
    if len(named) != 1:
        raise Unclear("task", f"for which task is it ({', '.join(known)})?")
    return task_called(named.pop(), known)
