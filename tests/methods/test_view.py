"""Losses that stand in for labels say nothing about pixels that a camera did not see."""

from dataclasses import replace

import pytest
import torch

from polyclinic.losses import tree_energy
from polyclinic.losses.weak_terms import in_mean_steps
from polyclinic.masks import UNLABELLED
from tests.federations import a_site

DARK = 0.5
WIDE = ("method.weak.crf=0.1", "method.weak.crf_reach=0.15", "method.weak.crf_alike=0.5")
CRF = ("method.weak.tree=0.0", "method.contrast=0.0", *WIDE)


def gradient_of_logits(net, loss):
    """What the loss wants of the logits of each pixel (as they leave the main head)."""
    kept = []

    def keep(module, inputs, logits):
        logits.retain_grad()
        kept.append(logits)

    handle = net.head.register_forward_hook(keep)
    loss().backward()
    handle.remove()
    return kept[0].grad


@pytest.mark.parametrize(("name", "overrides"), [("fedicra", CRF), ("fedlppa", WIDE)])
def test_unlabelled_pixels_out_of_view_have_no_gradient(federation, name, overrides):
    method, site, batch = a_site(federation, name, *overrides)
    dark = (batch.images[:, 0] <= DARK) & (batch.labels == UNLABELLED)
    bright = (batch.images[:, 0] > DARK) & (batch.labels == UNLABELLED)
    photograph = replace(batch, view=batch.images[:, 0] > DARK)
    wanted = gradient_of_logits(site.net, lambda: method.loss(site, photograph)).abs().sum(1)
    assert not wanted[dark].any()
    assert wanted[bright].all()
    everywhere = gradient_of_logits(site.net, lambda: method.loss(site, batch)).abs().sum(1)
    assert everywhere[dark].all()


def test_tree_energy_is_taken_over_unlabelled_pixels_in_view(federation):
    method, site, batch = a_site(
        federation,
        "fedicra",
        "method.weak.crf=0.0",
        "method.contrast=0.0",
        "method.weak.tree=1.0",
        "method.weak.tree_alike=5.0",
    )
    photograph = replace(batch, view=batch.images[:, 0] > DARK)
    site.net.eval()
    weak = site.training.weak.changed({"tree": 0.0})
    training = site.training.model_copy(update={"weak": weak})
    without = method.loss(replace(site, training=training), batch)
    seen = site.net.look(batch.images)
    unlabelled = (batch.labels == UNLABELLED) & (batch.images[:, 0] > DARK)
    guides = site.net.guide(batch.images, seen.maps)
    maps = [in_mean_steps(each) for each in (batch.images, *guides)]
    energy = tree_energy(seen.logits.softmax(1), maps[0], maps[1:], unlabelled, 5.0, 5.0)
    torch.testing.assert_close(method.loss(site, photograph), without + energy)
    assert not torch.isclose(method.loss(site, batch), without + energy)
