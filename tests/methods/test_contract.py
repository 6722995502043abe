"""Every method of the table keeps the contract; a new one is checked by standing there."""

from functools import cache

import pytest

from polyclinic.contract import CHECKS, Trial, Violation
from polyclinic.methods import METHODS
from polyclinic.networks import NETWORKS
from tests.small_unet import TABLES, SmallUNet

PYRAMIDS = ("resnet_fpn", "pvt_fpn")
SMALL = (SmallUNet.name, "pvt_fpn")  # the latter for methods of a transformer
REFUSED = {
    ("fedbn", "pvt_fpn"): "FedBN keeps BatchNorm layers at the site, but network 'pvt_fpn' has no",
    ("fedap", "pvt_fpn"): "FedAP compares sites by what BatchNorm layers .* take a network with",
    ("feddp", "resnet_fpn"): "network 'resnet_fpn' has none; take the network pvt_fpn",
}
"""What a method says of a feature pyramid that it cannot work with."""

pytestmark = pytest.mark.usefixtures("narrow_pyramids")
every_check = pytest.mark.parametrize(
    ("method", "check"), [(m, c) for m in METHODS for c in CHECKS]
)
LONG = ("it runs with sites away and private statistics", "the same run gives the same bits")
"""Checks that need runs of their own: for one method of each kind in the quick suite."""
KINDS = ("fedavg", "fedbn", "ditto", "scaffold", "metafed", "fedlppa", "fedsm", "pflfe")
every_quick_check = pytest.mark.parametrize(
    ("method", "check"),
    [
        pytest.param(m, c, marks=[pytest.mark.slow] if c in LONG and m not in KINDS else [])
        for m in METHODS
        for c in CHECKS
    ],
)


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Each method's trial, whose runs all checks look at."""
    table = TABLES.network

    def trial(method, *networks):
        chosen = {name: table[name] for name in networks}
        return Trial(METHODS[method], tmp_path_factory.mktemp("trial"), chosen)

    return cache(trial)


@every_quick_check
def test_the_method_keeps_the_contract(trials, method, check):
    CHECKS[check](trials(method, *SMALL))


@pytest.mark.slow
@every_check
def test_the_method_keeps_the_contract_with_the_whole_unet(trials, method, check):
    CHECKS[check](trials(method, *NETWORKS))


@pytest.mark.slow
@every_check
def test_the_method_keeps_the_contract_with_a_feature_pyramid(trials, method, check):
    CHECKS[check](trials(method, *PYRAMIDS))


@pytest.mark.parametrize("network", PYRAMIDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_works_with_a_feature_pyramid_or_says_why_not(trials, method, network):
    trial = trials(method, network)
    if (method, network) not in REFUSED:
        assert trial.network == network
        return
    with pytest.raises(Violation, match=REFUSED[method, network]):
        assert trial.network
