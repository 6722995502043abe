import numpy as np
import pytest
from scipy.optimize import minimize

from polyclinic.report.projection import neighbourhoods, principal_components, tsne


def clusters(count=40, groups=3, channels=8, distance=8.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = distance * np.linalg.qr(rng.normal(size=(channels, channels)))[0][:groups]
    owner = np.repeat(np.arange(groups), count)
    return centres[owner] + rng.normal(size=(count * groups, channels)), owner


def test_principal_components_are_uncorrelated_and_hold_the_most_variance():
    values, _ = clusters()
    found = principal_components(values)
    covariance = np.cov(values.T)
    largest = np.sort(np.linalg.eigvalsh(covariance))[::-1][:2]
    np.testing.assert_allclose(np.cov(found.T), np.diag(largest), atol=1e-8)


def test_principal_components_do_not_depend_on_a_sign():
    values, _ = clusters()
    found = principal_components(values)
    for column in found.T:
        assert column[np.abs(column).argmax()] > 0
    np.testing.assert_allclose(np.abs(principal_components(-values)), np.abs(found), atol=1e-8)


def test_one_channel_has_a_second_component_of_nought():
    found = principal_components(np.arange(5.0)[:, None])
    assert found.shape == (5, 2)
    assert not found[:, 1].any()


@pytest.mark.parametrize("perplexity", [5.0, 30.0])
def test_every_neighbourhood_has_the_perplexity_asked_for(perplexity):
    values, _ = clusters()
    shares = neighbourhoods(values, perplexity)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert not shares.diagonal().any()
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    np.testing.assert_allclose(np.exp(-(shares * logs).sum(axis=1)), perplexity, rtol=1e-3)


def test_the_scale_of_the_values_does_not_matter():
    values, _ = clusters()
    np.testing.assert_allclose(neighbourhoods(1e-3 * values, 10), neighbourhoods(values, 10))


def test_groups_come_out_as_groups():
    values, owner = clusters()
    found = tsne(values, perplexity=15)
    assert np.isfinite(found).all()
    squared = ((found[:, None] - found) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    nearest = np.argsort(squared, axis=1)[:, :10]
    assert (owner[nearest] == owner[:, None]).mean() > 0.98
    centres = np.stack([found[owner == group].mean(axis=0) for group in range(3)])
    spread = max(found[owner == group].std() for group in range(3))
    gaps = [np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(gaps) > 2 * spread


def test_it_lowers_the_divergence_that_it_is_defined_by():
    values, _ = clusters(count=15, distance=3.0)
    near = neighbourhoods(values, 10)
    near = (near + near.T) / (2 * len(values))

    def divergence(points):
        closeness = 1 / (1 + ((points[:, None] - points) ** 2).sum(axis=2))
        np.fill_diagonal(closeness, 0)
        far = closeness / closeness.sum()
        kept = near > 0
        return (near[kept] * np.log(near[kept] / far[kept])).sum()

    found = tsne(values, perplexity=10)
    assert divergence(found) < divergence(principal_components(values))
    shape = found.shape
    better = minimize(
        lambda flat: divergence(flat.reshape(shape)), found.ravel(), options={"maxiter": 5}
    )
    assert divergence(found) < 1.01 * better.fun


def test_the_same_values_give_the_same_picture():
    values, _ = clusters(count=10)
    assert np.array_equal(tsne(values), tsne(values))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_a_few_points_are_drawn_too(count):
    values = np.random.default_rng(0).normal(size=(count, 5))
    assert np.isfinite(tsne(values)).all()


def test_equal_points_do_no_harm():
    assert np.isfinite(tsne(np.ones((12, 3)))).all()
