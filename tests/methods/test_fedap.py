from itertools import permutations

import pytest
import torch

from polyclinic.config import FederationSettings
from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.methods.fedap import DISTANCES, FedAP, distance, rows
from polyclinic.methods.fedsm import soft_pull
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import EmptySelection, everything, norms
from polyclinic.runs import SiteInfo
from tests.federations import NETS, equal, perform
from tests.small_unet import SmallUNet

LAST = "evaluation.choose=last"


def some_distances(sites=4):
    apart = torch.rand(sites, sites, generator=torch.Generator().manual_seed(1)).double()
    return (apart + apart.T).fill_diagonal_(0)


@pytest.mark.parametrize("own", [0.0, 0.3, 0.5, 1.0])
def test_rows_sum_to_one_and_have_the_own_share_on_the_diagonal(own):
    table = rows(some_distances(), own)
    torch.testing.assert_close(table.sum(1), torch.ones(4).double())
    assert table.diagonal().tolist() == [own] * 4
    assert (table >= 0).all()


def test_the_nearer_a_site_the_more_is_taken_of_it():
    apart, table = some_distances(), rows(some_distances(), 0.4)
    for i, j, k in permutations(range(4), 3):
        assert (apart[i, j] < apart[i, k]) == (table[i, j] > table[i, k])
        torch.testing.assert_close(table[i, j] / table[i, k], apart[i, k] / apart[i, j])
    assert not torch.allclose(table, table.T)  # of a distance that is the same both ways


def test_at_equal_distances_all_others_count_alike_as_in_fedsms_soft_pull():
    table = rows(torch.full((5, 5), 2.5).double(), 0.6)
    others = table[~torch.eye(5, dtype=torch.bool)]
    torch.testing.assert_close(others, torch.full((20,), 0.1).double())
    pulled = [soft_pull(0.6, place, 5) for place in range(5)]
    torch.testing.assert_close(table, torch.tensor(pulled).double())


def test_permuting_the_sites_permutes_the_rows():
    order = [2, 0, 3, 1]
    apart = some_distances()
    torch.testing.assert_close(rows(apart[order][:, order], 0.3), rows(apart, 0.3)[order][:, order])


def test_of_two_sites_the_distance_is_irrelevant():
    near, far = (torch.tensor([[0.0, d], [d, 0.0]]).double() for d in (0.1, 90.0))
    assert torch.equal(rows(near, 0.7), rows(far, 0.7))


def test_one_site_takes_all_of_itself():
    assert rows(torch.zeros(1, 1).double(), 0.5).tolist() == [[1.0]]


def test_sites_at_no_distance_share_what_is_given_to_others():
    apart = torch.tensor([[0, 0, 0, 3], [0, 0, 0, 3], [0, 0, 0, 3], [3, 3, 3, 0]]).double()
    table = rows(apart, 0.5)
    assert table.isfinite().all()
    torch.testing.assert_close(table[0], torch.tensor([0.5, 0.25, 0.25, 0.0]).double())


def moments(**layers):
    found = {}
    for layer, (mean, deviation) in layers.items():
        found[f"moments/{layer}/mean"] = torch.tensor(mean)
        found[f"moments/{layer}/deviation"] = torch.tensor(deviation)
    return found


def test_the_distance_is_the_sum_over_layers_of_a_root_for_each():
    first = moments(a=([0.0, 0.0], [1.0, 1.0]), b=([1.0], [2.0]))
    second = moments(a=([3.0, 0.0], [1.0, 5.0]), b=([1.0], [4.5]))
    assert distance(first, second) == pytest.approx(5.0 + 2.5)
    assert distance(second, first) == pytest.approx(7.5)
    assert distance(first, first) == 0


@NETS
@pytest.mark.parametrize("keep", ["true", "false"])
def test_with_all_of_itself_it_is_local_training(federation, network, keep):
    small = federation(**{"network.name": network, "training.keep_optimizer": keep})
    fedap, local = small.run("fedap", "method.own=1", LAST), small.run("local", LAST)
    for site in local.folder.about().sites:
        assert equal(fedap.site(site.name), local.site(site.name))


def measured(small, *settings):
    """What every site of a study sends to be compared, with the site after that."""
    study = small.study("fedap", *settings)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    method = runner.assignment.method
    (stage,) = method.before()
    for info, cases in zip(runner.assignment.sites, data, strict=True):
        message = Message(runner.first_weights())
        site = runner._site(info, cases, stage, message, None, 0)
        before = site.weights.copy()
        reply = stage.work(site)
        yield site, before, reply


@pytest.mark.parametrize("alone", [0, 1])
def test_measuring_leaves_the_site_as_it_was(federation, alone):
    for site, before, reply in measured(federation(), f"method.alone={alone}"):
        assert torch.equal(site.weights.flat, before.flat)
        assert not site.memory
        assert not reply.weights
        assert [fit.steps for fit in site.fits] == [2 * alone]


def test_moments_are_those_of_the_inputs_over_all_training_images(federation):
    (site, _, reply), *_ = measured(federation(), "method.alone=0")
    cases = site.data.train
    offset, scale = (each.view(-1, 1, 1, 1) for each in (cases.offset, cases.scale))
    level = site.net.encoder.levels[0]
    with torch.no_grad():
        maps = level.conv1((cases.images.float() - offset) / scale).movedim(1, 0).flatten(1)
    found = {key.partition("/")[2]: tensor for key, tensor in reply.extras.items()}
    torch.testing.assert_close(found["encoder.levels.0.norm1/mean"], maps.mean(1))
    spread = maps.var(1, correction=0).sqrt()
    torch.testing.assert_close(found["encoder.levels.0.norm1/deviation"], spread)


def test_labels_play_no_part_in_measuring_the_common_start(federation):
    masked = [reply for *_, reply in measured(federation(), "method.alone=0")]
    weak = [reply for *_, reply in measured(federation(kinds=("point",)), "method.alone=0")]
    for ours, theirs in zip(masked, weak, strict=True):
        assert equal(dict(ours.extras), dict(theirs.extras))


def test_the_layers_that_are_measured_can_be_set(federation):
    small = federation()
    (_, _, encoder), *_ = measured(small)
    (site, _, both), *_ = measured(small, "method.measured=all")
    assert all(key.startswith("moments/encoder.") for key in encoder.extras)
    assert len(encoder.extras) == 2 * 4  # the encoder of the small U-Net has four norm layers
    layers = {name.rpartition(".")[0] for name in norms(site.net)}
    assert {key.split("/")[1] for key in both.extras} == layers


def test_a_model_trained_alone_is_measured_to_another_distance(federation):
    small = federation(sites=3)
    tables = [
        small.run("fedap", f"method.alone={alone}", LAST).memory("server")[DISTANCES]
        for alone in (0, 1)
    ]
    assert not torch.allclose(*tables)
    for table in tables:
        assert table.shape == (3, 3)
        assert torch.equal(table, table.T)
        assert (table.fill_diagonal_(1) > 0).all()


INFOS = tuple(SiteInfo(name, index, "mask", 5) for index, name in enumerate("abc"))


def reply(value):
    weights = Weights.pack({"conv.weight": torch.full((2,), float(value))})
    return Message(weights, numbers={"images": 5.0, "steps": 1.0})


def a_server():
    return Server(INFOS, reply(0).weights, FederationSettings(), 0)


def test_every_site_gets_its_own_mixture_of_the_replies():
    server, method = a_server(), FedAP(own=0.5)
    extras = [moments(a=([place], [1.0])) for place in (0.0, 1.0, 4.0)]
    method.compare(server, dict(zip("abc", (Message(extras=each) for each in extras), strict=True)))
    assert method.message(server, INFOS[0]).weights["conv.weight"].tolist() == [0.0, 0.0]
    method.combine(server, {"a": reply(10), "b": reply(20), "c": reply(30)})
    values = [float(method.message(server, info).weights["conv.weight"][0]) for info in INFOS]
    # Distances 1 and 4; 1 and 3; 4 and 3 give these shares of the half that is left to others.
    assert values == pytest.approx(
        [
            5 + 0.5 * (20 * 0.8 + 30 * 0.2),
            10 + 0.5 * (10 * 0.75 + 30 * 0.25),
            15 + 0.5 * (10 * 3 / 7 + 20 * 4 / 7),
        ]
    )
    assert float(server.weights["conv.weight"][0]) == pytest.approx(20.0)
    (table,) = server.tables
    assert table.name == "mixing"
    assert table.values[0] == pytest.approx((0.5, 0.4, 0.1))


def test_sites_that_are_away_keep_their_mixture_and_the_others_share_by_likeness():
    server, method = a_server(), FedAP(own=0.5)
    extras = [moments(a=([place], [1.0])) for place in (0.0, 1.0, 4.0)]
    method.compare(server, dict(zip("abc", (Message(extras=each) for each in extras), strict=True)))
    method.combine(server, {"a": reply(10), "b": reply(20), "c": reply(30)})
    before = method.message(server, INFOS[2]).weights.flat.clone()
    method.combine(server, {"b": reply(4), "a": reply(2)})
    assert torch.equal(method.message(server, INFOS[2]).weights.flat, before)
    values = [float(method.message(server, info).weights["conv.weight"][0]) for info in INFOS[:2]]
    assert values == pytest.approx([3.0, 3.0])


def test_a_site_that_was_not_measured_is_as_far_away_as_others_are_on_average():
    server, method = a_server(), FedAP()
    extras = [moments(a=([place], [1.0])) for place in (0.0, 6.0)]
    method.compare(server, dict(zip("ab", (Message(extras=each) for each in extras), strict=True)))
    assert server.memory[DISTANCES].tolist() == [[0, 6, 6], [6, 0, 6], [6, 6, 6]]
    alone = a_server()
    method.compare(alone, {"a": Message(extras=extras[0])})
    assert rows(alone.memory[DISTANCES], 0.5).isfinite().all()


def test_norms_stay_and_what_was_measured_is_forgotten(federation):
    done = federation(sites=3).run("fedap", LAST)
    private = norms(SmallUNet(channels=1, classes=2))
    assert not any(name.removeprefix("weights/") in private for name in done.tensors("server"))
    assert not any("moments" in name for name in done.memory("server"))
    lines = {line.stage: line.extras for line in done.folder.rounds()}
    assert any(name.startswith("moments/") for name in lines["measure"])
    assert lines["fit"] == ()
    sites = [done.site(site.name) for site in done.folder.about().sites]
    assert all(
        not torch.equal(sites[0][name], sites[1][name]) for name in sites[0] if "weight" in name
    )


def test_it_works_where_only_some_sites_take_part_in_a_round(federation):
    done = federation(sites=5).run("fedap", "federation.participation=0.4", LAST)
    assert {score.site for score in done.folder.scores("test")} == {
        site.name for site in done.folder.about().sites
    }


def test_a_network_without_batchnorm_is_refused_before_training_with_an_alternative(federation):
    small = federation()
    study = small.study("fedap", "network.name=pvt_fpn")
    (run,) = runs_of(study, small.folder / "runs")
    reason = (
        r"FedAP compares sites by what BatchNorm layers \(encoder\) receive, but network 'pvt_fpn'"
        r" has none; take a network with such layers \(unet, resnet_fpn\), or fedavg or fedper"
    )
    with pytest.raises(EmptySelection, match=reason):
        next(perform(run, small.data(study)))
    assert not run.folder.exists


def test_only_norm_layers_are_private():
    for name in ("unet", "resnet_fpn"):
        net = NETWORKS[name](channels=1, classes=2)
        assert everything(net) - FedAP().shares(net) == norms(net)


def test_weak_labels_are_learned_from(federation):
    kinds = ("point", "scribble", "block")
    done = federation(kinds=kinds).run("fedap", LAST)
    assert {site.kind for site in done.folder.about().sites} == set(kinds)
    assert {line.stage for line in done.folder.rounds() if line.loss > 0} == {"measure", "fit"}
