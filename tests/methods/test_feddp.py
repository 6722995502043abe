import pytest
import torch

from polyclinic.methods.feddp import FedDP
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import EmptySelection, everything, part
from tests.federations import equal

SIDE = 64  # smaller images leave attention a single place, and queries nothing to learn
LAST = "evaluation.choose=last"
UNCALIBRATED = "method.calibrate=false"


@pytest.fixture
def federation(federation, narrow_pyramids):
    return federation


def the_network(width=32, classes=1):
    return NETWORKS["pvt_fpn"](channels=3, classes=classes, width=width)


def size(net, names):
    return sum(net.state_dict()[name].numel() for name in names)


def test_queries_are_the_paper_s_sixteen_tensors():
    net = the_network()
    private = everything(net) - FedDP().shares(net)
    assert len(private) == 16
    assert size(net, private) == 193_536
    assert private == part(net, "queries")
    assert size(net, everything(net)) == 5_165_793


@pytest.mark.parametrize(
    ("private", "parts"),
    [
        ("queries", ["queries"]),
        ("keys", ["keys"]),
        ("values", ["values"]),
        ("queries+keys", ["queries", "keys"]),
        ("none", []),
    ],
)
def test_every_part_of_the_attention_can_be_private(private, parts):
    net = the_network(width=2)
    expected = frozenset().union(*(part(net, name) for name in parts))
    assert everything(net) - FedDP(private=private).shares(net) == expected


def test_a_network_without_queries_is_refused_by_name():
    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    with pytest.raises(EmptySelection, match="network 'unet' has none; take the network pvt_fpn"):
        FedDP().shares(net)
    assert FedDP(private="none").shares(net) == everything(net)


def test_every_site_keeps_its_own_queries_and_all_else_is_common(federation):
    done = federation(sites=3, rounds=1, resolution=SIDE).run("feddp", UNCALIBRATED, LAST)
    sites = [done.site(site.name) for site in done.folder.about().sites]
    private = part(the_network(width=2), "queries")
    server = done.tensors("server")
    for name in sites[0]:
        for one, other in ((0, 1), (0, 2), (1, 2)):  # the first site's survive too
            assert torch.equal(sites[one][name], sites[other][name]) == (name not in private)
    assert not any(f"weights/{name}" in server for name in private)


def test_queries_survive_the_average_bit_by_bit(federation):
    small = federation(rounds=1, resolution=SIDE)
    done = small.run("feddp", UNCALIBRATED, LAST)
    local = small.run("local", "network.name=pvt_fpn", LAST)
    for site in done.folder.about().sites:
        own, alone = done.site(site.name), local.site(site.name)
        assert all(torch.equal(own[n], alone[n]) for n in part(the_network(width=2), "queries"))


def test_with_nothing_private_and_no_calibration_it_is_uniform_averaging(federation):
    small = federation(sites=2, rounds=2)
    done = small.run("feddp", "method.private=none", UNCALIBRATED, "method.weighting=paper", LAST)
    uniform = ("network.name=pvt_fpn", "federation.weighting=uniform", LAST)
    assert equal(done.tensors("server"), small.run("fedavg", *uniform).tensors("server"))


def test_traffic_is_all_but_the_queries_in_every_round_and_the_queries_once_behind(federation):
    done = federation(rounds=1, resolution=SIDE).run("feddp", LAST)
    net = NETWORKS["pvt_fpn"](channels=1, classes=2, width=2)
    private = part(net, "queries")
    queries, shared = 4 * size(net, private), 4 * size(net, everything(net) - private)
    numbers, prints = 16, 8 * len(everything(net) - private)
    found = {}
    for line in done.folder.rounds():
        found.setdefault((line.round, line.stage), []).append((line.down, line.up))
    fit = [(shared, shared + numbers)] * 2
    assert found == {
        (1, "fit"): fit,
        (2, "finalize"): [(shared, numbers)] * 2,
        (2, "disclose"): [(prints, queries + numbers)] * 2,
        (2, "calibrate"): [(queries, numbers)] * 2,
    }
    disclosed = [line for line in done.folder.rounds() if line.stage == "disclose"]
    assert all(set(line.extras) == {f"disclosed/{name}" for name in private} for line in disclosed)
    assert all(line.parts == {"extra disclosed": queries} for line in disclosed)


def test_calibration_changes_every_site_s_model_and_nothing_else(federation):
    small = federation(rounds=1, resolution=SIDE)
    before = small.run("feddp", UNCALIBRATED, LAST)
    after = small.run("feddp", LAST)
    for site in before.folder.about().sites:
        assert not equal(before.site(site.name), after.site(site.name))
    assert equal(before.tensors("server"), after.tensors("server"))


def test_calibration_is_the_finishing_piece(federation):
    small = federation(rounds=1, resolution=SIDE)
    inside = small.run("feddp", LAST)
    beside = small.run("feddp", UNCALIBRATED, LAST, then='{name = "igc", iterations = 2}')
    for site in inside.folder.about().sites:
        assert equal(inside.tensors(site.name), beside.tensors(site.name))


def test_where_its_sites_look_is_drawn_for_the_report(federation):
    done = federation(sites=2, rounds=1).run("feddp", "evaluation.pictures=true", LAST)
    first, second = (site.name for site in done.folder.about().sites)
    for site, other in ((first, second), (second, first)):
        names = {each.name for each in done.folder.attention_pictures(site)}
        assert names == {"stage 1", "stage 2", "stage 3", "stage 4", f"stage 4, {other}"}
