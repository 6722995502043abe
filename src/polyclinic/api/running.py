"""Running a study on this machine; the command line and scripts come along here."""

from pathlib import Path

from polyclinic.api.progress import watching
from polyclinic.api.results import Results
from polyclinic.api.study import Study
from polyclinic.config import Study as Settings
from polyclinic.engine.grid import run_grid
from polyclinic.runs import SPLITS


def run(
    study: Study | str | Path,
    *,
    runs: str | Path = "runs",
    resume: bool = False,
    fresh: bool = False,
) -> Results:
    """Run every method of a study with every seed and fold, and give the results.

    A path is that of a study's TOML file. Runs lie in the folder `runs`; earlier ones of this study
    are an error unless they are to be continued (`resume`) or removed (`fresh`). Where some of
    several runs fail, the error that lists them is raised once all others are done.
    """
    chosen = study if isinstance(study, Study) else Study.from_file(study)
    paths = do_runs(chosen.settings, Path(runs), resume=resume, fresh=fresh)
    return Results(paths, chosen.tables)


def do_runs(study: Settings, root: Path, *, resume: bool, fresh: bool) -> list[Path]:
    """Do what is left of a study's runs, show how far they are, and give their folders."""
    if resume and fresh:
        raise ValueError("--resume keeps earlier runs and --fresh removes them: give one of them")
    with watching(study, root, fresh=fresh) as watch:
        done = run_grid(study, root, root / SPLITS, resume=resume, fresh=fresh, watch=watch)
    return [run.folder.path for run in done]
