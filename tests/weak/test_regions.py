import numpy as np
import pytest
from hypothesis import given
from scipy import ndimage

from polyclinic.weak.regions import deepest, depth, parts, square_depth, without_holes
from tests.weak.masks import nasty_masks


@given(nasty_masks())
def test_depth_is_the_euclidean_distance_to_what_is_outside(mask):
    region = mask == 1
    expected = ndimage.distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    assert np.allclose(depth(region), expected, atol=1e-4)

    if not region.all():
        assert np.allclose(depth(region, edge=False), ndimage.distance_transform_edt(region))


@given(nasty_masks())
def test_square_depth_is_how_often_a_square_can_peel(mask):
    region = mask == 1
    depths = square_depth(region)

    if region.all():
        assert (depths == 1).all()
    for peels in range(3):
        left = ndimage.binary_erosion(region, np.ones((3, 3)), peels + 1, border_value=1)
        if not region.all():
            assert np.array_equal(depths > peels + 1, left)


def test_without_an_outside_all_is_equally_deep():
    assert (depth(np.ones((3, 5), bool), edge=False) == 1).all()


def test_the_deepest_pixel_is_in_the_middle():
    region = np.zeros((9, 20), bool)
    region[1:8, 3:10] = True

    assert deepest(region) == (4, 6)


@given(nasty_masks())
def test_parts_are_the_connected_ones_in_their_windows(mask):
    region = mask > 0
    rebuilt = np.zeros_like(mask, dtype=int)
    found = list(parts(region, several=True, around=2))
    for window, part in found:
        rebuilt[window] += part

    assert np.array_equal(rebuilt, region)
    assert len(found) == ndimage.label(region, np.ones((3, 3)))[1]
    assert len(list(parts(region, several=False))) == region.any()


@given(nasty_masks())
def test_holes_are_filled(mask):
    region = mask == 1

    assert np.array_equal(without_holes(region), ndimage.binary_fill_holes(region))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1)])
def test_thin_images_are_no_problem(shape):
    assert (depth(np.ones(shape, bool)) == 1).all()
    assert deepest(np.ones(shape, bool)) == (0, 0)
