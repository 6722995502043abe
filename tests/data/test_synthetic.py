from collections import defaultdict
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.data.synthetic import FEDERATIONS, draw_cases, draw_site, federation
from polyclinic.data.tasks import TASKS

TASK_NAMES = tuple(FEDERATIONS)
EVERY_SITE = [(task, site.name) for task in TASK_NAMES for site in federation(task)]


def dice(first, second):
    return 2 * (first & second).sum() / (first.sum() + second.sum())


def region_dice(task, first, second):
    """Mean Dice over cases and scored regions of two stacks of masks."""
    regions = TASKS[task].regions.values()
    return np.mean(
        [
            dice(np.isin(one, classes), np.isin(other, classes))
            for one, other in zip(first, second, strict=True)
            for classes in regions
        ]
    )


def correlation(first, second):
    return np.corrcoef(first.ravel().astype(float), second.ravel().astype(float))[0, 1]


def halved(images):
    count, channels, side, _ = images.shape
    return images.reshape(count, channels, side // 2, 2, side // 2, 2).mean(axis=(3, 5))


def test_there_is_a_federation_for_every_task():
    assert set(FEDERATIONS) == set(TASKS)


def test_site_names_are_different_words_everywhere():
    names = [name for _, name in EVERY_SITE]
    assert len(set(names)) == len(names)
    assert all(name.isalpha() and name.islower() for name in names)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_a_federation_has_four_to_six_sites_of_unequal_size(task):
    sites = federation(task)
    counts = [sum(site.patients) * site.slices for site in sites]
    train = [site.patients[0] for site in sites]
    assert 4 <= len(sites) <= 6
    assert 150 <= sum(counts) <= 250
    assert max(train) >= 2 * min(train)


@pytest.mark.parametrize(("task", "site"), EVERY_SITE)
def test_a_site_has_the_shapes_of_its_task_and_every_class_in_every_mask(task, site):
    drawn = draw_site(task, site, resolution=64, seed=3, size=0.25)
    count = len(drawn.names)
    assert drawn.name == site
    assert drawn.images.shape == (count, TASKS[task].channels, 64, 64)
    assert drawn.masks.shape == (count, 64, 64)
    assert drawn.images.dtype == drawn.masks.dtype == np.uint8
    assert len(drawn.patients) == len(drawn.splits) == len(set(drawn.names)) == count
    for mask in drawn.masks:
        assert set(np.unique(mask)) == set(range(len(TASKS[task].classes)))


@pytest.mark.parametrize("resolution", [16, 32, 48, 256, 384])
@pytest.mark.parametrize("task", TASK_NAMES)
def test_other_resolutions_hold_every_class_as_well(task, resolution):
    for site in federation(task):
        drawn = draw_site(task, site.name, resolution=resolution, seed=0, size=0.01)
        assert drawn.images.shape[2:] == (resolution, resolution)
        for mask in drawn.masks:
            assert set(np.unique(mask)) == set(range(len(TASKS[task].classes)))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**40), where=st.sampled_from(EVERY_SITE), side=st.sampled_from([16, 32])
)
def test_no_seed_draws_a_mask_without_one_of_the_classes(seed, where, side):
    task, site = where
    drawn = draw_site(task, site, resolution=side, seed=seed, size=0.01)
    for mask in drawn.masks:
        assert set(np.unique(mask)) == set(range(len(TASKS[task].classes)))


@pytest.mark.parametrize("task", TASK_NAMES)
def test_the_same_seed_draws_the_same_and_another_seed_does_not(task):
    site = federation(task)[0].name
    first, again, other = (
        draw_site(task, site, resolution=32, seed=seed, size=0.2) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first.images, again.images)
    np.testing.assert_array_equal(first.masks, again.masks)
    assert (first.images != other.images).mean() > 0.5
    assert (first.masks != other.masks).any()


@pytest.mark.parametrize("task", TASK_NAMES)
def test_size_changes_how_many_cases_there_are_and_not_what_they_are(task):
    site = federation(task)[0]
    few = draw_site(task, site.name, resolution=32, seed=1, size=0.5)
    usual = draw_site(task, site.name, resolution=32, seed=1)
    assert len(usual.names) == sum(site.patients) * site.slices
    assert len(few.names) == sum(round(0.5 * count) for count in site.patients) * site.slices
    for index, name in enumerate(few.names):
        np.testing.assert_array_equal(few.images[index], usual.images[usual.names.index(name)])


@pytest.mark.parametrize(("task", "site"), EVERY_SITE)
def test_no_patient_is_in_two_splits_and_no_split_is_empty(task, site):
    drawn = draw_site(task, site, resolution=16, seed=0, size=0.05)
    splits = defaultdict(set)
    for patient, split in zip(drawn.patients, drawn.splits, strict=True):
        splits[patient].add(split)
    assert all(len(found) == 1 for found in splits.values())
    assert set(drawn.splits) == {"train", "val", "test"}


@pytest.mark.parametrize("task", TASK_NAMES)
def test_half_the_resolution_shows_the_same_anatomy_but_for_the_grain(task):
    site = federation(task)[0]
    clean = replace(site, look=replace(site.look, noise=0.0))
    fine, coarse = (
        draw_cases(task, clean, resolution=side, seed=2, size=0.1) for side in (128, 64)
    )
    assert region_dice(task, fine.masks[:, ::2, ::2], coarse.masks) > 0.9
    assert correlation(halved(fine.images), coarse.images) > 0.99


def test_a_prostate_patient_has_several_slices_with_the_largest_near_the_middle():
    site = federation("prostate")[0]
    drawn = draw_site("prostate", site.name, resolution=64, seed=0)
    areas = (drawn.masks == 1).sum(axis=(1, 2)).reshape(-1, site.slices)
    assert site.slices >= 3
    assert (areas.max(axis=1) > 1.2 * areas[:, 0]).all()
    assert (areas[:, 1:-1].max(axis=1) >= areas[:, [0, -1]].max(axis=1)).mean() > 0.9


def test_slices_of_one_patient_look_more_alike_than_those_of_others():
    drawn = draw_site("prostate", "opal", resolution=64, seed=0, size=0.5)
    slices = drawn.images.astype(float).reshape(-1, federation("prostate")[0].slices, 64, 64)
    same = [correlation(patient[1], patient[2]) for patient in slices]
    others = [correlation(one[1], other[2]) for one, other in combinations(slices, 2)]
    assert np.mean(same) > np.mean(others)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_sites_outline_one_and_the_same_picture_differently(task):
    sites = federation(task)
    first = sites[0]
    styles = [replace(first, annotation=site.annotation) for site in sites]
    drawn = [draw_cases(task, style, resolution=64, seed=0, size=0.2) for style in styles]
    for one, other in combinations(drawn, 2):
        np.testing.assert_array_equal(one.images, other.images)
    agreement = [region_dice(task, one.masks, other.masks) for one, other in combinations(drawn, 2)]
    assert min(agreement) < 0.8
    assert np.mean(agreement) < 0.93


@pytest.mark.parametrize("task", TASK_NAMES)
def test_some_sites_would_outline_the_same_picture_differently(task):
    def disagree(one, other):
        styles = (one, replace(one, annotation=other.annotation))
        masks = [draw_cases(task, site, resolution=64, seed=0, size=0.2).masks for site in styles]
        return region_dice(task, *masks) < 0.8

    assert any(disagree(*pair) for pair in combinations(federation(task), 2))


@pytest.mark.parametrize("task", TASK_NAMES)
def test_agreeing_sites_outline_one_and_the_same_picture_alike(task):
    sites = federation(task, "agreeing")
    styles = [replace(sites[0], annotation=site.annotation) for site in sites]
    drawn = [draw_cases(task, style, resolution=32, seed=0, size=0.2) for style in styles]
    for other in drawn[1:]:
        np.testing.assert_array_equal(drawn[0].masks, other.masks)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_agreeing_sites_have_few_pictures_to_learn_from_and_no_fewer_to_be_judged_by(task):
    assert [site.name for site in federation(task, "agreeing")] == [
        site.name for site in federation(task)
    ]
    for site in federation(task, "agreeing"):
        train, val, test = (count * site.slices for count in site.patients)
        assert 4 <= train <= 5 < test
        assert val >= 4


def test_pictures_of_an_agreeing_site_vary_more_than_the_same_pictures_otherwise():
    for site, agreeing in zip(federation("octa"), federation("octa", "agreeing"), strict=True):
        same = replace(site, patients=agreeing.patients)
        usual, varied = (
            draw_cases("octa", each, resolution=32, seed=0).images.mean((1, 2, 3)).std()
            for each in (same, agreeing)
        )
        assert varied > 1.3 * usual


def test_all_mistakes_are_told_at_once_with_what_is_allowed():
    with pytest.raises(ValueError, match="4 mistakes") as caught:
        draw_site("fundus", "ambre", resolution=8, seed=-1, size=0)
    for part in ('did you mean "amber"?', "resolution 8", "16 or more", "seed -1", "size 0"):
        assert part in str(caught.value)


def test_an_unknown_task_is_told_with_the_nearest_right_name():
    with pytest.raises(ValueError, match='did you mean "fundus"'):
        federation("fundis")
