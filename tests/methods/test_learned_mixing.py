import pytest
import torch

from polyclinic.federation.site import TrainingFailed
from polyclinic.methods.learned_mixing import STEADY, Mixing, mix_learned
from polyclinic.networks.parts import part
from tests.methods.test_fedicra import a_site


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
