import numpy as np
import pytest
from scipy import ndimage

from polyclinic.masks import UNLABELLED
from polyclinic.weak.blocks import blocks
from polyclinic.weak.style import PLAIN, style_of
from tests.weak.masks import blob, disc_and_cup

RNG = np.random.default_rng(0)


def window(region, reach):
    """What a square window leaves of a region."""
    size = np.ones((2 * reach + 1, 2 * reach + 1))
    return ndimage.binary_erosion(region, size, border_value=1)


def test_fundus_blocks_are_what_the_published_windows_leave():
    mask = disc_and_cup(384)
    label = blocks(mask, RNG, style_of("fundus"))

    for number, reach in enumerate((35, 4, 8)):
        assert np.array_equal(label == number, window(mask == number, reach))


def test_a_small_object_keeps_its_middle():
    mask = blob(384, radius=0.01)
    label = blocks(mask, RNG, style_of("fundus"))

    assert 0 < (label == 1).sum() < (mask == 1).sum()


@pytest.mark.parametrize("radius", [0.06, 0.15, 0.3])
def test_the_seam_is_a_share_of_the_way_to_the_middle(radius):
    mask = blob(256, radius=radius)
    label = blocks(mask, RNG, style_of("octa"))

    assert 0.25 < (label == 1).sum() / (mask == 1).sum() < 0.75


def test_the_images_border_is_no_edge():
    mask = np.zeros((64, 64), np.uint8)
    mask[:, :20] = 1
    label = blocks(mask, RNG, PLAIN)

    assert (label[:, 0] == 1).all()
    assert (label[:, 19] == UNLABELLED).all()


def test_little_background_keeps_a_part():
    mask = np.ones((64, 64), np.uint8)
    mask[:, -4:] = 0

    assert (blocks(mask, RNG, PLAIN) == 0).any()


def test_without_objects_all_is_background():
    assert (blocks(np.zeros((20, 20), np.uint8), RNG, PLAIN) == 0).all()
