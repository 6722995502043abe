import os
from pathlib import Path

import numpy as np
import pytest
from medpy.metric import binary
from PIL import Image

from polyclinic.evaluation.scoring import (
    ScoreRow,
    ScoringError,
    all_metrics,
    numbered,
    score_cases,
    union,
)

REGIONS = {"disc": (1, 2), "cup": (2,)}


def class_map(rim, cup, size=32):
    """A disc around the middle with a cup in it, by their half widths; 0 leaves one out."""
    away = np.abs(np.mgrid[:size, :size] - size // 2).max(axis=0)
    return ((away < rim).astype(np.uint8) + (away < cup)).astype(np.uint8)


@pytest.fixture
def cases():
    predicted = np.stack([class_map(10, 4), class_map(8, 0), class_map(9, 0)])
    true = np.stack([class_map(9, 6), class_map(8, 4), class_map(9, 0)])
    spacing = np.array([[1.0, 1.0], [0.5, 2.0], [1.0, 1.0]])
    return predicted, true, ("a", "b", "c"), REGIONS, spacing


def test_there_is_a_row_for_each_case_region_and_metric_in_this_order(cases):
    rows = score_cases(*cases, ("dice", "hd"))
    assert [row[:3] for row in rows] == [
        (case, region, metric)
        for case in ("a", "b", "c")
        for region in ("disc", "cup")
        for metric in ("dice", "hd")
    ]


def test_a_region_is_the_union_of_its_classes_and_each_case_has_its_spacing(cases):
    predicted, true, _, _, spacing = cases
    rows = score_cases(*cases, ("dice", "iou", "hd", "hd95", "assd"))
    values = {row[:3]: row.value for row in rows}
    disc = predicted[1] > 0, true[1] > 0
    assert values["b", "disc", "dice"] == pytest.approx(binary.dc(*disc))
    disc = predicted[0] > 0, true[0] > 0
    assert values["a", "disc", "assd"] == pytest.approx(binary.assd(*disc))
    cup = predicted[1] == 2, true[1] == 2
    assert values["b", "cup", "hd95"] == all_metrics(*cup, spacing[1])["hd95"]


def test_empty_regions_follow_the_rule(cases):
    rows = score_cases(*cases, ("dice", "hd95"))
    assert ScoreRow("b", "cup", "dice", 0.0) in rows
    assert ScoreRow("b", "cup", "hd95", float(np.hypot(16, 64))) in rows
    assert ScoreRow("c", "cup", "dice", 1.0) in rows
    assert ScoreRow("c", "cup", "hd95", 0.0) in rows


def test_volumes_are_scored_like_images():
    predicted = np.stack([class_map(9, 4)] * 3)[None]
    true = np.stack([class_map(8, 4)] * 3)[None]
    (row,) = score_cases(
        predicted, true, ("v",), {"disc": (1, 2)}, np.array([[3.0, 1, 1]]), ("hd",)
    )
    assert row.value == pytest.approx(binary.hd(predicted[0] > 0, true[0] > 0, (3.0, 1, 1)))


def test_no_cases_give_no_rows():
    nothing = np.zeros((0, 8, 8), np.uint8)
    assert score_cases(nothing, nothing, (), REGIONS, np.ones((0, 2)), ("dice",)) == []


def test_the_union_of_several_classes_is_where_any_of_them_is():
    numbers = np.arange(6).reshape(2, 3)
    assert (union(numbers, (1, 4, 5)) == np.isin(numbers, (1, 4, 5))).all()


def test_cases_that_cannot_be_scored_are_refused_with_all_reasons_at_once(cases):
    predicted, true, _, _, _ = cases
    true = true.copy()
    true[0, 0, 0] = true[1] = 255
    with pytest.raises(ScoringError) as caught:
        score_cases(
            predicted[:, :-1], true, ("a", "b"), {"disc": ()}, np.ones((3, 3)), ("dice", "hd59")
        )
    for part in (
        'no metric "hd59"; did you mean "hd95"?',
        'region "disc" has no classes',
        "predicted has the shape (3, 31, 32), true has (3, 32, 32)",
        "2 names for 3 cases",
        "spacing must have the shape (3, 2), got (3, 3)",
        "unlabelled pixels (255) were found in a, b",
    ):
        assert part in str(caught.value)


def test_scores_of_real_masks_are_those_of_medpy():
    folder = os.environ.get("POLYCLINIC_REAL_DATA")
    if not folder:
        pytest.skip("set POLYCLINIC_REAL_DATA to the folder of real data")
    paths = sorted(Path(folder).glob("odoc/refuge-val/test/masks/*"))[:4]
    true = np.stack([np.asarray(Image.open(path)) for path in paths])
    predicted = np.roll(true, (3, -2), axis=(1, 2))
    names = [path.stem for path in paths]
    rows = score_cases(predicted, true, names, REGIONS, np.ones((4, 2)), ("dice", "hd95", "assd"))
    references = {"dice": binary.dc, "hd95": binary.hd95, "assd": binary.assd}
    for case, region, metric, value, _ in rows:
        index = names.index(case)
        pair = (np.isin(each[index], REGIONS[region]) for each in (predicted, true))
        assert value == pytest.approx(references[metric](*pair), abs=1e-9)


def test_miou_is_the_mean_over_all_classes_with_the_background():
    true, predicted = (np.zeros((1, 4, 4), np.uint8) for _ in range(2))
    true[0, :2, :2], true[0, 3] = 1, 2
    predicted[0, :2, :1], predicted[0, 3] = 1, 2
    sizes = np.ones((1, 2))
    (row,) = score_cases(predicted, true, ["a"], {"one": (1,)}, sizes, ["miou"], classes=range(3))
    assert (row.region, row.metric) == ("all classes", "miou")
    assert row.value == pytest.approx(np.mean([8 / 10, 2 / 4, 4 / 4]))
    # Where masks do not tell all classes apart there is no such mean.
    assert score_cases(predicted, true, ["a"], {"one": (1,)}, sizes, ["miou"]) == []


def test_the_dice_of_a_volume_takes_all_slices_of_a_patient_as_one():
    true = np.zeros((3, 2, 10), np.uint8)
    true[0, 0, :8] = true[1, 0, :2] = true[2, 1, :4] = 1
    predicted = true.copy()
    predicted[1] = 0  # a small slice is missed
    predicted[2, 1, 2:4] = 0
    rows = score_cases(
        predicted,
        true,
        ["p-1", "p-2", "q-1"],
        {"organ": (1,)},
        np.ones((3, 2)),
        ["dice", "volume_dice"],
        patients=numbered(["p", "p", "q"]),
    )
    volumes = {row.case: (row.value, row.patient) for row in rows if row.metric == "volume_dice"}
    assert volumes == {"p-1": (pytest.approx(16 / 18), 1), "q-1": (pytest.approx(4 / 6), 2)}
    assert [row.value for row in rows if row.metric == "dice"] == pytest.approx([1, 0, 4 / 6])
    assert [row.patient for row in rows if row.metric == "dice"] == [1, 1, 2]
