import math
import statistics as reference
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.evaluation.statistics import OVERALL, Spread, across_seeds, spread, summarise


class Row(NamedTuple):
    site: str
    case: str
    region: str
    metric: str
    value: float


ROWS = [
    Row("alpha", "1", "disc", "dice", 0.9),
    Row("alpha", "1", "cup", "dice", 0.7),
    Row("alpha", "2", "disc", "dice", 0.8),
    Row("alpha", "2", "cup", "dice", 0.4),
    Row("alpha", "3", "disc", "dice", 1.0),
    Row("alpha", "3", "cup", "dice", 0.4),
    Row("beta", "1", "disc", "dice", 0.5),
    Row("beta", "1", "cup", "dice", 0.1),
]


def close(one, other):
    assert (one.mean, one.std, one.count) == pytest.approx((other.mean, other.std, other.count))


def test_the_spread_over_sites_is_the_one_a_paper_prints():
    sites = [0.9661, 0.9185, 0.9317, 0.9381, 0.9300, 0.9002, 0.9661]
    rows = [Row(f"site {index}", "x", "disc", "dice", value) for index, value in enumerate(sites)]
    summary = summarise(rows)["dice"]["disc"]
    assert f"{summary.average.mean:.4f}" == "0.9358"
    assert f"{summary.deviation.mean:.4f}" == "0.0222"
    assert summary.average.count == 7


def test_a_site_has_the_mean_and_spread_over_its_cases():
    sites = summarise(ROWS)["dice"]["disc"].sites
    close(sites["alpha"], Spread(0.9, (0.02 / 3) ** 0.5, 3))
    close(sites["beta"], Spread(0.5, 0.0, 1))


def test_sites_count_equally_over_sites_and_by_their_cases_over_images():
    summary = summarise(ROWS)["dice"]["disc"]
    assert (summary.average.mean, summary.deviation.mean) == pytest.approx((0.7, 0.2))
    assert math.isnan(summary.average.std)
    assert math.isnan(summary.deviation.std)
    values = [0.9, 0.8, 1.0, 0.5]
    close(
        summary.images,
        Spread(reference.mean(values), reference.pstdev(values), 4),
    )


def test_overall_scores_each_case_by_the_mean_of_its_regions():
    regions = summarise(ROWS)["dice"]
    assert list(regions) == ["disc", "cup", OVERALL]
    values = [0.8, 0.6, 0.7]
    close(regions[OVERALL].sites["alpha"], Spread(0.7, reference.pstdev(values), 3))
    together = regions[OVERALL]
    assert (together.average.mean, together.deviation.mean) == pytest.approx((0.5, 0.2))
    assert regions[OVERALL].images.mean == pytest.approx((0.8 + 0.6 + 0.7 + 0.3) / 4)


def test_overall_of_a_single_region_is_that_region():
    regions = summarise(row for row in ROWS if row.region == "cup")["dice"]
    assert regions[OVERALL] == regions["cup"]


def test_metrics_are_kept_apart_and_sites_in_the_order_they_come():
    other = [row._replace(metric="hd95", value=10 * row.value) for row in reversed(ROWS)]
    summaries = summarise([*ROWS, *other])
    assert list(summaries) == ["dice", "hd95"]
    assert list(summaries["dice"]["disc"].sites) == ["alpha", "beta"]
    assert list(summaries["hd95"]["disc"].sites) == ["beta", "alpha"]
    assert summaries["hd95"]["disc"].average.mean == pytest.approx(7.0)


def test_scores_of_two_rounds_cannot_be_mixed():
    with pytest.raises(ValueError, match="case 1 of site alpha has two scores of dice for disc"):
        summarise([*ROWS, ROWS[0]])


def test_a_region_cannot_take_the_name_of_the_mean():
    with pytest.raises(ValueError, match='a region cannot be called "overall"'):
        summarise([Row("alpha", "1", "overall", "dice", 0.9)])


def test_no_rows_give_no_summaries():
    assert summarise([]) == {}


def test_seeds_are_summed_up_by_the_spread_of_their_numbers():
    shifted = [row._replace(value=row.value + 0.1) for row in ROWS if row.site == "beta"]
    seeds = [summarise(ROWS)["dice"]["disc"], summarise([*ROWS[:6], *shifted])["dice"]["disc"]]
    together = across_seeds(seeds)
    close(together.sites["alpha"], Spread(0.9, 0.0, 2))
    close(together.sites["beta"], Spread(0.55, 0.1 / math.sqrt(2), 2))
    close(together.average, Spread(0.725, 0.05 / math.sqrt(2), 2))
    close(together.deviation, Spread(0.175, 0.05 / math.sqrt(2), 2))
    assert together.images.mean == pytest.approx((3.2 + 3.3) / 8)


def test_one_seed_has_no_spread():
    summary = summarise(ROWS)["dice"][OVERALL]
    alone = across_seeds([summary]).average
    assert (alone.mean, alone.count) == (summary.average.mean, 1)
    assert math.isnan(alone.std)


def test_seeds_of_different_sites_are_refused():
    seeds = [summarise(rows)["dice"]["disc"] for rows in (ROWS, ROWS[:6])]
    with pytest.raises(ValueError, match=r"got \['alpha', 'beta'\] and \['alpha'\]"):
        across_seeds(seeds)


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="no values"):
        spread([])
    with pytest.raises(ValueError, match="no summary"):
        across_seeds([])


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_mean_and_deviation_are_those_of_the_whole_population(values):
    result = spread(values)
    assert result.mean == pytest.approx(reference.fmean(values), abs=1e-9)
    assert result.std == pytest.approx(reference.pstdev(values), abs=1e-6)
    assert result.count == len(values)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=5))
def test_mean_over_images_is_the_mean_average_weighted_by_their_cases(sites):
    rows = [
        Row(f"site {index}", str(case), "faz", "dice", value)
        for index, values in enumerate(sites)
        for case, value in enumerate(values)
    ]
    summary = summarise(rows)["dice"]["faz"]
    weighted = sum(each.mean * each.count for each in summary.sites.values())
    assert summary.images.mean == pytest.approx(weighted / summary.images.count)
