import numpy as np
import pytest
from scipy.ndimage import binary_erosion, distance_transform_edt, generate_binary_structure

from polyclinic.evaluation.surface import surface, surface_distances


@pytest.mark.parametrize("shape", [(17, 23), (1, 9), (9, 1), (5, 11, 7), (1, 6, 6)])
@pytest.mark.parametrize("filled", [0.1, 0.6, 0.95, 1.0])
def test_the_surface_is_what_erosion_takes_away(shape, filled):
    mask = np.random.default_rng(0).random(shape) < filled
    eroded = binary_erosion(mask, generate_binary_structure(mask.ndim, 1))
    assert (surface(mask) == mask & ~eroded).all()


def test_a_diagonal_gap_does_not_make_a_pixel_surface():
    mask = np.ones((5, 5), bool)
    mask[1, 1] = False
    assert not surface(mask)[2, 2]
    assert surface(mask)[1, 2]
    assert surface(mask)[2, 1]


@pytest.mark.parametrize(
    ("shape", "spacing"), [((40, 60), (1.5, 0.4)), ((9, 21, 14), (2.5, 1.0, 0.3))]
)
@pytest.mark.parametrize("filled", [0.002, 0.05, 0.5])
def test_distances_are_those_of_the_distance_transform_in_the_order_of_pixels(
    shape, spacing, filled
):
    rng = np.random.default_rng(1)
    first, second = (rng.random(shape) < filled for _ in range(2))
    first.flat[5] = second.flat[-7] = True
    expected = [
        distance_transform_edt(~surface(there), sampling=spacing)[surface(here)]
        for here, there in ((first, second), (second, first))
    ]
    distances = surface_distances(first, second, spacing)
    np.testing.assert_allclose(distances, np.concatenate(expected), rtol=1e-12)


def test_two_single_pixels_are_as_far_apart_as_pythagoras_says():
    first, second = np.zeros((2, 50, 60), bool)
    first[10, 7], second[40, 47] = True, True
    assert surface_distances(first, second, (1.0, 1.0)).tolist() == [50.0, 50.0]
