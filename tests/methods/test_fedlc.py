from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import conv2d

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.engine.unseen import try_models, tune
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.methods import METHODS
from polyclinic.methods.fedlc import FedLC, calibration_loss, head_row
from polyclinic.methods.site_contrast import CODE, site_contrast
from polyclinic.networks.head_calibration import (
    CALIBRATION,
    ROWS,
    TRAINED,
    CalibratedSegmenter,
    HeadCalibration,
    as_row,
    blurred,
    disagreement,
    peaks,
)
from polyclinic.networks.parts import everything, part, statistics, under
from polyclinic.runs import DECODER, ENSEMBLE, REESTIMATED, SHARED, TUNED
from tests.federations import NETS, Done, a_site, equal, small_data
from tests.methods.gates import Closed

LAST = "evaluation.choose=last"
CPU = torch.device("cpu")
BARE = ("method.contrast=0.0", "method.calibrate=false", LAST)


def names(done: Done) -> list[str]:
    return [site.name for site in done.folder.about().sites]


def generator():
    return torch.Generator().manual_seed(0)


@dataclass(frozen=True)
class ClosedGates(FedLC):
    """FedLC whose gates are zero whatever happens."""

    def adapt(self, net, sites):
        adapted = super().adapt(net, sites)
        adapted.gate = Closed(adapted.gate)
        return adapted


@NETS
def test_without_gate_contrast_and_calibration_it_is_fedrep(federation, network):
    small = federation(**{"network.name": network})
    done, fedrep = small.run("fedlc", *BARE, "method.site_gate=none"), small.run("fedrep", LAST)
    for owner in [*names(done), "server"]:
        assert equal(done.tensors(owner), fedrep.tensors(owner))


@NETS
def test_with_gates_that_are_zero_it_is_fedrep(federation, network, monkeypatch):
    monkeypatch.setitem(METHODS, "closed", ClosedGates)
    small = federation(**{"network.name": network})
    done, fedrep = small.run("closed", *BARE), small.run("fedrep", LAST)
    for site in names(done):
        own = {n: t for n, t in done.site(site).items() if not n.startswith("gate.")}
        assert equal(own, fedrep.site(site))


@NETS
def test_calibration_leaves_body_and_head_bit_by_bit(federation, network):
    small = federation(**{"network.name": network})
    done = small.run("fedlc", LAST)
    plain = small.run("fedlc", "method.calibrate=false", LAST)
    for site in names(done):
        expected = plain.site(site)
        assert equal({n: done.site(site)[n] for n in expected}, expected)
        assert done.site(site)[TRAINED] == 1


def test_a_head_survives_every_average_and_bodies_are_equal(federation):
    small = federation(rounds=3)
    done = small.run("fedlc", LAST)
    sites = [done.site(site) for site in names(done)]
    server = {n.removeprefix("weights/"): t for n, t in done.tensors("server").items()}
    heads = [as_row({n: t for n, t in site.items() if n.startswith("head.")}) for site in sites]
    assert len({tuple(head.tolist()) for head in heads}) == len(sites)
    shared = [name for name in server if name in sites[0] and not name.startswith("head.")]
    assert len(shared) > 10
    assert all(torch.equal(site[name], server[name]) for site in sites for name in shared)


def exchange(small, *overrides):
    study = small.study("fedlc", *overrides)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), CPU)
    sites = LocalSites(runner, data, run.folder)
    server = Server(sites.trained, runner.first_weights(), study.federation, 0)
    runner.assignment.method.start(server)
    return runner, server, sites


def one_round(runner, server, sites, number):
    (stage,) = runner.assignment.method.each_round()
    messages = {info.name: stage.message(server, info) for info in sites.trained}
    asked = sites.ask(stage, messages, number=number, since=number - 1)
    replies = {site: reply.message for site, reply in asked}
    stage.combine(server, replies)
    return messages, replies


def test_each_site_gets_the_heads_of_all_others_and_its_own_stays_as_trained(federation):
    runner, server, sites = exchange(federation())
    _, replies = one_round(runner, server, sites, 1)
    messages, _ = one_round(runner, server, sites, 2)
    for site, message in messages.items():
        others = [other for other in replies if other != site]
        expected = torch.stack([head_row(replies[other].weights) for other in others])
        assert torch.equal(message.weights[ROWS], expected)
        kept = sites.states.load(site, 1).weights
        head = part(runner.net, "head")
        assert all(torch.equal(kept[n], replies[site].weights[n]) for n in head)


def test_heads_are_not_sent_where_nobody_compares_them(federation):
    small = federation()
    done = small.run("fedlc", "method.calibrate=false", LAST)
    assert not any("head" in line.parts for line in done.folder.rounds())
    assert not done.memory("server")
    compared = small.run("fedlc", LAST)
    fits = [line for line in compared.folder.rounds() if line.stage == "fit"]
    assert all(line.parts["head"] > 0 for line in fits)
    assert not any({"calibration", "peers"} & set(line.parts) for line in fits)


def test_it_says_whether_it_discloses():
    assert [stage.discloses for stage in FedLC().each_round()] == [True]
    assert [stage.discloses for stage in FedLC(calibrate=False).each_round()] == [False]


@NETS
def test_the_gate_is_registered_shared_and_sent(federation, network):
    """The released code keeps it in a list, where nobody trains, sends or saves it."""
    method, site, _ = a_site(federation, "fedlc", f"network.name={network}")
    gate = under(site.net, "gate") - {CODE}
    assert gate
    assert gate <= everything(site.net)
    assert gate <= method.send(site).weights.names
    assert CODE not in method.send(site).weights.names


@NETS
def test_the_contrast_has_a_gradient_in_the_gate_and_moves_no_statistics_of_its_own(
    federation, network
):
    _, site, _ = a_site(federation, "fedlc", f"network.name={network}", index=1)
    site.net.train().requires_grad_(True)
    images = torch.rand(2, 1, 64, 64, generator=generator())
    seen = site.net.look(images)
    before = site.take(statistics(site.net))
    others = site.net.gate.of_others(seen.deepest)
    assert len(others) == len(site.sites) - 1
    site_contrast(seen.gates, others, "squared").backward()
    assert torch.equal(site.take(statistics(site.net)).flat, before.flat)
    weights = [p for n, p in site.net.named_parameters() if n.startswith("gate.")]
    assert all(p.grad is not None for p in weights)
    assert any(p.grad.abs().sum() > 0 for p in weights)


def test_the_loss_is_the_labels_and_the_contrast(federation):
    found = []
    for contrast in (0.0, 0.1, 0.5):
        method, site, batch = a_site(federation, "fedlc", f"method.contrast={contrast}", index=1)
        site.net.eval()
        found.append(float(method.loss(site, batch).detach()))
    assert found[0] > found[1] > found[2]
    assert (found[0] - found[2]) == pytest.approx(5 * (found[0] - found[1]), rel=1e-3)


# Head calibration.


def test_heads_that_agree_have_no_disagreement_and_no_attention():
    own = torch.rand(2, 3, 40, 40, generator=generator()).softmax(1)
    same = own.expand(4, *own.shape)
    assert (disagreement(own, same) == 0).all()
    assert (blurred(peaks(disagreement(own, same)), peak=True) == 0).all()
    assert (disagreement(own, own.new_zeros(0, *own.shape)) == 0).all()


def test_the_order_of_the_others_does_not_matter():
    own, *others = torch.rand(4, 2, 2, 20, 20, generator=generator())
    one = disagreement(own, torch.stack(others))
    torch.testing.assert_close(one, disagreement(own, torch.stack(others[::-1])))


def test_disagreement_is_the_root_mean_square_relative_to_its_largest():
    own, *others = torch.rand(4, 2, 3, 9, 7, generator=generator())
    apart = torch.stack([(other - own) ** 2 for other in others]).sum(0).div(3).sqrt()
    expected = apart / apart.flatten(2).max(2).values[:, :, None, None]
    torch.testing.assert_close(disagreement(own, torch.stack(others)), expected)


def test_disagreement_has_a_finite_gradient_where_heads_agree():
    own = torch.rand(1, 2, 8, 8, generator=generator()).requires_grad_()
    other = own.detach().clone()
    other[0, 0, 3, 3] += 0.5
    disagreement(own, other[None]).sum().backward()
    assert torch.isfinite(own.grad).all()


def test_peaks_are_the_highest_in_their_window_and_not_low():
    maps = torch.zeros(1, 1, 64, 64)
    maps[0, 0, 10, 10], maps[0, 0, 12, 12], maps[0, 0, 50, 50], maps[0, 0, 50, 10] = (
        1,
        0.9,
        0.5,
        0.1,
    )
    assert peaks(maps).nonzero()[:, 2:].tolist() == [[10, 10], [50, 50]]


def test_the_blur_is_a_gaussian_of_peak_1_or_sum_1():
    maps = torch.zeros(1, 2, 63, 63)
    maps[0, 1, 31, 31] = 1
    places = torch.arange(31.0) - 15
    square = places[:, None] ** 2 + places[None] ** 2
    expected = (-square / 72).exp()
    found = blurred(maps, peak=True)
    torch.testing.assert_close(found[0, 1, 16:47, 16:47], expected)
    assert float(found[0, 1, 31, 31]) == pytest.approx(1)
    assert (found[0, 0] == 0).all()
    torch.testing.assert_close(
        blurred(maps, peak=False)[0, 1, 16:47, 16:47], expected / expected.sum()
    )


@pytest.mark.parametrize("attention", ["peaks", "plain"])
def test_each_class_is_a_convolution_of_the_features_raised_by_both_maps(attention):
    torch.manual_seed(0)
    module = HeadCalibration(4, 3, 3, attention)
    features, own = torch.rand(2, 4, 16, 16), torch.rand(2, 3, 16, 16).softmax(1)
    others = torch.rand(2, 2, 3, 16, 16).softmax(2)
    apart = disagreement(own, others)
    if attention == "peaks":
        apart = blurred(peaks(apart), peak=True).clamp(max=1)
    near = blurred(own, peak=False)
    weight, bias = module.combine.weight, module.combine.bias
    expected = []
    for c in range(3):
        raised = [features * each[:, c : c + 1] + features for each in (apart, near)]
        pieces = torch.cat(raised, 1)
        expected.append(conv2d(pieces, weight[c : c + 1], bias[c : c + 1], padding=1))
    torch.testing.assert_close(module(features, own, others), torch.cat(expected, 1))


@NETS
def test_only_the_calibration_learns_after_the_rounds(federation, network):
    _, site, batch = a_site(federation, "fedlc", f"network.name={network}")
    site.load({ROWS: site.weights[ROWS] + 0.3})
    site.net.train().requires_grad_(True)
    before = site.weights.copy()
    images = torch.rand(2, 1, 64, 64, generator=generator())
    labels = batch.labels.repeat(1, 2, 2)
    calibration_loss(site, type(batch)(images, labels)).backward()
    heard = {n for n, p in site.net.named_parameters() if p.grad is not None}
    assert heard == {n for n in under(site.net, CALIBRATION) if n != TRAINED}
    assert all(site.net.get_parameter(n).grad.abs().sum() > 0 for n in heard)
    assert torch.equal(site.weights.flat, before.flat)


@NETS
def test_it_predicts_with_the_calibration_once_that_is_trained(federation, network):
    method, site, _ = a_site(federation, "fedlc", f"network.name={network}")
    site.net.eval()
    images = torch.rand(2, 1, 64, 64, generator=generator())
    with torch.no_grad():
        seen = site.net.look(images)
        assert torch.equal(method.predict(site, images), seen.logits.softmax(1))
        site.load({TRAINED: torch.ones(())})
        calibrated = site.net.calibrated(seen.maps[-1], seen.logits).softmax(1)
        torch.testing.assert_close(method.predict(site, images), calibrated)
    assert not torch.allclose(calibrated, seen.logits.softmax(1))


@NETS
def test_the_other_heads_are_those_of_the_other_sites(federation, network):
    _, site, _ = a_site(federation, "fedlc", f"network.name={network}")
    assert isinstance(site.net, CalibratedSegmenter)
    rows = torch.randn(site.weights[ROWS].shape, generator=generator())
    site.load({ROWS: rows})
    heads = site.net.peers.each()
    assert len(heads) == len(site.sites) - 1
    for row, head in zip(rows, heads, strict=True):
        assert head.keys() == site.net.head.state_dict().keys()
        assert torch.equal(as_row(head), row)


def test_fine_tuning_trains_the_calibrated_model(federation):
    small = federation()
    plain = small.run("fedlc", LAST)
    tuned = small.run("fedlc", LAST, then='{name = "finetune", iterations = 2}')
    for site in names(plain):
        before, after = plain.site(site), tuned.site(site)
        changed = {n.split(".")[0] for n in before if not torch.equal(before[n], after[n])}
        assert changed == {"encoder", "decoder", "head", "gate", "calibration"}


def test_it_trains_on_weak_labels(federation):
    done = federation(kinds=("point", "scribble", "mask")).run("fedlc", LAST)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


def test_a_site_alone_has_nobody_to_disagree_with(federation):
    small = federation(sites=1)
    done = small.run("fedlc", LAST)
    (name,) = names(done)
    data = small.data(done.run.study)
    runner = SiteRunner(assign(done.run, data), CPU)
    site = runner.opened(runner.assignment.sites[0], data[0], SiteState(done.site(name), {}))
    assert site.weights[ROWS].shape[0] == 0
    site.net.eval()
    found = runner.assignment.method.predict(site, torch.rand(1, 1, 32, 32))
    assert torch.isfinite(found).all()


def test_a_site_that_never_trained_uses_the_mean_head(federation):
    small = federation(rounds=1, **{"federation.participation": 0.4})
    runner, server, sites = exchange(small)
    (stage,) = runner.assignment.method.each_round()
    info, other = sites.trained[:2]
    message = {info.name: stage.message(server, info)}
    asked = sites.ask(stage, message, number=1, since=0)
    stage.combine(server, {site: reply.message for site, reply in asked})
    finalize = runner.assignment.method.finalizing()
    visit = runner.visit(
        other, small_data("octa", 3)[1], finalize, finalize.message(server, other), None, 2
    )
    head = part(runner.net, "head")
    assert all(torch.equal(visit.state.weights[n], server.weights[n]) for n in head)


def test_polyclinic_unseen_scores_it(federation):
    done = federation().run("fedlc", LAST)
    rows = try_models(done.run, small_data("octa", 4)[3], CPU, iterations=1)
    ways = [ENSEMBLE, SHARED, REESTIMATED, TUNED, DECODER]
    assert list(dict.fromkeys(row.model for row in rows)) == [*names(done), *ways]


@pytest.mark.parametrize("calibrate", ["true", "false"])
def test_a_site_that_took_no_part_trains_a_head_of_its_own(federation, calibrate):
    method, site, _ = a_site(federation, "fedlc", f"method.calibrate={calibrate}")
    before = site.weights.copy()
    tune(site, method.tuned_outside(site.net, site.shared), 2)
    changed = {n for n in before if not torch.equal(before[n], site.weights[n])}
    assert changed == part(site.net, "head")


def test_a_message_with_another_site_s_head_changes_nothing_of_ones_own(federation):
    method, site, _ = a_site(federation, "fedlc")
    own = site.take(part(site.net, "head"))
    weights = site.message.weights.copy()
    weights.flat += 1
    site.message, site.first = Message(weights), False
    method.receive(site)
    assert torch.equal(site.take(part(site.net, "head")).flat, own.flat)
