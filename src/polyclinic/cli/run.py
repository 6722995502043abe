"""The command that runs a study."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import tables

if TYPE_CHECKING:
    from polyclinic.config import Study

StudyFile = Annotated[Path, typer.Argument(help="The TOML file of the study.")]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set", help="Change a setting, such as --set training.batch=4.", metavar="KEY=VALUE"
    ),
]
Runs = Annotated[
    Path, typer.Option("--runs", help="The folder that holds all runs, and volumes read once.")
]
Resume = Annotated[bool, typer.Option(help="Continue where the runs stand.")]
Fresh = Annotated[bool, typer.Option(help="Remove earlier runs of this study.")]


def run(
    study: StudyFile,
    overrides: Overrides = [],  # noqa: B006 (typer wants the plain value)
    only: Annotated[
        list[str],
        typer.Option("--only", help="Run the method of this title alone; repeatable."),
    ] = [],  # noqa: B006 (typer wants the plain value)
    resume: Resume = False,
    fresh: Fresh = False,
    reuse: Annotated[
        list[Path],
        typer.Option(
            "--reuse", help="Take over what was run here (a study's folder) and is the same."
        ),
    ] = [],  # noqa: B006 (typer wants the plain value)
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show the runs and how long they will take.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; default: what the machine carries.")
    ] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Run every method of a study with every seed and fold, then write the report."""
    from polyclinic.config import load_study, only_methods

    at_once = [f"engine.jobs={jobs}"] if jobs else []
    settings = only_methods(load_study(study, [*overrides, *at_once], tables()), only, study)
    if plan:
        _show_plan(settings, runs, fresh=fresh, reuse=reuse)
    else:
        _run(settings, runs, resume=resume, fresh=fresh, reuse=reuse)


def _show_plan(study: "Study", root: Path, *, fresh: bool, reuse: list[Path]) -> None:
    from polyclinic.api.progress import shown_plan
    from polyclinic.engine.planning import plan_of
    from polyclinic.runs import SPLITS

    for line in shown_plan(plan_of(study, root, root / SPLITS, fresh=fresh, reuse=reuse)):
        typer.echo(line)


def _run(study: "Study", root: Path, *, resume: bool, fresh: bool, reuse: list[Path]) -> None:
    from polyclinic.api.running import do_runs
    from polyclinic.cli.terminal_tables import show_summary
    from polyclinic.engine.grid import FailedRuns
    from polyclinic.report import write_report
    from polyclinic.runs import slug

    failed = None
    try:
        paths = do_runs(study, root, resume=resume, fresh=fresh, reuse=reuse)
    except FailedRuns as error:
        failed, paths = error, error.paths
    except KeyboardInterrupt:
        again = [each for each in sys.argv[1:] if each not in ("--fresh", "--resume")]
        command = shlex.join(["polyclinic", *again, "--resume"])
        typer.echo(f"\nstopped; finished rounds are kept: {command}", err=True)
        sys.exit(130)
    if paths:
        page = write_report(paths, root / slug(study.name))
        show_summary(paths)
        typer.echo(f"report: {page}")
    if failed:
        typer.secho(str(failed), err=True, fg="red")
        sys.exit(1)
