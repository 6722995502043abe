"""What the documentation says that shared rounds save, counted without training."""

import re
from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.run import runs_of
from polyclinic.engine.sharing import Sharing, rounds_of

ROOT = Path(__file__).parents[2]


def saved(file):
    """Runs, rounds and trained rounds of a study, and the share that is saved, as the page says."""
    # Which sites can be left out is known only where their folder is.
    left_out = ["data.source=synthetic", "data.leave_out=each"]
    study = load_study(file, left_out if "data.leave_out" in file.read_text() else [], BUILT_IN)
    runs = runs_of(study, Path("nowhere"))
    rounds = sum(map(rounds_of, runs))
    shared = sum(Sharing(runs).rounds(run, fresh=False) for run in runs)
    return [str(len(runs)), str(rounds), str(rounds - shared), f"{100 * shared / rounds:.0f} %"]


def told_savings():
    """What docs/runs.md says of each study: its runs, rounds, trained rounds and savings."""
    lines = re.findall(r"^\| (`.+\.toml`) \| (.* %) \|$", (ROOT / "docs/runs.md").read_text(), re.M)
    return {
        name: numbers.split(" | ")
        for names, numbers in lines
        for name in re.findall(r"`(.+?)`", names)
    }


def test_the_documentation_says_what_sharing_saves():
    told = told_savings()
    few = {name: numbers for name, numbers in told.items() if int(numbers[0]) < 90}
    assert {name.startswith("papers/") for name in few} == {True, False}
    for name, numbers in few.items():
        assert numbers == saved(ROOT / "studies" / name)


@pytest.mark.slow
def test_the_documentation_lists_every_study_that_shares():
    studies, told = ROOT / "studies", told_savings()
    files = [*studies.glob("*.toml"), *studies.glob("papers/*.toml")]
    found = {
        str(file.relative_to(studies)): saved(file)
        for file in files
        if not file.stem.endswith("-small")
    }
    assert told == {name: numbers for name, numbers in found.items() if numbers[-1] != "0 %"}
