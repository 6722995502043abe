from dataclasses import dataclass

import pytest
import torch

from polyclinic.methods import METHODS
from polyclinic.methods.fedper import FedPer
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, norms, part
from tests.federations import NETS, equal
from tests.small_unet import SmallUNet

LAST = "evaluation.choose=last"
PARTS = pytest.mark.parametrize("private", ["head", "decoder", "encoder"])


@dataclass(frozen=True)
class AllHead(FedPer):
    """FedPer whose head is the whole network."""

    def shares(self, net):
        return frozenset()


@dataclass(frozen=True)
class NoHead(FedPer):
    """FedPer whose head is empty."""

    def shares(self, net):
        return everything(net)


@pytest.fixture
def limits(monkeypatch):
    monkeypatch.setitem(METHODS, "allhead", AllHead)
    monkeypatch.setitem(METHODS, "nohead", NoHead)


def networks():
    return [NETWORKS[name](channels=1, classes=2) for name in ("unet", "resnet_fpn", "pvt_fpn")]


@NETS
def test_with_everything_private_it_is_local_training(federation, limits, network):
    small = federation(**{"network.name": network})
    whole, local = small.run("allhead", LAST), small.run("local", LAST)
    for site in local.folder.about().sites:
        assert equal(whole.site(site.name), local.site(site.name))


def test_with_nothing_private_it_is_fedavg(federation, limits):
    small = federation()
    none, fedavg = small.run("nohead", LAST), small.run("fedavg", LAST)
    assert equal(none.tensors("server"), fedavg.tensors("server"))


def test_head_and_body_learn_together(federation):
    """With the first round's head private nothing else differs from FedAvg's first round."""
    small = federation(rounds=1)
    per, fedavg = small.run("fedper", LAST), small.run("fedavg", LAST)
    server, whole = per.tensors("server"), fedavg.tensors("server")
    assert equal(server, {name: whole[name] for name in server})
    local = small.run("local", LAST)
    for site in per.folder.about().sites:
        own, alone = per.site(site.name), local.site(site.name)
        assert torch.equal(own["head.weight"], alone["head.weight"])


@PARTS
def test_every_site_keeps_its_part_bit_by_bit_through_the_average(federation, private):
    small = federation(rounds=1)
    setting = f"method.private={private}"
    done, local = small.run("fedper", setting, LAST), small.run("local", LAST)
    net = SmallUNet(channels=1, classes=2)
    kept = everything(net) - FedPer(private).shares(net)
    for site in done.folder.about().sites:  # the first as well: its part is not the mean
        own, alone = done.site(site.name), local.site(site.name)
        assert all(torch.equal(own[name], alone[name]) for name in kept)


@PARTS
def test_what_is_shared_is_equal_everywhere_and_what_is_private_differs(federation, private):
    done = federation().run("fedper", f"method.private={private}", LAST)
    sites = [done.site(site.name) for site in done.folder.about().sites]
    net = SmallUNet(channels=1, classes=2)
    shared = FedPer(private).shares(net)
    assert {name.removeprefix("weights/") for name in done.tensors("server")} == shared
    for name in sites[0]:
        same = all(torch.equal(sites[0][name], site[name]) for site in sites[1:])
        assert same == (name in shared)


def test_norms_follow_the_part_they_are_in():
    for net in networks():
        encoder = FedPer("decoder").shares(net)
        assert encoder == part(net, "encoder")
        assert FedPer("encoder").shares(net) == everything(net) - encoder
        assert norms(net) & encoder == norms(net) & part(net, "encoder")


def test_the_private_head_is_one_convolution_in_every_network():
    for net in networks():
        private = everything(net) - FedPer().shares(net)
        assert {name.rpartition(".")[2] for name in private} == {"weight", "bias"}
        assert len(private) == 2


def test_with_a_private_decoder_it_shares_what_pflfe_shares_without_enhancement(federation):
    small = federation(**{"federation.weighting": "uniform"})
    per = small.run("fedper", "method.private=decoder", LAST)
    pflfe = small.run("pflfe", "method.enhancement.share=0", LAST)
    assert equal(per.tensors("server"), pflfe.tensors("server"))


@pytest.mark.parametrize("kinds", [("point", "scribble", "block")])
def test_weak_labels_are_learned_from(federation, kinds):
    done = federation(kinds=kinds).run("fedper", LAST)
    assert {site.kind for site in done.folder.about().sites} == set(kinds)
    assert all(line.loss > 0 for line in done.folder.rounds() if line.stage == "fit")
