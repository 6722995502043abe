"""Running statistics that a site computes anew from its own training images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from polyclinic.data.batches import spread_out
from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.unseen import try_models
from polyclinic.federation.estimating import Moments, input_moments, reestimate
from polyclinic.federation.message import Message
from polyclinic.methods import METHODS
from polyclinic.methods.fedavg import FedAvg
from polyclinic.methods.pflfe import PFLFE
from polyclinic.networks.parts import EmptySelection, part, statistics
from polyclinic.runs import DECODER, ENSEMBLE, REESTIMATED, SHARED
from tests.federations import equal, perform, small_data

LAST = "evaluation.choose=last"
ESTIMATED = ("federation.statistics=estimated", LAST)
THEN = '"reestimate"'
WITH_NORMS = {"feddp": ("network.name=small_unet", "method.private=none")}


def site_of(small, method="fedavg", *settings, number=0):
    """A site with the first weights."""
    study = small.study(method, *settings)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    return runner.opened(runner.assignment.sites[number], data[number], None)


def images_of(site):
    cases = site.data.train
    offset, scale = (each.view(-1, 1, 1, 1) for each in (cases.offset, cases.scale))
    return (cases.images.float() - offset) / scale


def with_batch(site, batch):
    return replace(site, training=site.training.model_copy(update={"batch": batch}))


@pytest.mark.parametrize("sizes", [(5,), (4, 1), (2, 3, 3)])
def test_moments_of_batches_are_those_of_all_together(sizes):
    rng = torch.Generator().manual_seed(0)
    maps = [100 + torch.randn(size, 3, 4, 2, generator=rng) for size in sizes]
    found = Moments()
    for each in maps:
        found.add(each)
    together = torch.cat(maps).double().movedim(1, 0).reshape(3, -1).numpy()
    assert found.count == together.shape[1]
    np.testing.assert_allclose(found.mean.numpy(), together.mean(1), rtol=1e-6)
    np.testing.assert_allclose(found.variance.numpy(), together.var(1), rtol=1e-4)


@pytest.mark.parametrize(("count", "batch"), [(5, 3), (6, 3), (1, 4), (4, 9)])
def test_all_cases_pass_once_in_batches_of_nearly_one_size(count, batch):
    cases = small_data("octa", 1)[0].train
    some = cases.select(list(range(count)))
    passed = list(spread_out(some, batch=batch))
    sizes = [len(each.images) for each in passed]
    assert sum(sizes) == count
    assert max(sizes) <= batch
    assert max(sizes) - min(sizes) <= 1
    firsts = [each.images.flatten(1).sum(1) for each in passed]
    everything = next(iter(spread_out(some, batch=count))).images.flatten(1).sum(1)
    assert sorted(torch.cat(firsts).tolist()) == sorted(everything.tolist())


def test_no_cases_are_an_error():
    nobody = small_data("octa", 1)[0].train.select([])
    with pytest.raises(ValueError, match="no training cases to look at"):
        next(spread_out(nobody, batch=2))


@pytest.mark.parametrize("network", ["unet", "resnet_fpn"])
def test_in_one_batch_statistics_are_those_that_a_training_pass_sees(federation, network):
    site = with_batch(site_of(federation(**{"network.name": network})), 1000)
    other = site.twin({})
    for module in other.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.momentum = 1.0
    with torch.no_grad():
        other(images_of(site))
    reestimate(FedAvg(), site)
    expected = other.state_dict()
    assert statistics(site.net)
    for name in statistics(site.net):
        torch.testing.assert_close(site.weights[name], expected[name], rtol=1e-4, atol=1e-5)


def test_the_first_layers_statistics_are_exact_whatever_the_batch(federation):
    site = site_of(federation())
    level = site.net.encoder.levels[0]
    with torch.no_grad():
        maps = level.conv1(images_of(site)).double().movedim(1, 0).flatten(1)
    for batch in (1, 3, 100):
        reestimate(FedAvg(), with_batch(site, batch))
        torch.testing.assert_close(level.norm1.running_mean.double(), maps.mean(1))
        torch.testing.assert_close(level.norm1.running_var.double(), maps.var(1))


def test_it_is_the_same_twice_and_whatever_was_there_before(federation):
    site = site_of(federation())
    reestimate(FedAvg(), site)
    first = site.weights.copy()
    site.load({name: torch.full_like(first[name], 7.0) for name in statistics(site.net)})
    torch.manual_seed(123)
    reestimate(FedAvg(), site)
    assert torch.equal(site.weights.flat, first.flat)


def test_labels_play_no_part_and_nothing_else_changes(federation):
    small = federation()
    site = site_of(small)
    before = site.weights.copy()
    reestimate(FedAvg(), site)
    found = statistics(site.net)
    moved = {name for name in before if not torch.equal(before[name], site.weights[name])}
    assert moved == found
    masked = site.weights.copy()
    weak = site_of(federation(kinds=("point",)))
    reestimate(FedAvg(), weak)
    assert torch.equal(weak.weights.flat, masked.flat)


def test_measuring_with_running_statistics_leaves_them(federation):
    site = site_of(federation())
    before = site.weights.copy()
    moments = input_moments(FedAvg(), site, by_batch=False)
    assert torch.equal(site.weights.flat, before.flat)
    assert {f"{path}.running_mean" for path in moments} < statistics(site.net)
    assert not any(module.training for module in site.net.modules())


def test_layers_that_no_prediction_reaches_keep_theirs(federation):
    site = site_of(federation(), "pflfe")
    before = site.weights.copy()
    reestimate(PFLFE(), site)
    idle = part(site.net, "projector") & statistics(site.net)
    assert idle
    assert all(torch.equal(site.weights[name], before[name]) for name in idle)


@pytest.mark.parametrize("method", ["fedavg", "fedbn", "ditto", "lg-fedavg", "fedicra", "local"])
def test_training_is_the_same_as_with_private_statistics(federation, method):
    """Statistics are not used in training, so estimating them changes nothing else."""
    small = federation()
    estimated = small.run(method, *ESTIMATED)
    private = small.run(method, "federation.statistics=private", LAST)
    assert equal(estimated.tensors("server"), private.tensors("server"))
    for site in estimated.folder.about().sites:
        own, other = estimated.site(site.name), private.site(site.name)
        moved = {name for name in own if not torch.equal(own[name], other[name])}
        assert all("running" in name for name in moved)
        assert bool(moved) == (method != "ditto")  # whose statistics in use are the personal ones
        if method == "ditto":
            ours, theirs = estimated.memory(site.name), private.memory(site.name)
            moved = {name for name in ours if not torch.equal(ours[name], theirs[name])}
            assert moved
            assert all("running" in name for name in moved)


def test_nothing_about_statistics_travels(federation):
    small = federation()
    done = small.run("fedavg", *ESTIMATED)
    assert not any("running" in name for name in done.tensors("server"))
    shared = small.run("fedavg", LAST)
    fit = [line for line in done.folder.rounds() if line.stage == "fit"]
    whole = [line for line in shared.folder.rounds() if line.stage == "fit"]
    site = done.folder.about().sites[0].name
    numbers = 4 * sum(t.numel() for n, t in done.site(site).items() if "running" in n)
    for ours, theirs in zip(fit, whole, strict=True):
        assert (ours.up, ours.down) == (theirs.up - numbers, theirs.down - numbers)


def test_every_site_s_statistics_are_its_own_estimate(federation):
    small = federation()
    done = small.run("fedavg", *ESTIMATED)
    for number, about in enumerate(done.folder.about().sites):
        site = site_of(small, "fedavg", *ESTIMATED, number=number)
        site.load({n: t for n, t in done.site(about.name).items() if "running" not in n})
        reestimate(FedAvg(), site)
        assert equal(dict(site.weights), done.site(about.name))


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedper", "ditto"])
def test_the_finishing_step_gives_what_the_setting_gives(federation, method):
    """Whether statistics were averaged or not until then: training does not look at them."""
    small = federation()
    plain, after = small.run(method, LAST), small.run(method, LAST, then=THEN)
    estimated = small.run(method, *ESTIMATED)
    assert equal(plain.tensors("server"), after.tensors("server"))
    for site in plain.folder.about().sites:
        assert not equal(plain.tensors(site.name), after.tensors(site.name))
        if method == "ditto":
            assert equal(after.memory(site.name), estimated.memory(site.name))
        else:
            assert equal(after.site(site.name), estimated.site(site.name))


@pytest.mark.parametrize(
    "method",
    [name if name == "apfl" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)
def test_the_finishing_step_can_follow_every_method_and_moves_statistics_alone(federation, method):
    small = federation(rounds=1)
    settings = (LAST, *WITH_NORMS.get(method, ()))
    plain, after = small.run(method, *settings), small.run(method, *settings, then=THEN)
    assert equal(plain.tensors("server"), after.tensors("server"))
    for site in plain.folder.about().sites:
        before, now = plain.tensors(site.name), after.tensors(site.name)
        assert before.keys() == now.keys()
        moved = {name for name in before if not torch.equal(before[name], now[name])}
        assert moved
        assert all("running" in name for name in moved)


def test_it_can_stand_before_and_behind_fine_tuning(federation):
    small = federation()
    tune = '{name = "finetune", iterations = 2}'
    first = small.run("fedavg", LAST, then=f"{THEN}, {tune}")
    last = small.run("fedavg", LAST, then=f"{tune}, {THEN}")
    for site in first.folder.about().sites:
        own, other = first.site(site.name), last.site(site.name)
        assert not equal(own, other)
        assert all(torch.equal(own[n], other[n]) for n in own if "running" not in n)


def test_scoring_in_the_middle_changes_nothing_and_a_resumed_run_is_the_same(federation):
    small = federation()
    done = small.run("fedavg", *ESTIMATED)
    unscored = small.run("fedavg", *ESTIMATED, "evaluation.every=0")
    study = small.study("fedavg", *ESTIMATED, name="killed")
    (run,) = runs_of(study, small.folder / "runs")
    events = perform(run, small.data(study))
    while getattr(next(events), "validation", None) is None:
        pass
    events.close()
    list(perform(run, small.data(study)))
    for site in done.folder.about().sites:
        assert equal(done.tensors(site.name), unscored.tensors(site.name))
    assert run.folder.scores() == done.folder.scores()


def test_validation_is_scored_with_estimated_statistics(federation):
    """Before the last stage the server's weights are the same, so only statistics can differ."""
    small = federation(rounds=1)
    estimated = small.run("fedavg", *ESTIMATED)
    stepped = small.run("fedavg", LAST, then=THEN)
    assert [s.value for s in estimated.folder.scores("test")] == [
        s.value for s in stepped.folder.scores("test")
    ]
    assert [s.value for s in estimated.folder.scores("val")] != [
        s.value for s in stepped.folder.scores("val")
    ]


@pytest.mark.parametrize(("settings", "then"), [(ESTIMATED[:1], ""), ((), THEN)])
def test_a_network_without_such_layers_is_refused_before_training(federation, settings, then):
    small = federation()
    study = small.study("fedavg", "network.name=pvt_fpn", *settings, then=then)
    (run,) = runs_of(study, small.folder / "runs")
    reason = (
        "sites are to estimate the running statistics of BatchNorm layers anew, but network "
        r"'pvt_fpn' has none; take a network with such layers \(unet, resnet_fpn\), or leave out"
    )
    with pytest.raises(EmptySelection, match=reason):
        next(perform(run, small.data(study)))
    assert not run.folder.exists


@pytest.mark.parametrize(("settings", "then"), [(ESTIMATED, ""), ((LAST,), THEN)])
def test_a_site_that_took_no_part_estimates_them_too(federation, settings, then):
    small = federation()
    stranger = small_data("octa", 4)[3]
    done = small.run("fedavg", *settings, then=then)
    rows = try_models(done.run, stranger, torch.device("cpu"), iterations=2)
    by_model = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row[2:])
    # All sites have the same parameters, and here the same statistics: those of this site.
    others = (ENSEMBLE, SHARED, DECODER)
    models = {name: each for name, each in by_model.items() if name not in others}
    assert REESTIMATED in models
    assert len({str(values) for values in models.values()}) == 1
    known = small.data(done.run.study)[1]
    found = try_models(done.run, known, torch.device("cpu"), iterations=2)
    own = {row[2:] for row in found if row.model == known.name and row.metric == "dice"}
    assert own == {
        (score.case, score.region, score.metric, score.value, score.patient)
        for score in done.folder.scores("test")
        if score.site == known.name and score.metric == "dice"
    }


def test_messages_of_the_closing_round_are_taken_up_first(federation):
    """Estimated are the statistics of the server's model, not of the one that was trained last."""
    small = federation(rounds=1)
    site = site_of(small, "fedavg", *ESTIMATED)
    weights = {n: torch.randn_like(t) for n, t in site.weights.items() if "running" not in n}
    study = small.study("fedavg", *ESTIMATED)
    (run,) = runs_of(study, small.folder / "runs")
    runner = SiteRunner(assign(run, small.data(study)), torch.device("cpu"))
    stage = runner.assignment.finalizing
    site = runner._site(site.info, site.data, stage, Message(), None, 2)
    site.message = Message(site.take(frozenset(weights)))
    site.message.weights.load(weights)
    stage.work(site)
    other = site_of(small, "fedavg", *ESTIMATED)
    other.load(weights)
    reestimate(FedAvg(), other)
    assert torch.equal(site.weights.flat, other.weights.flat)


def test_with_tiles_every_pixel_passes_once_in_tiles(federation):
    site = site_of(federation())
    whole = input_moments(FedAvg(), site, by_batch=True)
    sides = []
    with site.quiet():
        site.net.register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))
        tiled = replace(site, task=site.task.changed(tile=site.task.resolution // 2))
        tiles = input_moments(FedAvg(), tiled, by_batch=True)
    first = next(iter(whole))

    assert set(sides) == {site.task.resolution // 2}
    assert tiles[first].count == whole[first].count
