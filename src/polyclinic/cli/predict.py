"""polyclinic predict: a model package on files and folders of images; needs no torch."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

ModelFile = Annotated[Path, typer.Argument(help="A model package, from polyclinic export.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of onnxruntime; 0 is all cores.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Do not predict mirrored images for the note.")
]


def predict(
    model: ModelFile,
    images: Annotated[
        list[Path], typer.Argument(help="Files or folders: PNG, JPEG, TIFF, NIfTI, DICOM.")
    ],
    to: Annotated[Path, typer.Option(help="The folder to write to.")],
    axis: Annotated[
        Literal["acquired", "axial", "coronal", "sagittal"] | None,
        typer.Option(help="Along which volumes are cut into slices; default: as in training."),
    ] = None,
    window: Annotated[
        bool | None,
        typer.Option(help="See DICOM through the window stored in it; default: as in training."),
    ] = None,
    spacing: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Millimetres between rows and columns of pictures.", min=0),
    ] = None,
    quick: Quick = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier predictions.")] = False,
    threads: Threads = 0,
) -> None:
    """Predict masks in the images' own size and geometry, with a note on each.

    Doing it again continues. Files that cannot be used are named at the end (exit code 1).
    """
    from rich.progress import Progress

    from polyclinic.api.console import CONSOLE
    from polyclinic.predict import load
    from polyclinic.predict.folder import Options, predict_all
    from polyclinic.predict.inputs import inputs_in

    loaded = load(model, threads=threads)
    found, left = inputs_in(images)
    for file, text in left:
        typer.echo(f"left out: {file}: {text}", err=True)
    if not found:
        raise ValueError(f"there are no images in {', '.join(map(str, images))}")
    facts = loaded.facts
    window = facts.stored_window if window is None else window
    options = Options(axis or facts.axis, window, spacing, flips=not quick)
    with Progress(console=CONSOLE, disable=not CONSOLE.is_terminal) as progress:
        bar = progress.add_task("predicting", total=len(found))
        outcome = predict_all(
            loaded, found, to, options, fresh=fresh, on_case=lambda _: progress.advance(bar)
        )
    before = f", {outcome.before} done before" if outcome.before else ""
    typer.echo(f"{outcome.done} cases predicted{before}; look through them: {outcome.page}")
    for file, text in outcome.failed:
        typer.echo(f"error: {file}: {text}", err=True)
    if outcome.failed or any(not file.exists() for file, _ in left):
        sys.exit(1)
