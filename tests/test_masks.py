import numpy as np
import pytest

from polyclinic.masks import group_names, known_regions, merged

REGIONS = {"disc": (1, 2), "cup": (2,)}
CLASSES = ("background", "rim", "cup")


@pytest.mark.parametrize(
    ("groups", "known"),
    [((), ["disc", "cup"]), ((0, 1, 1), ["disc"]), ((0, 0, 2), ["cup"]), ((0, 1, 0), [])],
)
def test_regions_are_known_where_they_are_unions_of_groups(groups, known):
    assert [*known_regions(REGIONS, groups)] == known


def test_groups_are_named_by_their_classes():
    assert group_names(CLASSES, ()) == {0: "background", 1: "rim", 2: "cup"}
    assert group_names(CLASSES, (0, 1, 1)) == {0: "background", 1: "rim or cup"}
    assert group_names(CLASSES, (0, 0, 2)) == {0: "background or rim", 2: "cup"}


def test_merging_keeps_what_is_unlabelled():
    mask = np.array([[0, 1, 2, 255]], np.uint8)

    assert merged(mask, (0, 1, 1)).tolist() == [[0, 1, 1, 255]]
    assert merged(mask, ()) is mask
