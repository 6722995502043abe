import numpy as np
import pytest
from scipy import stats

from polyclinic.evaluation.ranking import holm, ranking


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


def test_chances_are_those_of_scipys_permutation_test_at_one_site():
    rng = np.random.default_rng(2)
    one, other = values(rng, 0.8, sites=(9,)), values(rng, 0.77, sites=(9,))
    _, second = ranking({"one": one, "other": other}, higher=True)
    apart = np.array(list(one["site 0"].values())) - np.array(list(other["site 0"].values()))
    exact = stats.permutation_test((apart,), np.mean, permutation_type="samples", n_resamples=9999)
    assert second.chance == pytest.approx(exact.pvalue, abs=0.03)


def test_holms_correction_is_the_published_one():
    # Worked by hand: 0.01 × 4, then 0.02 × 3, then max with 0.03 × 2, then with 0.5 × 1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([]) == []


def test_only_cases_that_all_methods_have_count():
    whole = {"a": {"1": 0.5, "2": 0.9}, "b": {"1": 0.7}}
    part = {"a": {"1": 0.4}}
    found = ranking({"whole": whole, "part": part}, higher=True)
    assert [(each.title, each.score) for each in found] == [("whole", 0.5), ("part", 0.4)]
    assert ranking({"whole": whole, "none": {"c": {"1": 0.1}}}, higher=True) == []


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        (found,) = ranking({"a": values(rng, 0.8, sites=(60, 60, 60))}, higher=True)
        held += found.low <= 0.8 <= found.high
    assert 0.91 <= held / 400 <= 0.98
