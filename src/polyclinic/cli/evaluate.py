"""polyclinic evaluate and compare-models: packages on labelled folders; need no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from polyclinic.cli.predict import Threads

Split = Annotated[
    Literal["train", "val", "test", "all"] | None,
    typer.Option(help="Which cases; default: test where the folder says so, else all."),
]
Metrics = Annotated[
    list[str], typer.Option("--metric", help="A metric; may be given again; default: all.")
]
To = Annotated[Path, typer.Option(help="The folder to write to.")]
InSquare = Annotated[
    bool, typer.Option("--in-square", help="Compare in the task's square, as runs do.")
]


def evaluate(
    paths: Annotated[
        list[Path], typer.Argument(help="A model package and the folder of a site, or several.")
    ],
    to: To = Path("evaluation"),
    split: Split = None,
    metric: Metrics = [],  # noqa: B006 (typer wants the plain value)
    in_square: InSquare = False,
    cross_site: Annotated[
        bool, typer.Option("--cross-site", help="Every model at every site, as a matrix.")
    ] = False,
    threads: Threads = 0,
) -> None:
    """Score a model package on any labelled folder, also of a site that took no part."""
    models, sites = _models_and_sites(paths)
    if not cross_site and len(models) > 1:
        raise ValueError("evaluate takes one model; compare-models, or --cross-site, take several")
    _evaluate(models, sites, to, split, metric, in_square, threads)


def compare_models(
    paths: Annotated[
        list[Path], typer.Argument(help="Model packages, and the folder of a site, or several.")
    ],
    to: To = Path("comparison"),
    split: Split = None,
    metric: Metrics = [],  # noqa: B006
    in_square: InSquare = False,
    threads: Threads = 0,
) -> None:
    """Score several model packages on the same cases, with differences from the first."""
    models, sites = _models_and_sites(paths)
    if len(models) < 2:
        raise ValueError("there is one model to compare; name at least two")
    _evaluate(models, sites, to, split, metric, in_square, threads)


def _models_and_sites(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files are models, folders are sites."""
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise ValueError(f"there is no {' and no '.join(missing)}")
    models = [path for path in paths if path.is_file()]
    sites = [path for path in paths if path.is_dir()]
    if not models or not sites:
        raise ValueError("name at least one model package (a file) and one site (a folder)")
    return models, sites


def _evaluate(
    files: Sequence[Path],
    folders: Sequence[Path],
    to: Path,
    split: str | None,
    metrics: Sequence[str],
    in_square: bool,
    threads: int,
) -> None:
    from rich.progress import Progress

    from polyclinic.api.console import CONSOLE
    from polyclinic.cli.terminal_tables import show_evaluation
    from polyclinic.evaluation import METRICS
    from polyclinic.evaluation.scoring import unknown_metrics
    from polyclinic.predict import load
    from polyclinic.predict.evaluating import REGION_METRICS
    from polyclinic.predict.evaluating import evaluate as evaluated
    from polyclinic.report.evaluation import write_evaluation

    if mistakes := unknown_metrics(metrics, {name: METRICS[name] for name in REGION_METRICS}):
        raise ValueError("; ".join(mistakes))
    names = [file.stem for file in files]
    names = names if len(set(names)) == len(names) else [str(file) for file in files]
    models = {name: load(file, threads=threads) for name, file in zip(names, files, strict=True)}
    with Progress(console=CONSOLE, disable=not CONSOLE.is_terminal) as progress:
        bar = progress.add_task("scoring", total=None)
        found = evaluated(
            models,
            folders,
            metrics=metrics or REGION_METRICS,
            split=split,
            in_square=in_square,
            on_case=lambda _: progress.advance(bar),
        )
    packages = {name: model.facts for name, model in models.items()}
    page = write_evaluation(found, to, packages, in_square=in_square)
    show_evaluation(found)
    typer.echo(f"report: {page}")
