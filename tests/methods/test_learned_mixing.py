import pytest
import torch

from polyclinic.federation.site import TrainingFailed
from polyclinic.methods.learned_mixing import STEADY, Mixing, mix_learned
from polyclinic.networks.parts import parameters, part, statistics
from tests.federations import a_site


def learn(federation, values, visits=1, **settings):
    """A site that has learned its mixture while its passes of one step had these losses."""
    _, site, _ = a_site(federation, "fedala", kinds=("mask",))
    own = site.take(part(site.net, "head"))
    found = iter(values)

    def loss(site, batch):
        return next(found) + 0 * site.net(batch.images).sum()

    for _ in range(visits):
        mix_learned(site, own, loss, Mixing(iterations=1, **settings))
    return site


def test_a_step_goes_down_the_slope_of_the_mixture_and_moves_nothing_else(federation):
    _, site, _ = a_site(federation, "fedala", kinds=("mask",))
    received = site.take(part(site.net, "head") & parameters(site.net))
    rng = torch.Generator().manual_seed(0)
    own = received.copy()
    own.flat.add_(torch.randn(own.flat.shape, generator=rng))
    slope = {name: torch.randn(each.shape, generator=rng) for name, each in own.items()}
    site.memory.update({f"mixture/{name}": torch.full_like(own[name], 0.5) for name in own})
    before = site.weights.copy()

    def loss(site, batch):
        site.net(batch.images)  # which moves running statistics, were they not kept
        weights = dict(site.net.named_parameters())
        return sum((slope[name] * weights[name]).sum() for name in own)

    mix_learned(site, own, loss, Mixing(rate=0.1, iterations=1))
    for name in own:
        away = received[name] - own[name]
        mixture = (0.5 - 0.1 * slope[name] * away).clamp(0, 1)
        torch.testing.assert_close(site.memory[f"mixture/{name}"], mixture)
        torch.testing.assert_close(site.weights[name], own[name] + away * mixture)
    assert statistics(site.net)
    rest = site.weights.names - own.names
    assert all(torch.equal(site.weights[name], before[name]) for name in rest)


def test_the_first_learning_ends_as_soon_as_the_loss_was_steady_for_some_passes(federation):
    falling = [5.0, 4.0, 3.0]
    site = learn(federation, falling + [1.0] * 20)
    assert len(site.fits) == len(falling) + STEADY < Mixing().first_passes


def test_a_loss_steady_from_the_start_takes_one_pass_more_than_must_be_steady(federation):
    assert len(learn(federation, [1.0] * 20).fits) == STEADY + 1


@pytest.mark.parametrize("most", [3, 20])
def test_the_first_learning_is_capped_where_the_loss_is_never_steady(federation, most):
    assert len(learn(federation, [0.0, 1.0] * 20, first_passes=most).fits) == most


def test_the_tolerance_says_what_is_steady(federation):
    restless = [0.0, 1.0] * 20  # a deviation of one half
    assert len(learn(federation, restless, tolerance=0.51).fits) == STEADY + 1
    assert len(learn(federation, restless, tolerance=0.49).fits) == Mixing().first_passes


def test_later_learnings_take_one_pass(federation):
    site = learn(federation, [0.0, 1.0] * 20, visits=3, first_passes=4)
    assert len(site.fits) == 4 + 1 + 1


def test_a_loss_that_is_no_number_ends_the_learning_with_an_error(federation):
    with pytest.raises(TrainingFailed, match="became nan"):
        learn(federation, [1.0, torch.nan])
