import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from polyclinic.methods.moon import MOON, PREVIOUS, contrast, pooled
from polyclinic.networks.parts import part
from tests.federations import equal
from tests.methods.toy import batches_of, opened

LAST = "evaluation.choose=last"


def test_without_contrast_it_is_fedavg(federation):
    small = federation(rounds=3)
    moon = small.run("moon", "method.contrast=0.0", LAST)
    fedavg = small.run("fedavg", LAST)
    for owner in ("server", *(site.name for site in fedavg.folder.about().sites)):
        assert equal(moon.tensors(owner), fedavg.tensors(owner))


def test_the_first_round_is_fedavgs_for_any_contrast(federation):
    small = federation(rounds=1)
    moon, fedavg = (small.run(name, LAST).tensors("server") for name in ("moon", "fedavg"))
    assert equal(moon, fedavg)


def test_later_rounds_are_not(federation):
    small = federation(rounds=2)
    moon, fedavg = (small.run(name, LAST).tensors("server") for name in ("moon", "fedavg"))
    assert not equal(moon, fedavg)


def test_a_contrast_that_goes_to_zero_is_fedavg_too(federation):
    small = federation(rounds=2, **{"training.optimizer": "sgd"})
    moon = small.run("moon", "method.contrast=1e-12", LAST).tensors("server")
    fedavg = small.run("fedavg", LAST).tensors("server")
    for name, tensor in fedavg.items():
        torch.testing.assert_close(moon[name], tensor, rtol=1e-4, atol=1e-6)


def test_the_term_is_the_published_formula():
    rng = torch.Generator().manual_seed(0)
    z, near, far = torch.randn(3, 6, 10, generator=rng)
    expected = 0.0
    for k in range(6):
        positive = math.exp(float(cosine_similarity(z[k], near[k], dim=0)) / 0.5)
        negative = math.exp(float(cosine_similarity(z[k], far[k], dim=0)) / 0.5)
        expected -= math.log(positive / (positive + negative)) / 6
    assert float(contrast(z, near, far, 0.5)) == pytest.approx(expected, rel=1e-5)


def test_equal_encoders_give_a_constant_without_a_slope():
    z = torch.randn(4, 8, requires_grad=True)
    other = torch.randn(4, 8)
    value = contrast(z, other, other, 0.5)
    value.backward()
    assert float(value.detach()) == pytest.approx(math.log(2))
    assert z.grad.abs().max() < 1e-7


@pytest.mark.parametrize("kinds", [("mask",), ("point",)])
def test_the_term_is_added_to_the_tasks_loss_and_reaches_the_encoder_alone(federation, kinds):
    site = opened(federation(kinds=kinds), "moon")
    method = MOON(contrast=2.0)
    (batch,) = batches_of(site, 1)
    previous = site.take(part(site.net, "encoder"))
    previous.flat.mul_(1.5)
    received, last = site.twin({}), site.twin(previous)
    site.net.eval()
    value = method.contrasted(received, last, site, batch)
    features = pooled(site.net.encoder(batch.images))
    term = contrast(
        features, pooled(received.encoder(batch.images)), pooled(last.encoder(batch.images)), 0.5
    )
    torch.testing.assert_close(value, method.loss(site, batch) + 2 * term)
    site.net.requires_grad_(True)
    site.net.zero_grad()
    pooled_term = contrast(
        pooled(site.net.encoder(batch.images)),
        pooled(received.encoder(batch.images)) + 1,
        pooled(last.encoder(batch.images)),
        0.5,
    )
    pooled_term.backward()
    moved = {n for n, p in site.net.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved
    assert moved <= part(site.net, "encoder")
    assert all(p.grad is None for net in (received, last) for p in net.parameters())


def test_sites_remember_the_encoder_they_trained_and_send_nothing_more(federation):
    small = federation(rounds=2)
    done = small.run("moon", LAST)
    fedavg = small.run("fedavg", LAST)
    for site in done.folder.about().sites:
        kept = {name.partition(".")[0] for name in done.memory(site.name)}
        assert kept == {f"{PREVIOUS}/encoder"}
    assert [line.up for line in done.folder.rounds()] == [
        line.up for line in fedavg.folder.rounds()
    ]
