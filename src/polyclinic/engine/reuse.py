"""Finished runs of other studies that a study would otherwise do again."""

import shutil
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from polyclinic.config import changes, to_toml
from polyclinic.engine.run import Run
from polyclinic.engine.sharing import put_in_place
from polyclinic.networks.pretrained import fingerprint
from polyclinic.runs import RunFolder, find_runs

_NAMES = ("name was ", "method[0].title ")  # changes in how a run is called, and in nothing else
_NUMBERS = ("polyclinic", "torch", "numpy", "numba")  # packages that weights depend on


def alike(runs: Sequence[Run], paths: Iterable[str | Path]) -> dict[Path, RunFolder]:
    """For runs that have no folder yet, a finished one in these folders that is the same.

    Settings, versions and the file of weights that it started from are compared; that the images
    are still the same is taken for granted, as when a run is resumed.
    """
    there = [RunFolder(path) for path in (find_runs(paths) if paths else ())]
    finished = [each for each in there if each.finished]
    found = {}
    for run in runs:
        same = (each for each in finished if _same(each, run))
        if not run.folder.exists and (other := next(same, None)):
            found[run.folder.path] = other
    return found


def take_over(run: Run, other: RunFolder) -> None:
    """Copy a finished run to where this one belongs, as a whole or not at all."""
    own = {
        "method": run.choice.title,
        "swept": dict(run.choice.swept),
        "shared_rounds": run.study.federation.rounds,
        "shared_with": called(other),
    }
    with put_in_place(run.folder) as new:
        rest = shutil.ignore_patterns("lock", "checkpoint")
        shutil.copytree(other.path, new.path, ignore=rest, dirs_exist_ok=True)
        new.write_about(other.about().model_copy(update=own))
        new.write_settings(to_toml(run.study))


def called(other: RunFolder) -> str:
    """What people call a run of another study."""
    return "/".join(other.path.resolve().parts[-3:])


def _same(other: RunFolder, run: Run) -> bool:
    changed = changes(other.settings(), tomllib.loads(to_toml(run.study)))
    if not all(change.startswith(_NAMES) for change in changed):
        return False
    about, file = other.about(), run.study.network.pretrained
    now = {**{name: version(name) for name in _NUMBERS}, **run.study.packages}
    same_start = about.start == (fingerprint(file) if file else "")
    return same_start and all(about.versions.get(name) == each for name, each in now.items())
