from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.data.folder import CaseFiles
from polyclinic.data.splitting import SplitRule, divide, split_cases


def case(name, patient=None, split=None):
    return CaseFiles(name, patient or name, split, Path(f"{name}.png"))


def singles(count):
    return [case(f"{number:03d}") for number in range(count)]


sizes = st.lists(st.integers(1, 6), min_size=3, max_size=30)


@given(sizes, st.integers(0, 9))
def test_no_patient_is_divided_and_every_part_has_one(patients, seed):
    cases = [case(f"{p}-{n}", f"p{p}") for p, size in enumerate(patients) for n in range(size)]

    (of,) = split_cases(cases, SplitRule(seed=seed), "alpha")
    assert of.keys() == {each.name for each in cases}
    assert set(of.values()) == {"train", "val", "test"}
    for patient in {each.patient for each in cases}:
        assert len({of[each.name] for each in cases if each.patient == patient}) == 1


@given(st.integers(10, 200))
def test_single_image_patients_are_divided_by_the_ratio_to_one_case(count):
    (of,) = split_cases(singles(count), SplitRule(), "alpha")

    found = Counter(of.values())
    for split, share in zip(("train", "val", "test"), (0.7, 0.1, 0.2), strict=True):
        assert abs(found[split] - share * count) <= 1


def test_ten_cases_make_seven_one_two():
    assert Counter(split_cases(singles(10), SplitRule(), "a")[0].values()) == {
        "train": 7,
        "val": 1,
        "test": 2,
    }


def test_the_same_seed_and_name_give_the_same_cut_and_others_another():
    first = split_cases(singles(40), SplitRule(seed=1), "alpha")

    assert split_cases(singles(40), SplitRule(seed=1), "alpha") == first
    assert split_cases(singles(40)[::-1], SplitRule(seed=1), "alpha") == first
    assert split_cases(singles(40), SplitRule(seed=2), "alpha") != first
    assert split_cases(singles(40), SplitRule(seed=1), "beta") != first


@given(sizes, st.integers(2, 3))
def test_every_case_is_tested_in_exactly_one_fold(patients, folds):
    patients = [*patients, *[1] * 6]  # so that no fold is one patient alone
    cases = [case(f"{p}-{n}", f"p{p}") for p, size in enumerate(patients) for n in range(size)]

    columns = split_cases(cases, SplitRule(folds=folds), "alpha")
    assert len(columns) == folds
    for each in cases:
        assert [of[each.name] for of in columns].count("test") == 1
    for of in columns:
        assert set(of.values()) == {"train", "val", "test"}


def test_five_folds_are_again_seven_one_two():
    for of in split_cases(singles(50), SplitRule(folds=5), "alpha"):
        assert Counter(of.values()) == {"train": 35, "val": 5, "test": 10}


def test_a_given_test_set_stays_and_validation_comes_from_train():
    cases = [case(f"{n}", split="train") for n in range(16)]
    cases += [case(f"t{n}", split="test") for n in range(5)]

    (of,) = split_cases(cases, SplitRule(), "alpha")
    assert all(of[f"t{n}"] == "test" for n in range(5))
    assert Counter(of.values()) == {"train": 14, "val": 2, "test": 5}


def test_no_validation_where_its_share_is_zero():
    (of,) = split_cases(singles(10), SplitRule(ratio=(0.8, 0.0, 0.2)), "alpha")

    assert Counter(of.values()) == {"train": 8, "test": 2}


def test_too_few_patients_are_counted_out():
    with pytest.raises(ValueError, match="2 patients cannot be divided into train, val, test"):
        split_cases(singles(2), SplitRule(), "alpha")
    with pytest.raises(ValueError, match="1 patient cannot be divided into 3 folds"):
        split_cases([case("a", "p"), case("b", "p")], SplitRule(folds=3), "alpha")


@given(sizes, st.integers(0, 9))
def test_no_part_misses_its_share_by_more_than_two_patients(patients, seed):
    cases = [case(f"{p}-{n}", f"p{p}") for p, size in enumerate(patients) for n in range(size)]
    shares = {"train": 0.7, "val": 0.1, "test": 0.2}

    found = Counter(divide(cases, shares, np.random.default_rng(seed)).values())
    for part, share in shares.items():
        assert abs(found[part] - share * len(cases)) <= 2 * max(patients)


@given(sizes)
def test_in_order_each_part_is_one_run_of_neighbours(patients):
    cases = [case(f"{p}-{n}", f"p{p}") for p, size in enumerate(patients) for n in range(size)]
    (of,) = split_cases(cases[::-1], SplitRule(in_order=True), "alpha")
    parts = [of[each.name] for each in cases]
    assert list(dict.fromkeys(parts)) == ["train", "val", "test"]
    assert parts == sorted(parts, key=["train", "val", "test"].index)
    for patient in {each.patient for each in cases}:
        assert len({of[each.name] for each in cases if each.patient == patient}) == 1
    counted = [sum(patients[:stop]) for stop in range(1, len(patients) - 1)]
    wanted = 0.7 * len(cases)
    nearest = min(abs(stop - wanted) for stop in counted)  # two patients are left for the others
    assert abs(parts.count("train") - wanted) == pytest.approx(nearest)


def test_in_order_ten_follows_nine_and_no_seed_matters():
    cases = [case(f"frame{number}") for number in range(1, 21)]
    (of,) = split_cases(cases, SplitRule(in_order=True), "alpha")
    assert [name for name in of if of[name] == "val"] == ["frame15", "frame16"]
    assert split_cases(cases, SplitRule(in_order=True, seed=5), "beta") == [of]


def test_in_order_validation_is_the_last_of_what_is_not_for_testing_and_folds_follow_each_other():
    cases = [case(f"{n:02d}", split="test" if n >= 16 else "train") for n in range(20)]
    (of,) = split_cases(cases, SplitRule(in_order=True), "alpha")
    assert [name for name in of if of[name] == "val"] == ["14", "15"]
    folds = split_cases(singles(9), SplitRule(folds=3, in_order=True), "alpha")
    tested = [[name for name in fold if fold[name] == "test"] for fold in folds]
    assert tested == [["000", "001", "002"], ["003", "004", "005"], ["006", "007", "008"]]
