from dataclasses import dataclass

import torch

from polyclinic.methods import METHODS
from polyclinic.methods.fedrep import FedRep
from polyclinic.networks.parts import everything
from tests.federations import a_site, equal

LAST = "evaluation.choose=last"


@dataclass(frozen=True)
class Headless(FedRep):
    """FedRep whose head is empty."""

    def head(self, net):
        return frozenset()


def test_an_empty_head_is_fedavg(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "headless", Headless)
    small = federation()
    headless = small.run("headless", "method.head_share=0", LAST)
    assert equal(headless.tensors("server"), small.run("fedavg", LAST).tensors("server"))


def test_without_head_steps_heads_stay_as_they_began(federation):
    done = federation().run("fedrep", "method.head_share=0", LAST)
    heads = [
        {name: tensor for name, tensor in done.site(site.name).items() if name.startswith("head.")}
        for site in done.folder.about().sites
    ]
    _, untrained, _ = a_site(federation, "fedrep", kinds=("mask",))
    first = untrained.weights
    assert heads[0]
    for head in heads:
        assert all(torch.equal(head[name], first[name]) for name in head)


def test_the_body_phase_leaves_the_head_bit_by_bit(federation, monkeypatch):
    seen = []
    train = FedRep.train

    def watched(self, site):
        fit = site.fit

        def noted(loss, **settings):
            before = {n: t.clone() for n, t in site.weights.items()}
            fit(loss, **settings)
            moved = {n for n, t in site.weights.items() if not torch.equal(t, before[n])}
            seen.append((settings.get("stream", "main"), moved))

        monkeypatch.setattr(site, "fit", noted)
        train(self, site)

    monkeypatch.setattr(FedRep, "train", watched)
    federation(rounds=1).run("fedrep", "method.head_share=1")
    heads = [moved for stream, moved in seen if stream == "head"]
    bodies = [moved for stream, moved in seen if stream == "main"]
    assert len(heads) == len(bodies) == 2
    for moved in heads:
        assert {n for n in moved if "running" not in n} == {"head.weight", "head.bias"}
    for moved in bodies:
        assert moved
        assert not any(name.startswith("head.") for name in moved)


def test_bodies_are_equal_and_heads_differ(federation):
    done = federation().run("fedrep", "method.head_share=2.0", LAST)
    sites = [done.site(site.name) for site in done.folder.about().sites]
    for name in sites[0]:
        same = torch.equal(sites[0][name], sites[1][name])
        assert same == (not name.startswith("head."))


def test_the_message_has_all_but_the_head():
    from polyclinic.networks import NETWORKS

    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    assert everything(net) - FedRep().shares(net) == {"head.weight", "head.bias"}
