from dataclasses import replace

import pytest
import torch

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.engine.unseen import try_models
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.methods.iopfl import TRAJECTORY, Routing
from polyclinic.networks.parts import norms, parameters
from polyclinic.networks.routing import RoutedConv, adaptable, routed
from polyclinic.runs import DECODER, ENSEMBLE, REESTIMATED, ROUTED, SHARED, SiteInfo
from tests.federations import NETS, Done, a_site, equal, small_data

LAST = "evaluation.choose=last"
CPU = torch.device("cpu")


def trajectory(memory) -> dict[str, torch.Tensor]:
    prefix = f"{TRAJECTORY}/"
    return {n.removeprefix(prefix): t for n, t in memory.items() if n.startswith(prefix)}


def names(done: Done) -> list[str]:
    return [site.name for site in done.folder.about().sites]


def visits(federation, *overrides, rounds=3, **settings):
    """What every site trained and its trajectory, round by round."""
    small = federation(rounds=rounds, **settings)
    study = small.study("iop-fl", *overrides)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), CPU)
    sites = LocalSites(runner, data, run.folder)
    server = Server(sites.trained, runner.first_weights(), study.federation, 0)
    (stage,) = runner.assignment.method.each_round()
    for number in range(1, rounds + 1):
        messages = {info.name: stage.message(server, info) for info in sites.trained}
        asked = sites.ask(stage, messages, number=number, since=number - 1)
        replies = {site: reply.message for site, reply in asked}
        kept = {site: sites.states.load(site, number).memory for site in replies}
        stage.combine(server, replies)
        yield {site: (replies[site].weights, trajectory(kept[site])) for site in replies}


@NETS
def test_the_shared_model_is_fedavgs_for_every_past(federation, network):
    small = federation(**{"network.name": network})
    expected = small.run("fedavg", LAST).tensors("server")
    for past in (0.0, 0.1, 0.9):
        done = small.run("iop-fl", f"method.past={past}", LAST)
        assert equal(done.tensors("server"), expected)


@NETS
def test_without_a_past_the_trajectory_is_what_was_trained_last(federation, network):
    for found in visits(federation, "method.past=0.0", **{"network.name": network}):
        for trained, kept in found.values():
            assert equal(dict(trained), kept)


@NETS
def test_the_trajectory_has_its_closed_form(federation, network):
    past, trained = 0.3, []
    for found in visits(federation, f"method.past={past}", **{"network.name": network}):
        trained.append({site: weights for site, (weights, _) in found.items()})
    rounds = len(trained)
    for site, (_, kept) in found.items():
        for name in kept:
            expected = past ** (rounds - 1) * trained[0][site][name].double()
            for number in range(1, rounds):
                share = (1 - past) * past ** (rounds - 1 - number)
                expected = expected + share * trained[number][site][name].double()
            torch.testing.assert_close(kept[name], expected.float(), rtol=1e-5, atol=1e-6)


@NETS
def test_the_first_trajectory_is_what_was_trained_and_no_alias_of_it(federation, network):
    (first, second) = visits(federation, rounds=2, **{"network.name": network})
    for site, (trained, kept) in first.items():
        assert equal(dict(trained), kept)
        assert not equal(second[site][1], kept)


@NETS
def test_training_that_changes_nothing_leaves_the_trajectory(federation, network):
    method, site, _ = a_site(
        federation, "iop-fl", "method.past=0.37", f"network.name={network}", kinds=("mask",)
    )
    for _ in range(4):
        method.send(site)
        assert equal(trajectory(site.memory), dict(site.weights))


def test_a_site_is_scored_with_its_trajectory(federation):
    small = federation()
    done = small.run("iop-fl", "method.past=0.5", LAST)
    data = small.data(done.run.study)
    runner = SiteRunner(assign(done.run, data), CPU)
    info = runner.assignment.sites[0]
    site = runner.opened(info, data[0], SiteState(done.site(info.name), done.memory(info.name)))
    with runner.assignment.method.in_use(site):
        assert equal(dict(site.weights.copy()), trajectory(done.memory(info.name)))
    assert equal(dict(site.weights.copy()), {n: done.site(info.name)[n] for n in site.weights})
    assert equal(
        done.site(info.name),
        {n.removeprefix("weights/"): t for n, t in done.tensors("server").items()},
    )


def test_the_trajectory_never_leaves(federation):
    done = federation().run("iop-fl", LAST)
    average = federation().run("fedavg", LAST)
    assert [(r.up, r.down, r.extras) for r in done.folder.rounds()] == [
        (r.up, r.down, r.extras) for r in average.folder.rounds()
    ]


def test_fine_tuning_trains_the_trajectory(federation):
    small = federation()
    plain = small.run("iop-fl", LAST)
    tuned = small.run("iop-fl", LAST, then='{name = "finetune", iterations = 2}')
    for site in names(plain):
        assert equal(plain.site(site), tuned.site(site))
        assert not equal(trajectory(plain.memory(site)), trajectory(tuned.memory(site)))


def test_calibration_after_it_discloses_whole_trajectories_and_trains_them(federation):
    small = federation()
    plain = small.run("iop-fl", LAST)
    then = '{name = "igc", iterations = 2}'
    done = small.run("iop-fl", LAST, then=then)
    size = 4 * sum(t.numel() for t in plain.site(names(plain)[0]).values())
    disclosed = [line for line in done.folder.rounds() if line.stage == "disclose"]
    assert [line.parts for line in disclosed] == [{"extra disclosed": size}] * 2
    weightless = small.run("iop-fl", LAST, then='{name = "igc", iterations = 2, weight = 0.0}')
    for site in names(plain):
        kept = [trajectory(each.memory(site)) for each in (plain, done, weightless)]
        assert not equal(kept[0], kept[1])
        assert not equal(kept[1], kept[2])


def test_a_site_that_never_trained_uses_the_shared_model(federation):
    small = federation(rounds=1, **{"federation.participation": 0.4})
    done = small.run("iop-fl", LAST)
    server = {n.removeprefix("weights/"): t for n, t in done.tensors("server").items()}
    trained = {line.site for line in done.folder.rounds() if line.stage == "fit"}
    away = set(names(done)) - trained
    assert away
    for site in away:
        assert equal(trajectory(done.memory(site)), server)


# Outside: a site that took no part.


def one_hot(net, place):
    """Gates that take one expert alone, at every convolution."""
    for module in net.modules():
        if isinstance(module, RoutedConv):
            count = module.router[2].out_features
            row = torch.zeros(count)
            row[place] = 1.0
            module.router = Fixed(row)


class Fixed(torch.nn.Module):
    def __init__(self, row):
        super().__init__()
        self.row = row

    def forward(self, pooled):
        return self.row.expand(len(pooled), -1)


def by_batch_statistics(net):
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    return net.eval()


@NETS
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_hot_gates_reproduce_each_expert_exactly(federation, network, place):
    _, site, _ = a_site(federation, "iop-fl", f"network.name={network}", kinds=("mask",))
    rng = torch.Generator().manual_seed(0)
    experts = [
        {n: t + 0.1 * torch.randn(t.shape, generator=rng) for n, t in site.weights.items()}
        for _ in range(2)
    ]
    experts.append(dict(site.weights.copy()))
    net = routed(site.net, experts, "independent").eval()
    one_hot(net, place)
    kernels = {p: m for p, m in net.named_modules() if isinstance(m, RoutedConv)}
    assert len(kernels) == sum(
        isinstance(m, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for m in site.net.modules()
    )
    row = torch.eye(3)[place]
    for path, module in kernels.items():
        for name, tensor in module.mixed(row).items():
            assert torch.equal(tensor, experts[place][f"{path}.{name}"])
    images = torch.rand(3, 1, 64, 64, generator=rng)
    alone = {n: t for n, t in experts[place].items() if n.rpartition(".")[0] in kernels}
    with torch.no_grad():
        expected = by_batch_statistics(site.twin(alone))(images)
        torch.testing.assert_close(net(images), expected, rtol=1e-4, atol=1e-5)


def test_gates_differ_between_images_and_shares_sum_to_one(federation):
    _, site, _ = a_site(federation, "iop-fl", kinds=("mask",))
    experts = [dict(site.weights.copy()) for _ in range(3)]
    images = torch.stack([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
    for kind in ("independent", "normalised"):
        conv = routed(site.net, experts, kind).encoder.levels[0].conv1.eval()
        gates = conv.weigh(images).detach()
        assert gates.shape == (2, 3)
        assert not torch.equal(*gates)
        assert torch.allclose(gates.sum(1), torch.ones(2)) is (kind == "normalised")


@NETS
def test_only_routers_and_scales_of_norms_learn_and_all_of_them_do(federation, network):
    """The released code forgets the routers of the deepest maps."""
    _, site, batch = a_site(federation, "iop-fl", f"network.name={network}", kinds=("mask",))
    experts = [{n: t + 0.01 * i for n, t in site.weights.items()} for i in range(3)]
    net = routed(site.net, experts, "independent").train()
    learning = adaptable(net)
    assert learning == {n for n in parameters(net) if ".router." in n} | (
        norms(net) & parameters(net)
    )
    site.net = net.requires_grad_(True)
    images = torch.rand(2, 1, 64, 64)
    Routing().loss(site, type(batch)(images, batch.labels)).backward()
    silent = {n for n in learning if net.get_parameter(n).grad is None}
    assert not silent
    still = {n for n in learning if not net.get_parameter(n).grad.abs().sum()}
    assert all("router.0" not in name for name in still)


@pytest.mark.parametrize("term", ["entropy", "consistency", "smoothness"])
def test_every_term_of_the_routing_has_a_gradient(federation, term):
    _, site, batch = a_site(federation, "iop-fl", kinds=("mask",))
    experts = [{n: t + 0.05 * i for n, t in site.weights.items()} for i in range(3)]
    site.net = routed(site.net, experts, "independent").train().requires_grad_(True)
    others = {"entropy": 0.0, "consistency": 0.0, "smoothness": 0.0}
    Routing(**{**others, term: 1.0}).loss(site, batch).backward()
    grads = [p.grad for n, p in site.net.named_parameters() if ".router." in n]
    assert any(each is not None and each.abs().sum() > 0 for each in grads)


def test_a_site_that_took_no_part_is_routed_and_twice_alike(federation):
    small = federation()
    done = small.run("iop-fl", "method.outside_routing.epochs=2", LAST)
    stranger = small_data("octa", 4)[3]
    rows = try_models(done.run, stranger, CPU, iterations=2)
    models = list(dict.fromkeys(row.model for row in rows))
    assert models == [*names(done), ENSEMBLE, SHARED, REESTIMATED, ROUTED, DECODER]
    again = try_models(done.run, stranger, CPU, iterations=2)
    assert repr(rows) == repr(again)  # a distance may be nan


def guest_of(done, small, stranger):
    runner = SiteRunner(assign(done.run, small.data(done.run.study)), CPU)
    method, models = runner.assignment.method, {}
    for info in runner.assignment.sites:
        state = SiteState(done.site(info.name), done.memory(info.name))
        site = runner.opened(info, stranger, state)
        with method.in_use(site):
            models[info.name] = site.weights.copy()
    site = runner.opened(SiteInfo(stranger.name, 0, stranger.kind, 1), stranger, None)
    server = {n.removeprefix("weights/"): t for n, t in done.tensors("server").items()}
    site.message = Message(Weights.pack(server))
    site.load(server)
    return method, site, models


def test_routing_looks_at_test_images_and_never_at_masks_or_labels(federation):
    small = federation()
    done = small.run("iop-fl", "method.outside_routing.epochs=1", LAST)
    stranger = small_data("octa", 4)[3]
    blank = replace(
        stranger,
        train=stranger.train.select([]),
        test=replace(
            stranger.test,
            labels=torch.full_like(stranger.test.labels, 255),
            masks=torch.full_like(stranger.test.masks, 255),
        ),
    )
    found = []
    for data in (stranger, blank):
        method, site, models = guest_of(done, small, data)
        before = site.weights.copy()
        guest = method.outside(site, models)
        found.append({n: t.detach() for n, t in guest.net.named_parameters()})
        assert torch.equal(site.weights.flat, before.flat)
    assert equal(*found)
    learned = adaptable(guest.net)
    fresh = Routing(epochs=0).adapted(site, [*models.values(), before])
    changed = {n for n, t in fresh.net.named_parameters() if not torch.equal(t, found[0][n])}
    assert changed
    assert changed <= learned
