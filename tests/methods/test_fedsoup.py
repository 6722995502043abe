from dataclasses import replace

import pytest
import torch

from polyclinic.methods import fedsoup
from polyclinic.methods.fedsoup import POOL, SIZE, FedSoup
from tests.federations import equal
from tests.methods.toy import opened

LAST = "evaluation.choose=last"


def test_without_a_pool_it_is_fedavg(federation):
    small = federation(rounds=3)
    fedsoup = small.run("fedsoup", "method.warm_up=1.0", LAST)
    fedavg = small.run("fedavg", LAST)
    for owner in ("server", *(site.name for site in fedavg.folder.about().sites)):
        assert equal(fedsoup.tensors(owner), fedavg.tensors(owner))


def test_the_pool_begins_after_the_warm_up(federation):
    small = federation(rounds=4)
    early = small.run("fedsoup", "method.warm_up=0.5", LAST)
    never = small.run("fedsoup", "method.warm_up=1.0", LAST)
    for site in early.folder.about().sites:
        assert POOL in early.memory(site.name)
        assert not never.memory(site.name)
    replies = [
        [line.loss for line in done.folder.rounds() if line.stage == "fit" and line.round <= 3]
        for done in (early, never)
    ]
    assert replies[0] == replies[1]  # the average follows the training of round 3


def scripted(monkeypatch, scores):
    """Validation that gives these scores one after another, and the weights it was asked about."""
    asked = []

    def dice(method, site):
        asked.append(site.take(site.shared).flat.double())
        return scores[len(asked) - 1]

    monkeypatch.setattr(fedsoup, "validation_dice", dice)
    return asked


def test_the_pool_grows_by_the_published_rule(federation, monkeypatch):
    """Better, not better, better: the pool takes up the first and the third shared model."""
    asked = scripted(monkeypatch, [0.5, 0.6, 0.6, 0.6, 0.5, 0.7])
    site, rng = opened(federation(), "fedsoup"), torch.Generator().manual_seed(0)
    pool = []
    for number, better in enumerate((True, False, True)):
        received, own = site.take(site.shared), site.take(site.shared)
        received.flat.copy_(torch.randn(len(own.flat), generator=rng))
        own.flat.copy_(torch.randn(len(own.flat), generator=rng))
        site.load(own)
        FedSoup().average(site, received)
        shared, mine = received.flat.double(), own.flat.double()
        without = torch.stack([mine, *pool]).mean(0)
        grown = torch.stack([mine, *pool, shared]).mean(0)
        torch.testing.assert_close(asked[2 * number], without, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(asked[2 * number + 1], grown, rtol=1e-5, atol=1e-5)
        found = site.take(site.shared).flat.double()
        torch.testing.assert_close(found, grown if better else without, rtol=1e-5, atol=1e-5)
        pool += [shared] if better else []
        assert int(site.memory[SIZE]) == len(pool)
        kept = site.memory[POOL].double()
        torch.testing.assert_close(kept, torch.stack(pool).mean(0), rtol=1e-5, atol=1e-5)


def test_where_nothing_joins_the_pool_the_own_model_stays_bit_by_bit(federation, monkeypatch):
    scripted(monkeypatch, [0.5, 0.5])
    site = opened(federation(), "fedsoup")
    received = site.take(site.shared)
    site.weights.flat.mul_(1.25)
    before = site.weights.copy()
    FedSoup().average(site, received)
    assert torch.equal(site.weights.flat, before.flat)
    assert int(site.memory[SIZE]) == 0


def test_sites_use_their_own_average(federation):
    done = federation(rounds=2).run("fedsoup", "method.warm_up=0.0", LAST)
    first, second = (done.site(site.name) for site in done.folder.about().sites)
    assert not torch.equal(first["head.weight"], second["head.weight"])


def test_a_site_without_validation_masks_is_an_error_before_it_trains(federation, monkeypatch):
    small = federation(rounds=1)
    data = small.data

    def without(study):
        return [replace(site, val=site.val.select([])) for site in data(study)]

    monkeypatch.setattr(small, "data", without)
    with pytest.raises(ValueError, match=r"FedSoup needs validation cases .* or take fedavg"):
        small.run("fedsoup", LAST)
    assert small.run("fedsoup", "method.warm_up=1.0", LAST).folder.finished
