"""polyclinic export: trained models as files that other programs use."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import tables

if TYPE_CHECKING:
    from polyclinic.exporting.choosing import Origin


class Format(StrEnum):
    """What a model is written as."""

    PACKAGE = "package"
    ONNX = "onnx"
    MONAI = "monai"


SUFFIXES = {Format.PACKAGE: ".polyclinic", Format.ONNX: ".onnx", Format.MONAI: ""}


def export(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or a hospital's own folder or node.toml."),
    ],
    to: Annotated[Path, typer.Option(help="The file to write, or with --all the folder.")],
    site: Annotated[list[str], typer.Option(help="Whose model; may be given again.")] = [],  # noqa: B006
    server: Annotated[bool, typer.Option("--server", help="The model the sites share.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Each model as a file of its own.")] = False,
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="All models together, over sites or seeds.")
    ] = False,
    format_: Annotated[
        Format, typer.Option("--format", help="A package, the bare graph, or a MONAI bundle.")
    ] = Format.PACKAGE,
    title: Annotated[str | None, typer.Option(help="What the model card calls it.")] = None,
) -> None:
    """Write a trained model as one file, with its card, scores and thresholds."""
    from polyclinic.exporting.choosing import origins

    found = origins(paths, tables(), sites=site, server=server)
    if all_:
        for origin in found:
            _write([origin], to / _name(origin, found, format_), format_, title)
    elif len(found) == 1 or ensemble:
        _write(found, to, format_, title)
    else:
        listed = "\n  ".join(f"{o.owner} in {o.run.folder.path}" for o in found)
        raise ValueError(
            f"these are {len(found)} models:\n  {listed}\nname one with --site and its run's "
            "folder, write each with --all, or make one of them with --ensemble"
        )


def _write(origins: "list[Origin]", to: Path, format_: Format, title: str | None) -> None:
    from polyclinic.exporting.packaging import packaged
    from polyclinic.predict.package import GRAPH
    from polyclinic.runs import write_atomic

    package = packaged(origins, title=title)
    if format_ is Format.PACKAGE:
        package.write(to)
    elif format_ is Format.ONNX:
        write_atomic(to, package.contents[GRAPH])
    else:
        from polyclinic.exporting.monai_bundle import write_bundle

        write_bundle(package, to)
    if package.facts.quality is None:
        typer.echo("warning: the cases could not be read: no thresholds for notes", err=True)
    typer.echo(f"{to}  {package.facts.title}  {package.content_hash[:12]}")


def _name(origin: "Origin", among: "list[Origin]", format_: Format) -> str:
    from polyclinic.runs import slug

    runs = {each.run.folder.path for each in among}
    words = [origin.owner]
    if len(runs) > 1:
        words += [origin.run.choice.title, f"seed {origin.run.seed}"]
    return slug(" ".join(words)) + SUFFIXES[format_]
