"""Runs that a study has under other titles than before."""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyclinic.config import changes, to_toml
from polyclinic.engine.run import Run
from polyclinic.runs import RunError, RunFolder

_TITLE = "method[0].title "


def find_renamed(runs: Sequence[Run]) -> list[Run]:
    """Move what was begun under other titles to the runs with the same settings; these it gives.

    A method's title can follow from the other methods of a study, its settings cannot.
    """
    own = {run.folder.path for run in runs}
    missing = [run for run in runs if not run.folder.path.exists()]
    found = []
    for earlier in _begun(runs[0].folder.path.parents[1]) if missing else ():
        match = next((run for run in missing if _alike(earlier, run)), None)
        if earlier.path not in own and match is not None:
            _move(earlier, match)
            missing.remove(match)
            found.append(match)
    return found


def _begun(study: Path) -> Iterator[RunFolder]:
    for path in sorted(study.glob("*/seed-*")):
        folder = RunFolder(path)
        try:
            folder.settings(), folder.about()
        except RunError:
            continue
        yield folder


def _alike(earlier: RunFolder, run: Run) -> bool:
    changed = changes(earlier.settings(), tomllib.loads(to_toml(run.study)))
    return all(change.startswith(_TITLE) for change in changed)


def _move(earlier: RunFolder, run: Run) -> None:
    with earlier.lock():
        about = {"method": run.choice.title, "swept": dict(run.choice.swept)}
        # The files first: cut short here, the run is still where it was and alike.
        earlier.write_about(earlier.about().model_copy(update=about))
        earlier.write_settings(to_toml(run.study))
        run.folder.path.parent.mkdir(parents=True, exist_ok=True)
        earlier.path.rename(run.folder.path)
