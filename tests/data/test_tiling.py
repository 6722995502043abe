import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.data.tiling import tile_places, tile_starts, tile_weights


@given(st.integers(1, 200), st.integers(0, 200), st.floats(0, 0.9))
def test_tiles_cover_every_pixel_and_nothing_else(side, tile, overlap):
    starts = tile_starts(side, tile, overlap)
    length = tile if 0 < tile < side else side
    seen = np.zeros(side + 1)
    for start in starts:
        seen[start : start + length] += 1

    assert (seen[:side] > 0).all()
    assert seen[side] == 0
    assert starts == sorted(set(starts))


@pytest.mark.parametrize(("side", "tile"), [(100, 32), (65, 64), (512, 256)])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5])
def test_neighbours_share_at_least_the_overlap(side, tile, overlap):
    starts = tile_starts(side, tile, overlap)

    assert all(b - a <= tile * (1 - overlap) for a, b in itertools.pairwise(starts))


def test_tiles_without_overlap_are_a_grid():
    assert tile_starts(128, 32, 0) == [0, 32, 64, 96]
    assert len(tile_places(128, 32, 0)) == 16


def test_a_pixel_counts_most_in_the_middle_of_a_tile_and_a_little_everywhere():
    weights = tile_weights(8)

    assert weights.min() > 0
    assert np.unravel_index(weights.argmax(), weights.shape) == (3, 3)
    assert np.array_equal(weights, weights[::-1])
    assert np.array_equal(weights, weights.T)
