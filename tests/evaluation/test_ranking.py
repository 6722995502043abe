import itertools
import math

import numpy as np
import pytest
import scikit_posthocs
from scipy import stats
from statsmodels.stats.multitest import multipletests

from polyclinic.evaluation.intervals import bootstrap_interval, bootstrap_intervals, t_quantile
from polyclinic.evaluation.permuting import holm, sign_flips, site_chances
from polyclinic.evaluation.ranking import ranking


def values(rng, mean, spread=0.05, sites=(30, 12)):
    return {
        f"site {place}": {f"case {n}": float(rng.normal(mean, spread)) for n in range(count)}
        for place, count in enumerate(sites)
    }


def test_methods_stand_in_the_order_of_their_means_over_sites():
    rng = np.random.default_rng(0)
    methods = {"low": values(rng, 0.5), "high": values(rng, 0.9), "middle": values(rng, 0.7)}
    found = ranking(methods, higher=True)
    assert [each.title for each in found] == ["high", "middle", "low"]
    expected = np.mean([np.mean(list(cases.values())) for cases in methods["high"].values()])
    assert found[0].score == pytest.approx(expected)
    assert found[0].low < found[0].score < found[0].high
    assert found[2].behind == pytest.approx(found[0].score - found[2].score)
    assert [each.title for each in ranking(methods, higher=False)] == ["low", "middle", "high"]


def test_only_what_chance_cannot_explain_is_told_apart():
    rng = np.random.default_rng(1)
    best = values(rng, 0.8)
    same = {s: {c: v + rng.normal(0, 0.05) for c, v in cases.items()} for s, cases in best.items()}
    worse = {s: {c: v - 0.2 for c, v in cases.items()} for s, cases in best.items()}
    found = {each.title: each for each in ranking({"a": best, "b": same, "c": worse}, higher=True)}
    assert found["a"].within_noise
    assert found["b"].within_noise
    assert not found["c"].within_noise


@pytest.mark.parametrize(("count", "within"), [(9, 1e-9), (40, 0.015)])
def test_chances_are_those_of_scipys_permutation_test_at_one_site(count, within):
    rng = np.random.default_rng(2)
    one, other = values(rng, 0.8, sites=(count,)), values(rng, 0.785, sites=(count,))
    _, second = ranking({"one": one, "other": other}, higher=True)
    apart = np.array(list(one["site 0"].values())) - np.array(list(other["site 0"].values()))
    exact = stats.permutation_test(
        (apart,), np.mean, permutation_type="samples", n_resamples=20_000, rng=rng
    )
    assert second.chance == pytest.approx(exact.pvalue, abs=within)


def test_signs_are_flipped_patient_by_patient():
    rng = np.random.default_rng(3)
    apart, patients = rng.normal(0.02, 0.05, 12), np.repeat([0, 1, 2, 3], 3)
    weights = np.repeat([1 / 12, 1 / 24], 6)
    (found,) = sign_flips([apart * weights], patients)
    sums = [
        sum(
            sign * float(apart[patients == n] @ weights[patients == n])
            for n, sign in enumerate(each)
        )
        for each in itertools.product((1, -1), repeat=4)
    ]
    assert found == np.mean([abs(each) >= abs(sums[0]) - 1e-15 for each in sums])


def test_equal_methods_differ_by_chance_for_certain():
    rng = np.random.default_rng(4)
    same = values(rng, 0.8, sites=(30,))
    found = ranking({"a": same, "b": same}, higher=True)
    assert [each.chance for each in found] == [1.0, 1.0]


def test_holms_correction_is_the_published_one():
    # Worked by hand: 0.01 × 4, then 0.02 × 3, then max with 0.03 × 2, then with 0.5 × 1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([]) == []


def test_holms_correction_is_that_of_statsmodels():
    rng = np.random.default_rng(5)
    for count in (1, 2, 7, 30):
        chances = rng.beta(0.4, 2, count)
        expected = multipletests(chances, method="holm")[1]
        assert holm(chances.tolist()) == pytest.approx(expected)


def test_the_test_over_sites_is_that_of_scikit_posthocs():
    rng = np.random.default_rng(6)
    means = {
        title: rng.normal(mean, 0.05, 8) for title, mean in (("a", 0.8), ("b", 0.7), ("c", 0.4))
    }
    found = site_chances(means, "a")
    table = scikit_posthocs.posthoc_wilcoxon(list(means.values()))
    assert list(found.values()) == pytest.approx(holm([table.loc[1, 2], table.loc[1, 3]]))
    assert found["c"] < 0.05


def test_fewer_than_six_sites_have_no_test_over_sites():
    rng = np.random.default_rng(7)
    for count in (5, 6):
        methods = {
            title: values(rng, mean, sites=(9,) * count) for title, mean in (("a", 1), ("b", 0))
        }
        _, second = ranking(methods, higher=True)
        assert second.over_sites == (None if count == 5 else pytest.approx(2 / 2**6))


def test_sites_with_equal_means_are_no_evidence_of_a_difference():
    means = {
        "a": np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.9]),
        "b": np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.9]),
    }
    assert site_chances(means, "a") == {"b": 1.0}
    means["b"][:3] -= 0.1
    assert site_chances(means, "a")["b"] > 0.05


def test_a_site_with_one_patient_has_no_interval():
    (found,) = ranking({"a": {"x": {"1": 0.5, "2": 0.6}, "y": {"1": 0.9}}}, higher=True)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    alone = ranking({"a": {"x": {"1": 0.5, "2": 0.6}}}, {"x": {"1": 4, "2": 4}}, higher=True)
    assert math.isnan(alone[0].low)


def interval_of(patients):
    """The interval with so many patients at each site, two cases each."""
    drawn = [(s, (s, n)) for s, count in enumerate(patients) for n in range(count) for _ in "ab"]
    sites, whose = zip(*drawn, strict=True)
    return bootstrap_interval(np.random.default_rng(0).normal(size=len(whose)), whose, sites)


@pytest.mark.parametrize(
    "patients", [(1,), (2,), (5,), (8,), (4, 4), (2,) * 9, (40, 2, 2, 2), (3, 3, 3), (20, 1)]
)
def test_so_few_patients_have_no_interval(patients):
    assert all(map(math.isnan, interval_of(patients)))


@pytest.mark.parametrize("patients", [(9,), (5, 5), (4, 4, 4), (40, 4, 4, 4), (3, 3, 3, 3)])
def test_so_many_patients_have_one(patients):
    low, high = interval_of(patients)
    assert low < high


def test_intervals_of_several_methods_are_those_that_each_has_alone():
    rng = np.random.default_rng(12)
    rows, patients = rng.normal(size=(3, 90)).tolist(), np.repeat(range(30), 3).tolist()
    sites = np.repeat(["a", "b"], 45).tolist()
    together = bootstrap_intervals(rows, patients, sites)
    alone = [bootstrap_interval(row, patients, sites) for row in rows]
    assert np.array(together) == pytest.approx(np.array(alone))
    assert len(set(together)) == 3


def test_quantiles_of_student_are_scipys():
    for freedom in (3, 4.5, 9, 30, 1000):
        assert t_quantile(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


def test_the_interval_of_many_patients_is_scipys_bootstrap():
    rng = np.random.default_rng(8)
    numbers = rng.beta(8, 2, 300)
    found = bootstrap_interval(numbers.tolist(), range(300))
    expected = stats.bootstrap(
        (numbers,), np.mean, method="percentile", rng=rng
    ).confidence_interval
    assert found == pytest.approx(tuple(expected), abs=0.001)


def test_only_cases_that_all_methods_have_count():
    whole = {"a": {"1": 0.5, "2": 0.9}, "b": {"1": 0.7}}
    part = {"a": {"1": 0.4}}
    found = ranking({"whole": whole, "part": part}, higher=True)
    assert [(each.title, each.score) for each in found] == [("whole", 0.5), ("part", 0.4)]
    assert ranking({"whole": whole, "none": {"c": {"1": 0.1}}}, higher=True) == []


def held(rng, sites, cases, rounds):
    """How often the interval holds the truth: Dice of patients, with cases that resemble them."""
    count = 0
    for number in range(rounds):
        drawn = [
            (site, patient, level + rng.normal(0, 0.03))
            for site, patients in enumerate(sites)
            for patient, level in enumerate(rng.beta(8, 2, patients))
            for _ in range(rng.integers(1, cases + 1))
        ]
        owners, whose, numbers = zip(*drawn, strict=True)
        low, high = bootstrap_interval(numbers, whose, owners, seed=number)
        count += low <= 0.8 <= high
    return count / rounds


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    # 200 draws with a fixed seed; 3 standard errors around 95 %.
    assert 0.90 <= held(np.random.default_rng(9), (8, 8, 8), 4, 200) <= 0.995
    assert 0.90 <= held(np.random.default_rng(9), (40, 4, 4, 4), 2, 200) <= 0.995


SIMULATED = [
    *[(9,), (10,), (14,), (5, 5), (4, 4, 4), (6, 6, 6), (3, 3, 3, 3), (40, 4, 4, 4)],
    *[(5, 5, 5, 5, 5), (8, 8, 8, 8), (12, 30, 20), (20,), (60,)],
]


@pytest.mark.slow
@pytest.mark.parametrize("cases", [1, 6])
@pytest.mark.parametrize("sites", SIMULATED)
def test_intervals_over_patients_hold_the_truth_in_93_to_97_of_100(sites, cases):
    assert 0.93 <= held(np.random.default_rng(10), sites, cases, 2000) <= 0.97


@pytest.mark.slow
def test_intervals_that_take_cases_for_patients_do_not():
    rng = np.random.default_rng(11)
    count = 0
    for number in range(300):
        levels = np.repeat(rng.beta(8, 2, 15), 6) + rng.normal(0, 0.03, 90)
        low, high = bootstrap_interval(levels.tolist(), range(90), seed=number)
        count += low <= 0.8 <= high
    assert count / 300 < 0.8
