"""What holds for all methods with personal models or teachers, on every network there is."""

import pytest
import torch

from polyclinic.federation.weights import flatten
from polyclinic.methods import METHODS
from polyclinic.networks import NETWORKS
from polyclinic.networks.head_calibration import TRAINED
from polyclinic.networks.parts import everything, parameters
from polyclinic.networks.routing import RoutedConv, routed
from polyclinic.runs import SiteInfo

SITES = tuple(SiteInfo(name, index, "mask", 4) for index, name in enumerate("abc"))


def adapted(network, method):
    torch.manual_seed(0)
    net = METHODS[method]().adapt(NETWORKS[network](channels=1, classes=3, width=2), SITES)
    net.to(memory_format=torch.channels_last)
    return net, flatten(net)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", ["apfl", "fedsm", "fedlc", "iop-fl", "fedgkd"])
def test_it_trains_and_predicts_with_every_network(network, method):
    net, weights = adapted(network, method)
    if TRAINED in weights:
        weights.load({TRAINED: torch.ones(())})
    images = torch.rand(2, 1, 64, 64)
    logits = net.train()(images)
    assert logits.shape == (2, 3, 64, 64)
    logits.square().sum().backward()
    heard = {name for name, each in net.named_parameters() if each.grad is not None}
    chosen = METHODS[method]()
    predicting = chosen.predicts_with(net) & parameters(net)
    if method == "fedsm":  # trained apart: the copy is what fine-tuning and calibration train
        predicting = {name for name in predicting if name.startswith("personal.")}
    assert heard == predicting
    assert chosen.shares(net) | chosen.keeps(net) >= everything(net)
    with torch.no_grad():
        assert torch.isfinite(net.eval()(images)).all()


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_can_be_routed(network):
    net, weights = adapted(network, "iop-fl")
    experts = [{n: t + 0.01 * i for n, t in weights.items()} for i in range(3)]
    mixture = routed(net, experts, "normalised").train()
    convolutions = [m for m in mixture.modules() if isinstance(m, RoutedConv)]
    assert len(convolutions) == sum(
        isinstance(m, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for m in net.modules()
    )
    logits = mixture(torch.rand(2, 1, 64, 64))
    assert logits.shape == (2, 3, 64, 64)
    logits.square().sum().backward()
    assert all(p.grad is not None for m in convolutions for p in m.router.parameters())
