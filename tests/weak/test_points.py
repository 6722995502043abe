import numpy as np
import pytest

from polyclinic.masks import UNLABELLED
from polyclinic.weak.points import dab_reach, draw_dab, points
from polyclinic.weak.style import PLAIN, style_of
from tests.weak.masks import disc_and_cup

RNG = np.random.default_rng(0)


def middles(label, number):
    """The middles of all whole dabs that reach two pixels."""
    padded = np.pad(label == number, 2)
    shape = label.shape
    whole = np.ones(shape, bool)
    for down in range(-2, 3):
        for right in range(-2, 3):
            if abs(down) + abs(right) <= 2:
                whole &= padded[2 + down : 2 + down + shape[0], 2 + right : 2 + right + shape[1]]
    return sorted(map(tuple, np.argwhere(whole).tolist()))


def rectangle(side=384):
    mask = np.zeros((side, side), np.uint8)
    mask[100:201, 120:241] = 1
    return mask


def test_points_lie_on_the_shrunken_and_the_grown_box():
    label = points(rectangle(), RNG, PLAIN)

    assert middles(label, 1) == [(128, 180), (150, 153), (150, 207), (172, 180)]
    assert middles(label, 0) == [(86, 180), (150, 106), (150, 254), (214, 180)]
    assert np.bincount(label.ravel())[[0, 1]].tolist() == [52, 52]


def test_the_rims_points_are_midway_between_the_boxes():
    label = points(disc_and_cup(384, disc=0.3, cup=0.1, off=0), RNG, style_of("fundus"))

    distances = [np.hypot(row - 191.5, column - 191.5) for row, column in middles(label, 1)]
    assert np.allclose(distances, 0.2 * 384, atol=1.5)


def test_several_objects_have_points_each():
    mask = np.zeros((384, 384), np.uint8)
    mask[40:90, 40:90] = mask[250:320, 200:290] = 1

    assert len(middles(points(mask, RNG, PLAIN), 1)) == 8
    assert len(middles(points(mask, RNG, style_of("octa")), 1)) <= 4


def test_a_point_in_a_hole_moves_to_the_object():
    mask = rectangle()
    mask[110:190, 130:230] = 0
    label = points(mask, RNG, PLAIN)

    assert (label == 1).any()
    assert (mask[label == 1] == 1).all()


def test_points_beyond_the_border_are_left_out():
    mask = np.zeros((384, 384), np.uint8)
    mask[:60, 100:200] = 1
    label = points(mask, RNG, PLAIN)

    assert len(middles(label, 0)) == 3


@pytest.mark.parametrize(
    ("place", "pixels"), [((5, 5), 13), ((0, 5), 9), ((0, 0), 6), ((-2, 5), 1)]
)
def test_dabs_are_cut_at_the_border(place, pixels):
    label = np.full((11, 12), UNLABELLED, np.uint8)
    draw_dab(label, place, 2, 1, np.ones(label.shape, bool))

    assert (label == 1).sum() == pixels


@pytest.mark.parametrize(("length", "reach"), [(2, 2), (3, 3), (1, 1), (0.66, 0), (0.1, 0)])
def test_dabs_shrink_with_the_image(length, reach):
    assert dab_reach(length) == reach
