import numpy as np
import pytest
from scipy import ndimage

from polyclinic.masks import UNLABELLED
from polyclinic.weak.scribbles import Brush, ragged_scribbles, scribbles
from polyclinic.weak.style import style_of
from tests.weak.masks import blob, disc_and_cup

FUNDUS, OCTA, POLYP = (style_of(name) for name in ("fundus", "octa", "polyp"))


def draw(mask, style, seed=0, how=scribbles):
    return how(mask, np.random.default_rng(seed), style)


def goes_round(region, inside):
    """Whether there is no way out from `inside` but through the region."""
    numbers, _ = ndimage.label(~region)
    return numbers[inside] != numbers[0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_fundus_scribbles_are_closed_curves_of_even_width(seed):
    label = draw(disc_and_cup(384), FUNDUS, seed)

    for number in range(3):
        stroke = label == number
        assert goes_round(stroke, (200, 184))
        half = ndimage.distance_transform_edt(stroke).max()
        assert 1.3 < half < 3.2


def test_the_rims_scribble_is_in_the_middle_of_the_rim():
    mask = disc_and_cup(384, disc=0.3, cup=0.15, off=0)
    stroke = draw(mask, FUNDUS) == 1

    rows, columns = np.nonzero(stroke)
    radius = np.hypot(rows - 191.5, columns - 191.5)
    assert abs(np.median(radius) - 0.225 * 384) < 2
    assert np.ptp(radius) < 9


@pytest.mark.parametrize("seed", range(5))
def test_the_scribble_around_runs_between_object_and_border(seed):
    label = draw(blob(256), OCTA, seed)

    assert goes_round(label == 0, (128, 128))
    assert not (label[:8] == 0).any()
    assert ndimage.label(label == 0, np.ones((3, 3)))[1] == 1


def test_an_octa_scribble_is_open_at_the_sides():
    mask = blob(256, radius=0.12)
    rows, columns = np.mgrid[:256, :256] - 127.5
    sideways = np.abs(columns) > 2 * np.abs(rows)
    strokes = np.array([draw(mask, OCTA, seed) == 1 for seed in range(20)])

    assert strokes[:, sideways].mean() < 0.7 * strokes[:, ~sideways & (mask == 1)].mean()
    assert not all(goes_round(stroke, (128, 128)) for stroke in strokes)


def test_each_object_has_a_scribble_and_one_goes_around_all():
    mask = np.maximum(blob(200, 0.08, 0.3, 0.35), blob(200, 0.1, 0.65, 0.6))
    label = draw(mask, POLYP)

    numbers, count = ndimage.label(mask)
    assert count == 2
    assert set(numbers[label == 1]) == {1, 2}
    assert goes_round(label == 0, (60, 70))
    assert goes_round(label == 0, (130, 120))


def test_a_thin_object_is_scribbled_along_its_middle():
    mask = np.zeros((256, 256), np.uint8)
    mask[100:107, 60:200] = 1
    rows, columns = np.nonzero(draw(mask, OCTA) == 1)

    assert set(rows) == {102, 103, 104}
    assert len(set(columns)) > 130


def test_a_ring_is_scribbled_all_around():
    mask = blob(256, 0.3)
    mask[blob(256, 0.15) == 1] = 0

    assert goes_round(draw(mask, OCTA) == 1, (128, 128))


def test_a_speck_of_a_hole_makes_no_ring():
    mask = blob(256, 0.2)
    whole = draw(mask, OCTA)
    mask[128, 108] = 0
    label = draw(mask, OCTA)

    assert abs(int((label == 1).sum()) - int((whole == 1).sum())) < 10


@pytest.mark.parametrize(
    ("mask", "style"), [(disc_and_cup(384), FUNDUS), (blob(256), OCTA), (blob(384), POLYP)]
)
def test_a_ragged_scribble_is_thinner_and_broken_but_where_the_scribble_is(mask, style):
    kept, broken = [], []
    for seed in range(6):
        whole, ragged = draw(mask, style, seed), draw(mask, style, seed, ragged_scribbles)
        labelled = ragged != UNLABELLED
        assert (whole[labelled] == ragged[labelled]).all()
        for number in np.unique(mask):
            kept.append((ragged == number).sum() / (whole == number).sum())
        pieces = [ndimage.label(label == 0, np.ones((3, 3)))[1] for label in (whole, ragged)]
        broken.append(pieces[1] - pieces[0])

    assert 0.62 < np.median(kept) < 0.8
    assert min(broken) >= 3


def test_hills_do_not_depend_on_where_one_looks():
    places = np.argwhere(np.ones((30, 40), bool))
    everywhere = Brush(np.random.default_rng(0), 2.0).hills(places, (30, 40), 3)
    somewhere = Brush(np.random.default_rng(0), 2.0).hills(places[5:90:7], (30, 40), 3)

    assert np.array_equal(everywhere[5:90:7], somewhere)
    assert abs(everywhere.mean()) < 0.5
    steps = np.abs(np.diff(everywhere.reshape(30, 40), axis=1))
    assert steps.max() < 1
