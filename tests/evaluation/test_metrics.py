import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from medpy.metric import binary
from scipy.ndimage import gaussian_filter

from polyclinic.evaluation import METRICS, Empty, MaskError, MaskPair, Metric
from polyclinic.evaluation.metrics import TOLERANCE
from polyclinic.evaluation.scoring import all_metrics

NAMES = ("dice", "iou", "hd", "hd95", "assd", "nsd")
DISTANCES = ("hd", "hd95", "assd")


def for_any(*strategies):
    # The first call compiles, which no deadline allows for.
    return lambda test: settings(deadline=None, max_examples=60)(given(*strategies)(test))


def medpy(predicted, true, spacing):
    return {
        "dice": binary.dc(predicted, true),
        "iou": binary.jc(predicted, true),
        "hd": binary.hd(predicted, true, spacing),
        "hd95": binary.hd95(predicted, true, spacing),
        "assd": binary.assd(predicted, true, spacing),
    }


def blobs(shape, seed):
    rng = np.random.default_rng(seed)
    smooth = gaussian_filter(rng.normal(size=(2, *shape)), (0, *(4,) * len(shape)))
    common = gaussian_filter(rng.normal(size=shape), 6)
    return tuple(common / common.std() + 0.5 * each / each.std() > 0.8 for each in smooth)


@st.composite
def pairs(draw):
    shape = draw(array_shapes(min_dims=2, max_dims=3, max_side=9))
    predicted, true = (draw(arrays(np.bool_, shape)) for _ in range(2))
    return predicted, true, tuple(draw(st.floats(0.1, 10.0)) for _ in shape)


def agree(values, expected, scale=1.0):
    """MedPy does not know the surface Dice, which has its own reference below."""
    assert {name: values[name] for name in expected} == pytest.approx(
        expected, rel=1e-9, abs=1e-9 * scale
    )


@pytest.mark.parametrize("spacing", [1.0, 0.35, (0.5, 2.0)])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_of_medpy_in_2d(seed, spacing):
    predicted, true = blobs((96, 130), seed)
    agree(all_metrics(predicted, true, spacing), medpy(predicted, true, spacing))


@pytest.mark.parametrize("spacing", [1.0, (3.0, 0.5, 0.7)])
@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_medpy_in_3d(seed, spacing):
    predicted, true = blobs((12, 40, 37), seed)
    agree(all_metrics(predicted, true, spacing), medpy(predicted, true, spacing))


@for_any(pairs())
def test_values_are_those_of_medpy_on_any_masks_with_content(pair):
    predicted, true, spacing = pair
    assume(predicted.any() and true.any())
    agree(all_metrics(predicted, true, spacing), medpy(predicted, true, spacing))


def test_values_are_those_of_medpy_where_pixels_are_needles():
    predicted, true = blobs((40, 40), 0)
    for spacing in ((1e-9, 1e3), (1e3, 1e-9)):
        agree(all_metrics(predicted, true, spacing), medpy(predicted, true, spacing))


def test_objects_at_the_edge_of_the_image_have_their_surface_there():
    predicted, true = np.zeros((2, 20, 30), bool)
    predicted[:8, 20:], true[10:, 22:] = True, True
    agree(all_metrics(predicted, true), medpy(predicted, true, 1.0))


def test_a_volume_of_one_slice_is_all_surface_as_in_medpy():
    predicted, true = (mask[None] for mask in blobs((30, 30), 1))
    agree(all_metrics(predicted, true), medpy(predicted, true, 1.0))


def test_the_function_of_an_entry_is_what_is_computed():
    predicted, true = blobs((50, 50), 3)
    together = all_metrics(predicted, true, (0.5, 2.0))
    regions = [name for name, metric in METRICS.items() if metric.of_what == "region"]
    assert list(together) == list(NAMES) == regions
    pair = MaskPair(predicted, true, (0.5, 2.0))
    assert together == {name: METRICS[name].function(pair) for name in NAMES}


def test_an_entry_from_outside_is_computed_by_its_own_function(monkeypatch):
    def sensitivity(pair):
        return pair.common / pair.pixels[1]

    entry = Metric(sensitivity, "Sens", "found of what is there", "higher", "", Empty(1.0, -1.0))
    monkeypatch.setitem(METRICS, "sensitivity", entry)
    predicted, true = blobs((50, 50), 3)
    expected = (predicted & true).sum() / true.sum()
    assert all_metrics(predicted, true, names=("sensitivity",)) == {"sensitivity": expected}
    empty = np.zeros_like(true)
    assert all_metrics(empty, true)["sensitivity"] == -1.0
    assert all_metrics(empty, empty)["sensitivity"] == 1.0


def test_surfaces_are_measured_once_for_all_metrics_of_a_pair(monkeypatch):
    measured = []
    monkeypatch.setattr(
        "polyclinic.evaluation.surface.surface_distances",
        lambda *_: measured.append(1) or np.ones(3),
    )
    all_metrics(*blobs((50, 50), 3))
    assert measured == [1]


def test_the_names_choose_the_metrics_and_their_order():
    predicted, true = blobs((50, 50), 3)
    assert list(all_metrics(predicted, true, 1.0, ("hd95", "dice"))) == ["hd95", "dice"]


@for_any(pairs())
def test_the_masks_may_change_places(pair):
    predicted, true, spacing = pair
    agree(all_metrics(true, predicted, spacing), all_metrics(predicted, true, spacing))


@for_any(pairs())
def test_values_stay_within_their_bounds(pair):
    predicted, true, spacing = pair
    values = all_metrics(predicted, true, spacing)
    diagonal = math.hypot(*np.multiply(true.shape, spacing))
    assert 0 <= values["iou"] <= values["dice"] <= 1
    assert values["iou"] == pytest.approx(values["dice"] / (2 - values["dice"]))
    assert 0 <= values["hd95"] <= values["hd"] <= diagonal
    assert 0 <= values["assd"] <= values["hd"] * (1 + 1e-12)


@for_any(pairs())
def test_a_mask_agrees_fully_with_itself(pair):
    predicted, _, spacing = pair
    assert all_metrics(predicted, predicted, spacing) == {
        "dice": 1.0,
        "iou": 1.0,
        "hd": 0.0,
        "hd95": 0.0,
        "assd": 0.0,
        "nsd": 1.0,
    }


@for_any(pairs())
def test_only_equal_masks_overlap_fully(pair):
    predicted, true, spacing = pair
    assume((predicted != true).any())
    values = all_metrics(predicted, true, spacing)
    assert values["dice"] < 1
    assert values["iou"] < 1


@for_any(pairs(), st.floats(0.1, 100.0))
def test_distances_grow_with_the_spacing_and_overlaps_do_not(pair, factor):
    predicted, true, spacing = pair
    values = all_metrics(predicted, true, spacing)
    scaled = all_metrics(predicted, true, tuple(size * factor for size in spacing))
    expected = {
        name: value * (factor if name in DISTANCES else 1) for name, value in values.items()
    }
    del expected["nsd"]  # its tolerance does not grow
    agree(scaled, expected, scale=factor)


@for_any(pairs(), st.data())
def test_moving_both_masks_in_a_larger_image_changes_nothing(pair, data):
    predicted, true, spacing = pair
    assume(predicted.any() and true.any())
    margins = [tuple(data.draw(st.integers(0, 5)) for _ in range(2)) for _ in true.shape]
    moved = all_metrics(np.pad(predicted, margins), np.pad(true, margins), spacing)
    assert moved == all_metrics(predicted, true, spacing)


@for_any(pairs())
def test_turning_image_and_spacing_together_changes_nothing(pair):
    predicted, true, spacing = pair
    agree(
        all_metrics(predicted.T, true.T, spacing[::-1]),
        all_metrics(predicted, true, spacing),
    )


def test_two_empty_masks_agree_fully():
    empty = np.zeros((30, 40), bool)
    distances = {"hd": 0, "hd95": 0, "assd": 0}
    assert all_metrics(empty, empty) == {"dice": 1, "iou": 1, "nsd": 1, **distances}


@pytest.mark.parametrize("swapped", [False, True])
def test_one_empty_mask_scores_no_overlap_and_the_diagonal_as_distance(swapped):
    masks = [np.zeros((30, 40), bool), np.ones((30, 40), bool)]
    values = all_metrics(*(masks[::-1] if swapped else masks), spacing=2.0)
    assert values == {"dice": 0, "iou": 0, "nsd": 0, "hd": 100, "hd95": 100, "assd": 100}


def test_the_diagonal_honours_the_spacing_of_each_axis():
    empty, full = np.zeros((2, 3, 4), bool), np.ones((2, 3, 4), bool)
    assert all_metrics(empty, full, (6.0, 1.0, 1.0))["hd95"] == pytest.approx(13.0)


def test_zeros_and_ones_of_any_type_and_layout_are_masks():
    predicted, true = blobs((40, 50), 5)
    expected = all_metrics(predicted, true)
    readonly = true.astype(np.uint8)
    readonly.flags.writeable = False
    assert all_metrics(predicted.astype(float), readonly) == expected
    assert all_metrics(np.asfortranarray(predicted), np.repeat(true, 2, axis=0)[::2]) == expected
    assert all_metrics(predicted.tolist(), true.tolist()) == expected


def test_the_masks_are_left_as_they_were():
    predicted, true = blobs((40, 50), 5)
    before = predicted.copy(), true.copy()
    all_metrics(predicted, true)
    assert (predicted == before[0]).all()
    assert (true == before[1]).all()


@pytest.mark.parametrize(
    ("predicted", "true", "spacing", "message"),
    [
        (np.zeros((3, 4)), np.zeros((4, 3)), 1.0, r"predicted has the shape \(3, 4\), true"),
        (np.zeros(4), np.zeros(4), 1.0, "must be 2D or 3D, got 1D"),
        (np.full((2, 2), 255), np.zeros((2, 2)), 1.0, "predicted must be boolean .* found 255"),
        (np.zeros((2, 2)), np.full((2, 2), np.nan), 1.0, "true must be boolean .* found nan"),
        (np.zeros((2, 2)), np.zeros((2, 2)), 0.0, "positive and finite, got 0"),
        (np.zeros((2, 2)), np.zeros((2, 2)), (1.0, -2.0), "positive and finite, got 1, -2"),
        (np.zeros((2, 2)), np.zeros((2, 2)), math.nan, "positive and finite, got nan"),
        (np.zeros((2, 2)), np.zeros((2, 2)), (1, 1, 1), r"one per axis \(2\), got 3 numbers"),
    ],
)
def test_masks_that_cannot_be_compared_are_refused(predicted, true, spacing, message):
    with pytest.raises(MaskError, match=message):
        MaskPair(predicted, true, spacing)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(MaskError, match=r"shape.*predicted must.*true must.*spacing"):
        MaskPair(np.full((2, 2), 7), np.full((3, 2), 8), -1.0)


def test_an_unknown_metric_is_refused_with_the_nearest_name():
    mask = np.ones((2, 2), bool)
    with pytest.raises(ValueError, match='no metric "dise"; did you mean "dice"'):
        all_metrics(mask, mask, 1.0, ("dise",))
    with pytest.raises(ValueError, match='no metric "x"; there are dice, iou, hd, hd95, assd'):
        all_metrics(mask, mask, 1.0, ("x",))


def test_the_table_says_which_values_are_better():
    assert {name: metric.better for name, metric in METRICS.items()} == {
        "dice": "higher",
        "iou": "higher",
        "hd": "lower",
        "hd95": "lower",
        "assd": "lower",
        "nsd": "higher",
        "miou": "higher",
        "volume_dice": "higher",
    }


@pytest.mark.filterwarnings("ignore:monai:FutureWarning")  # MONAI uses what it has deprecated
@pytest.mark.parametrize("seed", range(3))
def test_the_surface_dice_is_monais(seed):
    import torch
    from monai.metrics import compute_surface_dice

    masks = blobs((60, 80), seed)
    one_hot = [torch.from_numpy(np.stack([~mask, mask])[None].astype(np.float32)) for mask in masks]
    expected = compute_surface_dice(
        *one_hot, class_thresholds=[TOLERANCE], include_background=False
    )
    assert all_metrics(*masks)["nsd"] == pytest.approx(float(expected))


def test_importing_the_table_loads_neither_torch_nor_the_compiler():
    program = (
        "import sys, polyclinic.evaluation.scoring, polyclinic.evaluation.statistics;"
        "sys.exit(bool({'torch', 'numba', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
