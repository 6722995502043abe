import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from polyclinic.evaluation.statistics import separation


def normal(mean, deviation, count=200_000):
    return np.random.default_rng(0).normal(mean, deviation, (count, 1))


def divergence(one, other):
    return quad(lambda x: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), -30, 30)[0]


def test_it_is_the_mean_of_both_divergences_of_normal_distributions():
    one, other = norm(1.0, 2.0), norm(-0.5, 1.0)
    features = np.concatenate((normal(1.0, 2.0), normal(-0.5, 1.0)))
    foreground = np.arange(len(features)) < len(features) // 2
    expected = (divergence(one, other) + divergence(other, one)) / 2
    assert separation(features, foreground) == pytest.approx(expected, rel=0.03)
    assert separation(features, ~foreground) == pytest.approx(separation(features, foreground))


def test_alike_features_are_not_apart_and_those_further_apart_are_more_so():
    same = np.random.default_rng(0).normal(size=(4000, 3))
    foreground = np.arange(4000) % 2 == 0
    shifted = [separation(same + by * foreground[:, None], foreground) for by in (0, 1, 2)]
    assert shifted[0] < 0.01
    assert shifted[0] < shifted[1] < shifted[2]


def test_constant_features_tell_nothing_and_one_sided_ones_not_everything():
    foreground = np.arange(100) < 50
    assert separation(np.ones((100, 2)), foreground) == 0
    one_sided = np.random.default_rng(0).normal(size=(100, 1)) * foreground[:, None]
    assert 0 < separation(one_sided, foreground) < 1000


def test_one_pixel_has_no_distribution():
    assert math.isnan(separation(np.ones((3, 2)), np.array([True, False, False])))
