from dataclasses import dataclass

import pytest
import torch
from torch import nn

from polyclinic.methods import METHODS
from polyclinic.methods.fedbn import FedBN
from polyclinic.networks.parts import EmptySelection, everything, norms
from tests.federations import equal, one_visit
from tests.small_unet import SmallUNet

LAST = "evaluation.choose=last"


@dataclass(frozen=True)
class Anyway(FedBN):
    """FedBN that also takes a network without BatchNorm."""

    def shares(self, net):
        return everything(net) - norms(net)


def test_without_norm_layers_it_would_be_fedavg(federation, narrow_pyramids, monkeypatch):
    monkeypatch.setitem(METHODS, "anyway", Anyway)
    small = federation(rounds=1, **{"network.name": "pvt_fpn"})
    fedbn, fedavg = small.run("anyway", LAST), small.run("fedavg", LAST)
    for owner in ("server", *(site.name for site in fedavg.folder.about().sites)):
        assert equal(fedbn.tensors(owner), fedavg.tensors(owner))
    small = federation()
    fedbn, same = small.run("fedbn", LAST), small.run("anyway", LAST)
    assert equal(fedbn.tensors("server"), same.tensors("server"))


def test_neither_message_nor_reply_has_a_norm_layer(federation):
    runner, message, reply = one_visit(federation(), "fedbn")
    private = norms(runner.net)
    assert private
    for each in (message, reply):
        assert each.weights.names == everything(runner.net) - private
        assert not each.extras


def test_norm_layers_stay_and_all_else_is_equal_everywhere(federation):
    done = federation().run("fedbn", LAST)
    sites = [done.site(site.name) for site in done.folder.about().sites]
    private = norms(SmallUNet(channels=1, classes=2))
    assert private < sites[0].keys()
    for name in sites[0]:
        same = all(torch.equal(sites[0][name], site[name]) for site in sites[1:])
        assert same == (name not in private)


def test_every_site_keeps_its_norms_bit_by_bit_through_the_average(federation):
    small = federation(rounds=1)
    done = small.run("fedbn", LAST)
    local = small.run("local", LAST)
    private = norms(SmallUNet(channels=1, classes=2))
    for site in done.folder.about().sites:  # the first as well: its norms are not the mean
        own, alone = done.site(site.name), local.site(site.name)
        assert all(torch.equal(own[name], alone[name]) for name in private)


def test_a_network_without_norm_layers_is_refused():
    net = SmallUNet(channels=1, classes=2)
    for module in net.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
    with pytest.raises(EmptySelection, match="FedBN keeps BatchNorm layers at the site, but"):
        FedBN().shares(net)
