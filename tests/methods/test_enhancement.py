import logging
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from polyclinic.data.random_views import Views
from polyclinic.evaluation.diagnostics import warnings_about
from polyclinic.methods.enhancement import (
    COLLAPSED,
    SPREADS,
    Enhancement,
    disagreement,
    enhance,
    follow,
    projector,
    spread,
)
from polyclinic.methods.enhancement import (
    enhanced as noted,
)
from polyclinic.networks.parts import everything, part, statistics
from tests.federations import a_site

RNG = torch.Generator().manual_seed(0)


def changed(site, before):
    return {name for name in before if not torch.equal(before[name], site.weights[name])}


def enhanced(federation, *overrides, **how):
    _, site, _ = a_site(federation, "pflfe", *overrides, kinds=("mask",))
    before = site.weights.copy()
    numbers = enhance(site, Enhancement(**how), Views())
    return site, before, numbers


def test_the_loss_is_four_less_twice_both_cosines_crosswise():
    online, target = (torch.randn(6, 5, generator=RNG) for _ in range(2))
    crosswise = cosine_similarity(online[:3], target[3:]) + cosine_similarity(
        online[3:], target[:3]
    )
    torch.testing.assert_close(disagreement(online, target), (4 - 2 * crosswise).mean())


def test_the_loss_is_nought_where_each_view_meets_the_other_s_aim_at_any_length():
    views = torch.randn(6, 5, generator=RNG)
    assert disagreement(3 * views, views.roll(3, 0)) < 1e-6
    assert disagreement(-views, views.roll(3, 0)) == pytest.approx(8)


def test_spread_is_about_one_on_the_sphere_and_nought_after_a_collapse():
    assert spread(torch.randn(4000, 16, generator=RNG)) == pytest.approx(1, abs=0.05)
    assert spread(torch.randn(1, 16, generator=RNG).expand(50, 16)) < 1e-3


def test_the_target_keeps_its_share_of_itself():
    target, online = nn.Linear(2, 3), nn.Linear(2, 3)
    before = target.weight.clone()
    follow(target, online, 0.9)
    torch.testing.assert_close(target.weight, 0.9 * before + 0.1 * online.weight)
    assert not torch.equal(target.weight, online.weight)
    follow(target, online, 0.0)
    torch.testing.assert_close(target.weight, online.weight)


def test_the_projector_gives_one_embedding_for_each_image():
    net = projector(6, Enhancement(hidden=7, outputs=5))
    assert net(torch.rand(3, 6, 4, 4)).shape == (3, 5)
    assert sum(p.numel() for p in net.parameters()) == 6 * 7 + 7 + 2 * 7 + 7 * 5 + 5 + 2 * 5


def test_encoder_and_projector_learn_and_nothing_else_changes(federation):
    site, before, spreads = enhanced(federation)
    moved = changed(site, before)
    assert moved <= part(site.net, "encoder") | part(site.net, "projector")
    assert {name.partition(".")[0] for name in moved} == {"encoder", "projector"}
    assert not moved & statistics(site.net)
    assert spreads.keys() == set(SPREADS)
    assert all(0 < value < 2 for value in spreads.values())
    assert everything(site.net) == before.names  # nothing of the target stays


def test_labels_are_not_looked_at(federation):
    first, *_ = enhanced(federation)
    _, site, _ = a_site(federation, "pflfe", kinds=("mask",))
    unlabelled = torch.full_like(site.data.train.labels, 255)
    site.data = replace(site.data, train=replace(site.data.train, labels=unlabelled))
    enhance(site, Enhancement(), Views())
    assert torch.equal(site.weights.flat, first.weights.flat)


def test_the_share_of_steps_is_in_addition_to_the_round_s_and_the_rate_counts(federation):
    site, *_ = enhanced(federation, share=1.5)
    assert [fit.steps for fit in site.fits] == [3]
    slow, before, _ = enhanced(federation, rate=1e-6)
    assert max(float((slow.weights[n] - before[n]).abs().max()) for n in before) < 1e-6


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_how_the_target_follows_matters_from_the_second_step_on(federation, decay):
    usual, *_ = enhanced(federation, share=2.0)
    other, *_ = enhanced(federation, share=2.0, decay=decay)
    assert not torch.equal(usual.weights.flat, other.weights.flat)
    usual, *_ = enhanced(federation, share=0.5)
    other, *_ = enhanced(federation, share=0.5, decay=decay)
    assert torch.equal(usual.weights.flat, other.weights.flat)


def test_an_enhancement_of_no_steps_changes_and_tells_nothing(federation, caplog):
    site, before, spreads = enhanced(federation, share=0.01)
    assert torch.equal(site.weights.flat, before.flat)
    assert not spreads
    assert not caplog.messages


def test_a_collapse_is_told_in_the_log(federation, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING, logger="polyclinic"):
        enhanced(federation)
        assert not caplog.messages
        monkeypatch.setattr(Views, "draw", nearly_alike)
        _, _, spreads = enhanced(federation, "network.dropout=[0, 0, 0, 0, 0]")
    embeddings, features = spreads.values()
    assert embeddings > 0.5  # held apart by the projector's norms
    assert features < COLLAPSED[1]
    assert (
        "all images look nearly the same to the encoder (spread of features" in caplog.messages[0]
    )


def nearly_alike(views, images, rng):
    """Views of the same grey, but for a little noise."""
    return 0.5 + 1e-4 * torch.randn(images.shape, generator=torch.Generator().manual_seed(1))


def test_a_late_collapse_is_not_averaged_away(federation, monkeypatch):
    drawn = []

    def draw(views, images, rng):
        drawn.append(images)
        return nearly_alike(views, images, rng) if len(drawn) > 12 else images

    monkeypatch.setattr(Views, "draw", draw)
    _, _, spreads = enhanced(federation, "network.dropout=[0, 0, 0, 0, 0]", share=4.0)
    assert len(drawn) == 16
    assert spreads["spread of features"] < COLLAPSED[1]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_single_image_has_nothing_to_be_told_apart_from(federation, caplog, batch):
    with caplog.at_level(logging.WARNING, logger="polyclinic"):
        site, before, spreads = enhanced(federation, f"training.batch={batch}")
    untouched = torch.equal(site.weights.flat, before.flat)
    assert untouched == (not spreads) == (batch == 1)
    assert ("there is one alone" in caplog.text) == (batch == 1)


@pytest.mark.parametrize(
    ("how", "least", "most"),
    [
        ({"share": 5.0}, 0.02, 0.1),  # ten steps: what the paper's form at our budgets does
        ({"share": 5.0, "decay": 0.8}, 0.4, 1.0),
        ({"share": 30.0}, 0.2, 0.6),  # sixty steps: a longer visit
    ],
)
def test_in_longer_visits_or_with_less_decay_the_target_follows(federation, how, least, most):
    site, *_ = enhanced(federation, **how)
    notes = noted(site)
    assert least < notes["target followed"] < most
    assert notes["enhancement moved"] > 0.01
    told = " ".join(warnings_about("here", notes))
    assert ("the target followed the encoder" in told) == (notes["target followed"] < 0.2)


def test_a_kept_target_goes_on_where_it_was_and_a_new_one_is_the_encoder(federation):
    site, *_ = enhanced(federation, target="kept", decay=0.5)
    first = {name: t.clone() for name, t in site.memory.items() if name.startswith("target/")}
    assert first
    assert "target behind" not in noted(site)
    site.load({name: tensor + 0.1 for name, tensor in site.take(part(site.net, "encoder")).items()})
    enhance(site, Enhancement(target="kept", decay=1.0), Views())  # it never moves
    assert all(torch.equal(site.memory[name], tensor) for name, tensor in first.items())
    assert noted(site)["target behind"] > 0.01
    assert "target followed" not in noted(site)
    fresh, *_ = enhanced(federation, target="new")
    assert not any(name.startswith("target/") for name in fresh.memory)
