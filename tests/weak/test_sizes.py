"""Labels of organs that no style was measured on follow the size of what their masks show."""

import numpy as np
import pytest

from polyclinic.config import Task
from polyclinic.weak import KINDS, weaken

ORGAN = Task(name="organ", classes=("background", "thing"))


def a_disc(radius, side=200):
    down, right = np.ogrid[:side, :side]
    return ((down - side / 2) ** 2 + (right - side / 2) ** 2 <= radius**2).astype(np.uint8)


def a_vessel(side=200, width=3):
    mask = np.zeros((side, side), np.uint8)
    for column in range(side):
        middle = int(side / 2 + side / 3 * np.sin(column / 15))
        mask[middle : middle + width, column] = 1
    return mask


def label(mask, kind, task=ORGAN):
    return weaken(mask, kind, np.random.default_rng(0), task)


@pytest.mark.parametrize("kind", ["scribble", "block"])
def test_the_labelled_share_of_an_object_hardly_depends_on_its_size(kind):
    shares = []
    for radius in (8, 20, 30):
        mask = a_disc(radius)
        shares.append((label(mask, kind)[mask == 1] == 1).mean())

    assert max(shares) < 2.5 * min(shares)


def test_background_is_labelled_nearer_to_smaller_things():
    mask = a_vessel()
    plain, fitted = (label(mask, "block", task) for task in (None, ORGAN))

    assert (fitted == 0).mean() > 1.5 * (plain == 0).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_made_of_vessels(kind):
    found = label(a_vessel(), kind)

    assert {0, 1} <= set(np.unique(found).tolist())


def test_tasks_that_were_measured_keep_their_style():
    mask = a_disc(8)
    known = Task(name="polyp", classes=("background", "polyp"))

    assert np.array_equal(label(mask, "block", known), label(mask, "block", "polyp"))
