"""A site during a visit: its training loop, its sets of weights, its twins."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from polyclinic.federation.method import plain_loss
from polyclinic.federation.optimizing import learning_rate
from polyclinic.federation.site import TrainingFailed
from polyclinic.losses import LOSSES
from polyclinic.networks.parts import parameters, part, statistics
from tests.federations import a_site


@pytest.fixture
def site(federation):
    """A site of full masks in the first of two rounds, not trained yet."""
    return a_site(federation, "fedavg", kinds=("mask",))[1]


def seen_by(site, **settings):
    """The images of each step of a fit that trains nothing."""
    images = []

    def loss(site, batch):
        images.append(batch.images)
        return 0 * plain_loss(site, batch)

    site.fit(loss, update=lambda _: None, **settings)
    return torch.stack(images)


def test_a_fit_trains_for_the_budget_and_tells_what_it_took(site):
    before = site.weights.copy()
    fit = site.fit(plain_loss)
    assert (fit.steps, fit.images, fit.stream, fit.trains) == (2, 2 * 4, "main", True)
    assert site.fits == [fit]
    rates = [learning_rate(site.training, step / 2 / site.rounds) for step in (0, 1)]
    assert fit.rates == pytest.approx(sum(rates))
    changed = {name for name in before if not torch.equal(before[name], site.weights[name])}
    assert part(site.net, "encoder") & parameters(site.net) <= changed


def test_the_rate_of_a_later_round_is_lower(site):
    later = replace(site, round=2).fit(plain_loss).rates
    rates = [learning_rate(site.training, (1 + step / 2) / site.rounds) for step in (0, 1)]
    assert later == pytest.approx(sum(rates))
    assert later < site.fit(plain_loss).rates


def test_a_budget_is_in_steps_or_in_passes_over_the_images(site):
    assert site.steps == 2
    epochs = replace(site, training=site.training.model_copy(update={"iterations": None}))
    assert epochs.steps_of(epochs=3) == 3 * 2  # six images in batches of four
    assert epochs.steps_of(iterations=5, epochs=3) == 5
    assert site.fit(plain_loss, steps=0).steps == 0
    assert site.fits[-1].loss == 0


def test_only_the_weights_that_are_named_learn(site):
    before, head = site.weights.copy(), part(site.net, "head")
    site.fit(plain_loss, only=head)
    learned = parameters(site.net)
    changed = {name for name in learned if not torch.equal(before[name], site.weights[name])}
    assert changed == head


def test_fits_of_one_stream_see_the_same_batches_and_others_do_not(site):
    first = seen_by(site)
    assert torch.equal(first, seen_by(site))
    assert not torch.equal(first, seen_by(site, stream="another"))
    for change in ({"round": 2}, {"stage": "another"}, {"seed": 1}):
        assert not torch.equal(first, seen_by(replace(site, **change)))


def test_what_else_draws_at_random_neither_changes_a_fit_nor_is_changed(site):
    start = site.weights.copy()
    torch.manual_seed(1)
    site.fit(plain_loss)
    drawn, trained = torch.rand(3), site.weights.copy()
    site.load(start)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn)
    site.fit(plain_loss)
    assert torch.equal(site.weights.flat, trained.flat)


def test_a_hook_changes_gradients_before_the_step(site):
    before = site.weights.copy()

    def silence(parameters):
        for parameter in parameters.values():
            parameter.grad.zero_()

    plain = site.training.model_copy(update={"weight_decay": 0.0})
    site.fit(plain_loss, hook=silence, training=plain)
    assert all(torch.equal(before[name], site.weights[name]) for name in parameters(site.net))


def test_an_update_takes_the_step_s_place_and_counts_as_no_training(site):
    before, heard = site.weights.copy(), []
    fit = site.fit(plain_loss, update=lambda parameters: heard.append(len(parameters)))
    assert heard == [len(parameters(site.net))] * 2
    assert not fit.trains
    assert all(torch.equal(before[name], site.weights[name]) for name in parameters(site.net))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_no_number_stops_the_training(site, value):
    def loss(site, batch):
        return plain_loss(site, batch) + value

    with pytest.raises(TrainingFailed, match=f"{site.info.name} became {value} in round 1"):
        site.fit(loss)


def test_the_loss_follows_from_the_kind_of_labels_unless_it_is_chosen(site):
    assert site.supervised is LOSSES["ce+dice"]
    assert replace(site, info=replace(site.info, kind="point")).supervised is LOSSES["ce"]
    assert replace(site, loss=LOSSES["dice"]).supervised is LOSSES["dice"]


def test_a_second_set_of_weights_is_remembered_once_and_lives_in_memory(site):
    first = site.weights.copy()
    site.remember("own")
    site.fit(plain_loss)
    site.remember("own")  # it has that name already
    assert all(torch.equal(site.memory[f"own/{name}"], first[name]) for name in first)
    site.fit(plain_loss)
    assert all(torch.equal(site.memory[f"own/{name}"], first[name]) for name in first)


def test_while_another_set_is_used_it_learns_and_the_network_s_own_rests(site):
    site.remember("other")
    site.fit(plain_loss, steps=1, stream="apart")
    own, other = site.weights.copy(), site.memory["other/head.weight"].clone()
    with site.using("other"):
        assert site.in_use == "other"
        assert torch.equal(site.weights["head.weight"], other)
        site.fit(plain_loss)
        learned = site.weights.copy()
    assert site.in_use == "own"
    assert torch.equal(site.weights.flat, own.flat)
    assert all(torch.equal(site.memory[f"other/{name}"], learned[name]) for name in learned)
    assert not torch.equal(learned["head.weight"], other)


def test_a_set_in_use_when_something_fails_stays_as_it_was(site):
    site.remember("other")
    before = {name: tensor.clone() for name, tensor in site.memory.items()}
    own = site.weights.copy()
    with suppress(KeyError), site.using("other"):
        site.weights.flat.add_(1)
        raise KeyError
    assert torch.equal(site.weights.flat, own.flat)
    assert all(torch.equal(site.memory[name], before[name]) for name in before)


def test_a_twin_is_at_rest_and_shares_nothing_with_the_network(site):
    twin = site.twin({"head.bias": torch.full((2,), 7.0)})
    assert twin.head.bias.tolist() == [7.0, 7.0]
    assert torch.equal(twin.head.weight, site.net.head.weight)
    assert not twin.training
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    kept = twin.head.weight.clone()
    site.fit(plain_loss)
    assert torch.equal(twin.head.weight, kept)
    assert not torch.equal(twin.head.weight, site.net.head.weight)


def test_running_statistics_stay_where_it_is_quiet(site):
    images = torch.rand(2, 1, 32, 32)
    before = site.take(statistics(site.net))
    site.net.train()
    with site.quiet():
        site.net(images)
        assert not torch.equal(site.take(statistics(site.net)).flat, before.flat)
    assert torch.equal(site.take(statistics(site.net)).flat, before.flat)
    with suppress(KeyError), site.quiet():
        site.net(images)
        raise KeyError
    assert torch.equal(site.take(statistics(site.net)).flat, before.flat)
