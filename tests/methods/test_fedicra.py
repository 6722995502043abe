from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import l1_loss, mse_loss

from polyclinic.methods import METHODS
from polyclinic.methods.fedicra import CODE, FedICRA, site_contrast
from polyclinic.networks.parts import everything, statistics, under
from tests.federations import PAPER, a_site, equal, one_visit
from tests.methods.gates import Closed

LAST = "evaluation.choose=last"
KINDS = ("point", "scribble", "block")
PLAIN = (
    "method.adaptive_aggregation=false",
    "method.weak.tree=0.0",
    "method.weak.crf=0.0",
    LAST,
)
QUICK = ("method.mixing.first_passes=2", LAST)


@dataclass(frozen=True)
class ClosedGates(FedICRA):
    """FedICRA whose gates are zero whatever happens."""

    def adapt(self, net, sites):
        adapted = super().adapt(net, sites)
        adapted.gate = Closed(adapted.gate)
        return adapted


def test_without_gate_mixing_and_weak_losses_it_is_fedavg(federation):
    small = federation(rounds=2, kinds=KINDS)
    plain = small.run("fedicra", "method.site_gate=none", *PLAIN)
    fedavg = small.run("fedavg", LAST)
    assert equal(plain.tensors("server"), fedavg.tensors("server"))
    for site in fedavg.folder.about().sites:
        assert equal(plain.site(site.name), fedavg.site(site.name))


def test_with_gates_at_zero_the_rest_is_fedavg(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "closedgates", ClosedGates)
    small = federation(rounds=2, kinds=KINDS)
    closed = small.run("closedgates", "method.contrast=0.0", *PLAIN).tensors("server")
    fedavg = small.run("fedavg", LAST).tensors("server")
    assert fedavg.keys() < closed.keys()
    assert all(torch.equal(closed[name], fedavg[name]) for name in fedavg)


@pytest.mark.parametrize(
    "changes",
    [
        ("method.adaptive_aggregation=true",),
        ("method.site_gate=average+max",),
        ("method.weak.tree=0.1",),
        ("method.weak.crf=0.1",),
    ],
)
def test_every_row_of_the_ablation_changes_the_result(federation, changes):
    small = federation(sites=2, rounds=2, kinds=KINDS)
    base = (*PLAIN, "method.site_gate=none")
    fast = "method.mixing.first_passes=2"
    with_it = small.run("fedicra", *base, *changes, fast).tensors("server")
    without = small.run("fedicra", *base, fast).tensors("server")
    common = with_it.keys() & without.keys()
    assert not all(torch.equal(with_it[name], without[name]) for name in common)


def test_sites_with_full_masks_need_no_weak_losses(federation):
    small = federation(rounds=2)
    settings = ("method.guides=features", "method.adaptive_aggregation=false", LAST)
    with_them = small.run("fedicra", *settings)
    without = small.run("fedicra", *settings, "method.weak.tree=0.0", "method.weak.crf=0.0")
    assert equal(with_them.tensors("server"), without.tensors("server"))


@pytest.mark.parametrize("guides", ["projected", "features"])
def test_every_term_has_a_gradient_where_it_should(federation, guides):
    method, site, batch = a_site(federation, "fedicra", f"method.guides={guides}")
    site.net.train()
    method.loss(site, batch).backward()
    parts = {"gate", "encoder", "decoder", "head"} | (
        {"guides"} if guides == "projected" else set()
    )
    for part in parts:
        slopes = [p.grad for n, p in site.net.named_parameters() if n.startswith(f"{part}.")]
        assert all(slope is not None and slope.isfinite().all() for slope in slopes)
        assert any(slope.any() for slope in slopes), part


def test_the_contrast_reaches_the_gate_and_the_site_s_own_code_alone(federation):
    _, site, batch = a_site(federation, index=1)
    seen = site.net.look(batch.images)
    others = site.net.gate.of_others(seen.deepest)
    assert others.shape == (2, *seen.gates.shape)
    assert not others.requires_grad
    site_contrast(seen.gates, others, "squared").backward()
    columns = site.net.gate.embed[0].weight.grad.abs().sum(0)
    assert columns[1] > 0
    assert not columns[[0, 2]].any()


def test_the_extra_gates_are_those_of_the_other_codes_and_of_site_nought_too(federation):
    _, site, batch = a_site(federation, index=1)
    seen = site.net.look(batch.images)
    others = site.net.gate.of_others(seen.deepest)
    for place, index in enumerate((0, 2)):
        site.load({CODE: torch.eye(3)[index]})
        torch.testing.assert_close(others[place], site.net.gate(seen.deepest))


def test_the_extra_gates_leave_running_statistics_alone(federation):
    _, site, batch = a_site(federation)
    site.net.train()
    seen = site.net.look(batch.images)
    before = site.take(statistics(site.net))
    site.net.gate.of_others(seen.deepest)
    assert torch.equal(before.flat, site.take(statistics(site.net)).flat)


def test_the_contrast_is_minus_the_mean_distance_to_the_others():
    own, others = torch.rand(4, 6), torch.rand(3, 4, 6)
    for distance, one in (("squared", mse_loss), ("absolute", l1_loss)):
        expected = -sum(one(own, each) for each in others) / 3
        torch.testing.assert_close(site_contrast(own, others, distance), expected)
    assert site_contrast(own, others[:0], "squared") == 0


def test_the_code_stays_at_its_site_and_says_which_it_is(federation):
    done = federation(rounds=2, kinds=KINDS).run("fedicra", *QUICK)
    assert f"weights/{CODE}" not in done.tensors("server")
    for index, site in enumerate(done.folder.about().sites):
        assert torch.equal(done.site(site.name)[CODE], torch.eye(3)[index])


def test_mixtures_cover_decoder_and_head_and_live_on(federation):
    done = federation(rounds=2, kinds=KINDS).run("fedicra", *QUICK)
    for site in done.folder.about().sites:
        mixture = {n: t for n, t in done.memory(site.name).items() if n.startswith("mixture/")}
        assert {name.split("/")[1].split(".")[0] for name in mixture} == {"decoder", "head"}
        assert all(t.min() >= 0 and t.max() <= 1 for t in mixture.values())
        assert any((t < 1).any() for t in mixture.values())


def test_a_mixture_of_one_that_does_not_learn_leaves_the_received_decoder(federation):
    small = federation(rounds=2, kinds=KINDS)
    common = ("method.weak.tree=0.0", "method.weak.crf=0.0", LAST)
    still = small.run("fedicra", "method.mixing.rate=0.0", *common)
    without = small.run("fedicra", "method.adaptive_aggregation=false", *common)
    assert equal(still.tensors("server"), without.tensors("server"))


def test_in_the_warm_up_received_weights_are_taken_as_they_are(federation):
    small = federation(rounds=2, kinds=KINDS)
    warm = small.run("fedicra", "method.mixing.warm_up=3", *QUICK)  # finalizing is a third
    off = small.run("fedicra", "method.adaptive_aggregation=false", *QUICK)
    assert equal(warm.tensors("server"), off.tensors("server"))
    for site in warm.folder.about().sites:
        assert not any(name.startswith("mixture/") for name in warm.memory(site.name))


def test_starting_from_its_own_weights_keeps_the_decoder_where_nothing_is_learned(federation):
    small = federation(rounds=2, kinds=KINDS)
    own = small.run("fedicra", "method.mixing.start=own", "method.mixing.rate=0.0", LAST)
    received = small.run("fedicra", "method.mixing.rate=0.0", LAST)
    assert not equal(own.tensors("server"), received.tensors("server"))
    for site in own.folder.about().sites:
        mixture = [t for n, t in own.memory(site.name).items() if n.startswith("mixture/")]
        assert all(not t.any() for t in mixture)


def test_it_uses_its_trained_model_or_a_new_blend(federation):
    small = federation(rounds=1, kinds=KINDS)
    trained = small.run("fedicra", "method.uses=trained", *QUICK)
    blended = small.run("fedicra", *QUICK)
    assert equal(trained.tensors("server"), blended.tensors("server"))
    names = [site.name for site in trained.folder.about().sites]
    encoder = {
        name: [done.site(name)["encoder.levels.0.conv1.weight"] for done in (trained, blended)]
        for name in names
    }
    own = [one for one, _ in encoder.values()]
    common = [other for _, other in encoder.values()]
    assert not torch.equal(own[0], own[1])
    assert torch.equal(common[0], common[1])


def test_the_mixture_is_learned_with_the_whole_objective_or_with_labels_alone(federation):
    small = federation(rounds=2, kinds=KINDS)
    whole = small.run("fedicra", *QUICK)
    labels = small.run("fedicra", "method.mixing_loss=supervised", *QUICK)
    assert not equal(whole.tensors("server"), labels.tensors("server"))


@pytest.mark.parametrize(
    ("task", "kinds"),
    [
        ("fundus", ("box", "mask")),
        ("octa", ("box-scribble", "rotated-box-block")),
        ("polyp", ("scribble2", "box-block")),
        ("prostate", ("mask", "point", "box")),
    ],
)
@pytest.mark.slow
def test_it_runs_on_every_task_with_any_mixture_of_kinds(federation, task, kinds):
    small = federation(task=task, sites=len(kinds), rounds=1, kinds=kinds)
    done = small.run("fedicra", "method.site_gate=average", "method.distance=absolute", *QUICK)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


def test_the_gates_parameters_and_traffic_are_those_of_the_corrected_paper(federation):
    small = federation(sites=5, kinds=KINDS)
    settings = ("training.batch=2", "federation.statistics=private", *QUICK)
    projected = "method.guides=projected"
    runner, message, reply = one_visit(small, "fedicra", *PAPER, projected, *settings)
    assert sum(each.numel() for each in runner.net.parameters()) == 2_416_354
    numbers = 16  # bytes: of images and steps
    assert message.nbytes == 4 * 2_416_354
    assert reply.nbytes == 4 * 2_416_354 + numbers


def test_what_is_switched_off_is_not_built(federation):
    _, site, _ = a_site(federation, "fedicra", "method.site_gate=none", "method.weak.tree=0.0")
    assert set(dict(site.net.named_children())) == {"encoder", "decoder", "head"}
    assert everything(site.net) == under(site.net, "encoder", "decoder", "head")
