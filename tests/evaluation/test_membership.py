"""Attacks are judged as an independent reference does, and intervals know patients from cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from polyclinic.evaluation.membership import Evidence, area, found_at, success

values = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=12)  # with many ties


@given(values, values)
def test_the_area_is_that_of_the_mann_whitney_statistic(members, others):
    pairs = len(members) * len(others)
    assert area(members, others) == pytest.approx(mannwhitneyu(members, others).statistic / pairs)


@given(values, values, st.sampled_from([0.01, 0.05, 0.3, 0.5]))
def test_members_are_found_at_the_best_bar_with_so_few_false_positives(members, others, rate):
    bars = [b for b in (*others, -1.0) if np.mean(np.array(others) > b) <= rate]
    assert found_at(members, others, rate) == max(np.mean(np.array(members) > b) for b in bars)


def evidence(members, others, per_patient=1):
    names = [number // per_patient for number in range(max(len(members), len(others)))]
    return Evidence(members, names[: len(members)], others, names[: len(others)])


def test_an_interval_holds_the_value_and_is_wider_where_cases_share_patients():
    rng = np.random.default_rng(1)
    members, others = rng.normal(0.5, 1, (2, 30))
    alone = success([evidence(members, others)]).auc
    shared = success([evidence(np.repeat(members, 4), np.repeat(others, 4), 4)]).auc
    assert alone.value == pytest.approx(area(members, others))
    assert alone.low < alone.value < alone.high
    assert (shared.low, shared.high) == pytest.approx((alone.low, alone.high))
    strangers = success([evidence(np.repeat(members, 4), np.repeat(others, 4))]).auc
    assert strangers.high - strangers.low < 0.7 * (shared.high - shared.low)


@pytest.mark.slow
def test_intervals_hold_one_half_about_as_often_as_they_say_where_nothing_is_to_be_found():
    rng = np.random.default_rng(2)
    found = [success([evidence(*rng.normal(size=(2, 40)))], seed=n).auc for n in range(60)]
    assert 52 <= sum(each.low <= 0.5 <= each.high for each in found) <= 59


def test_sites_count_by_their_members_with_bars_of_their_own():
    clear = evidence([5.0] * 6, [1.0] * 6)
    reversed_ = evidence([11.0] * 3, [15.0] * 6)
    both = success([clear, reversed_])
    assert both.auc.value == pytest.approx(6 / 9)
    assert [each.value for each in both.found] == pytest.approx([6 / 9, 6 / 9])


def test_few_patients_have_no_interval():
    few = success([evidence([3.0, 4.0, 5.0], [1.0] * 10)]).auc
    assert few == (1.0, None, None)


def test_a_side_without_cases_is_refused():
    with pytest.raises(ValueError, match="members and others"):
        success([evidence([1.0], [])])
