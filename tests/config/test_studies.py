"""The studies that come with the project."""

from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study

STUDIES = Path(__file__).parents[2] / "studies"
SMALL = sorted((STUDIES / "papers").glob("*-small.toml"))


def as_printed(small: Path) -> Path:
    return small.with_name(f"{small.stem.removesuffix('-small')}.toml")


def test_every_study_of_a_paper_has_a_reduced_twin():
    assert {*SMALL, *map(as_printed, SMALL)} == {*(STUDIES / "papers").glob("*.toml")}


def test_every_reduced_twin_loads():
    for file in SMALL:
        assert load_study(file, [], BUILT_IN).name == file.stem


@pytest.mark.slow
@pytest.mark.parametrize("file", SMALL, ids=lambda file: file.stem)
def test_a_reduced_twin_has_the_rows_of_its_paper_on_smaller_images(file):
    small, full = load_study(file, [], BUILT_IN), load_study(as_printed(file), [], BUILT_IN)
    assert [each.title for each in small.method] == [each.title for each in full.method]
    assert small.task.built.resolution < full.task.built.resolution
    assert small.federation.rounds < full.federation.rounds


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(STUDIES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_other_study_loads(file):
    assert load_study(file, [], BUILT_IN).method
