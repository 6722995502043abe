"""Where the runs of a study lie, and which runs a path means."""

from collections.abc import Iterable
from pathlib import Path

from polyclinic.config.titles import folder_of
from polyclinic.runs.files import RunError
from polyclinic.runs.folder import RunFolder

SPLITS = "splits"  # the folder beside the studies' that keeps the splits they cut


def slug(title: str) -> str:
    """A name for a folder: small letters, digits and dots, joined by hyphens."""
    words = folder_of(title)
    if not words:
        raise RunError(f"the title {title!r} has no letter or digit to name a folder by")
    return "-".join(words)


def run_path(
    root: str | Path,
    study: str,
    title: str,
    seed: int,
    fold: int | None = None,
    left_out: str | None = None,
) -> Path:
    """The folder of one run: root / study / method title / seed, fold and the site left out."""
    last = f"seed-{seed}" if fold is None else f"seed-{seed}-fold-{fold}"
    last += f"-without-{slug(left_out)}" if left_out else ""
    return Path(root) / slug(study) / slug(title) / last


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """The run folders that the paths are or contain, each once.

    A study's or a method's folder gives its runs in the order in which they were started.
    All paths without a run are named in one error.
    """
    found: dict[Path, None] = {}
    mistakes = []
    for path in map(Path, paths):
        runs = _runs_in(path)
        found.update(dict.fromkeys(runs))
        if not runs:
            what = "holds no run" if path.is_dir() else "is not a folder"
            mistakes.append(f"{path} {what}")
    if mistakes:
        wanted = "give run folders (they hold a study.toml) or the folder of a study"
        raise RunError("; ".join([*mistakes, wanted]))
    if not found:
        raise RunError("no run was given; name run folders or the folder of a study")
    return list(found)


def _runs_in(path: Path) -> list[Path]:
    if RunFolder(path).exists:
        return [path]
    below = [*path.glob("seed-*"), *path.glob("*/seed-*")]
    return sorted((run for run in below if RunFolder(run).exists), key=_age)


def _age(run: Path) -> tuple[str, str, list[int], str]:
    try:
        started = RunFolder(run).about().started
    except RunError:
        started = "~"  # after every year
    numbers = [int(part) for part in run.name.split("-") if part.isdigit()]
    return started, run.parent.name, numbers, run.name
