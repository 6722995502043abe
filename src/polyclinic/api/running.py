"""Running a study on this machine; the command line and scripts come along here."""

from collections.abc import Sequence
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
    reuse: Sequence[str | Path] = (),
) -> Results:
    """Run every method of a study with every seed and fold, and give the results.

    A path is that of a study's TOML file. Runs lie in the folder `runs`; earlier ones of this study
    are an error unless they are to be continued (`resume`) or removed (`fresh`). Finished runs in
    the folders to `reuse` are copied where they are the same but for the study's name. Where some
    of several runs fail, the error that lists them is raised once all others are done.
    """
    chosen = study if isinstance(study, Study) else Study.from_file(study)
    paths = do_runs(chosen.settings, Path(runs), resume=resume, fresh=fresh, reuse=reuse)
    return Results(paths, chosen.tables)


def do_runs(
    study: Settings, root: Path, *, resume: bool, fresh: bool, reuse: Sequence[str | Path] = ()
) -> list[Path]:
    """Do what is left of a study's runs, show how far they are, and give their folders."""
    if resume and fresh:
        raise ValueError("--resume keeps earlier runs and --fresh removes them: give one of them")
    if reuse and fresh:
        raise ValueError("--reuse takes runs over and --fresh does all again: give one of them")
    with watching(study, root, fresh=fresh) as watch:
        how = {"resume": resume, "fresh": fresh}
        done = run_grid(study, root, root / SPLITS, **how, reuse=reuse, watch=watch)
    return [run.folder.path for run in done]
