import pickle
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional

from polyclinic.config import ConfigError
from polyclinic.data.cases import Batch
from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.evaluation.diagnostics import warnings_about
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.losses import segmentation_loss, virtual_class_loss
from polyclinic.methods import METHODS
from polyclinic.methods.virtual_classes import VirtualClasses
from polyclinic.networks.affinity import ROLES, affinity
from polyclinic.networks.parts import everything, part
from polyclinic.networks.virtual_head import VirtualHead, orthogonal_rows
from tests.federations import PAPER, equal

NAME = "virtual-classes"
LAST = "evaluation.choose=last"
WITHOUT_PAA = ("method.paa=false", LAST)
SHARINGS = {
    "key": {"key"},
    "query": {"query"},
    "matrix": {"matrix"},
    "query+key": {"query", "key"},
    "query+matrix": {"query", "matrix"},
    "key+matrix": {"key", "matrix"},
    "all": {"query", "key", "matrix"},
    "nothing": set(),
}


def a_runner(federation, *overrides, **changes):
    small = federation(**changes)
    study = small.study(NAME, *overrides)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    return SiteRunner(assign(run, data), torch.device("cpu")), data


def a_site(federation, *overrides, index=0, **changes):
    """A site at its first visit, whose network was not trained yet."""
    runner, data = a_runner(federation, *overrides, **changes)
    chosen = runner.assignment.method
    message = Message(runner.first_weights())
    info = runner.assignment.sites[index]
    site = runner._site(info, data[index], chosen.finalizing(), message, None, 1)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 1, 32, 32, generator=generator)
    labels = torch.zeros(2, 32, 32, dtype=torch.uint8)
    labels[:, 10:20] = 1
    return chosen, site, Batch(images, labels)


class CosineHead(nn.Module):
    """A head of cosines written out, with nothing virtual about it."""

    def __init__(self, rows, scale):
        super().__init__()
        self.weight = nn.Parameter(rows)
        self.scale = scale

    def forward(self, maps):
        pixels = maps / maps.norm(dim=1, keepdim=True).clamp(min=1e-6)
        kernels = self.weight / self.weight.norm(dim=1, keepdim=True).clamp(min=1e-6)
        return functional.conv2d(pixels, (self.scale * kernels)[:, :, None, None])


@dataclass(frozen=True)
class AveragedCosines(Method):
    """FedAvg with a cosine head that starts where that of virtual classes starts."""

    def adapt(self, net, sites):
        virtual = net.classes * len(sites)
        rows = orthogonal_rows(virtual + net.classes, net.head.in_channels, torch.initial_seed())
        net.head = CosineHead(rows[virtual:].clone(), VirtualClasses().scale)
        return net


def test_without_virtual_classes_and_affinity_it_is_fedavg(federation):
    small = federation(rounds=3)
    off = small.run(NAME, "method.virtual_classes=0", *WITHOUT_PAA)
    fedavg = small.run("fedavg", LAST)
    assert equal(off.tensors("server"), fedavg.tensors("server"))
    for site in fedavg.folder.about().sites:
        assert equal(off.site(site.name), fedavg.site(site.name))


def test_without_the_virtual_loss_it_is_fedavg_with_a_cosine_head(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "averaged-cosines", AveragedCosines)
    small = federation(rounds=3)
    ours = small.run(NAME, "method.virtual_weight=0", *WITHOUT_PAA)
    reference = small.run("averaged-cosines", LAST)
    assert equal(ours.tensors("server"), reference.tensors("server"))
    assert ours.folder.scores() == reference.folder.scores()


def test_virtual_kernels_stay_bit_by_bit_and_are_the_same_everywhere(federation):
    settings = ("training.weight_decay=0.5", "training.learning_rate=0.1")
    runner, data = a_runner(federation, *settings)
    first = runner.net.head.virtual.clone()
    assert first.abs().sum() > 0
    (stage,) = runner.assignment.method.each_round()
    message, state = Message(runner.first_weights()), None
    before = runner.net.head.weight.detach().clone()
    for number in (1, 2):
        for info, site in zip(runner.assignment.sites, data, strict=True):
            visit = runner.visit(info, site, stage, message, state, number)
            assert torch.equal(runner.net.head.virtual, first)
            assert not any(
                "virtual" in name for name in [*visit.state.weights, *visit.reply.weights]
            )
            assert not torch.equal(runner.net.head.weight, before)
    # Another machine knows the assignment alone.
    elsewhere = SiteRunner(pickle.loads(pickle.dumps(runner.assignment)), torch.device("cpu"))
    assert torch.equal(elsewhere.net.head.virtual, first)
    with_another_seed, _ = a_runner(federation, "seeds=[1]")
    assert not torch.equal(with_another_seed.net.head.virtual, first)


def test_the_virtual_loss_moves_embeddings_and_never_a_kernel(federation):
    _, site, batch = a_site(federation)
    net = site.net.train()
    real, virtual = net.head.both(net.embed(batch.images))
    assert not virtual.isnan().any()
    names, tensors = zip(*net.named_parameters(), strict=True)
    slopes = torch.autograd.grad(virtual_class_loss(virtual), tensors, allow_unused=True)
    by_name = dict(zip(names, slopes, strict=True))
    assert by_name.pop("head.weight") is None  # exactly nothing
    for wanted in (
        "encoder.",
        "decoder.",
        "attention.query.",
        "attention.key.",
        "attention.matrix.",
    ):
        assert any(s is not None and s.any() for n, s in by_name.items() if wanted in n), wanted
    assert real.shape[1] == 2
    assert virtual.shape[1] == 2 * 2


def test_the_loss_is_dice_and_both_weighted_entropies(federation):
    chosen, site, batch = a_site(federation, "method.real_weight=0.3", "method.virtual_weight=0.7")
    site.net.eval()
    real, virtual = site.net.head.both(site.net.embed(batch.images))
    expected = (
        segmentation_loss(real, batch.labels, kind="dice")
        + 0.3 * functional.cross_entropy(real, batch.labels.long())
        + 0.7 * functional.cross_entropy(virtual, virtual.argmax(1))
    )
    torch.testing.assert_close(chosen.loss(site, batch), expected)


def test_real_logits_are_left_out_of_the_virtual_softmax_and_the_other_way_round(federation):
    chosen, site, batch = a_site(federation)
    site.net.eval()
    before = chosen.predict(site, batch.images)
    own = virtual_class_loss(site.net.head.both(site.net.embed(batch.images))[1])
    site.net.head.virtual.neg_()
    assert torch.equal(chosen.predict(site, batch.images), before)
    site.net.head.virtual.neg_()
    site.load({"head.weight": site.weights["head.weight"] * -1})
    assert torch.equal(virtual_class_loss(site.net.head.both(site.net.embed(batch.images))[1]), own)


@pytest.mark.parametrize(
    ("multiple", "count"), [(0.1, 1), (0.25, 1), (0.5, 2), (1, 4), (2, 8), (4, 16)]
)
def test_virtual_classes_are_counted_in_real_classes_times_sites(federation, multiple, count):
    runner, _ = a_runner(federation, f"method.virtual_classes={multiple}")
    assert len(runner.net.head.virtual) == count


@pytest.mark.parametrize("sharing", SHARINGS)
def test_of_the_affinities_a_site_shares_what_it_is_told_to(federation, sharing):
    runner, _ = a_runner(federation, f"method.paa_shares={sharing}")
    net = runner.net
    private = [role for role in ROLES if role not in SHARINGS[sharing]]
    assert runner.shared == everything(net) - affinity(net, *private)
    assert affinity(net, *SHARINGS[sharing]) <= runner.shared
    assert len(affinity(net, "query")) == 6


def test_keys_are_common_and_queries_and_matrices_every_sites_own(federation):
    done = federation(rounds=2).run(NAME, LAST)
    one, other, *_ = (done.site(site.name) for site in done.folder.about().sites)
    kept = {name for name in one if not torch.equal(one[name], other[name])}
    private = {name for name in one if ".query." in name or ".matrix." in name}
    assert kept <= private
    # The bias of a convolution before a norm has no slope but rounding's, and may stay.
    assert {name for name in private if name.endswith("0.weight")} <= kept
    sent = {name.removeprefix("weights/") for name in done.tensors("server")}
    assert sent == one.keys() - private
    assert any(".key." in name for name in sent)


def test_affinity_that_is_all_shared_leaves_one_model_for_all(federation):
    done = federation(rounds=2).run(NAME, "method.paa_shares=all", LAST)
    models = [done.site(site.name) for site in done.folder.about().sites]
    assert all(equal(models[0], model) for model in models[1:])


@pytest.mark.parametrize(
    "change",
    [
        "method.virtual_classes=0",
        pytest.param("method.virtual_classes=2", marks=pytest.mark.slow),
        "method.scale=3",
        pytest.param("method.real_weight=0.5", marks=pytest.mark.slow),
        "method.virtual_weight=0",
        "method.signed=true",
        "method.paa=false",
        "method.paa_shares=query",
        "method.paa_shares=all",
        pytest.param("method.projection.kernel=3", marks=pytest.mark.slow),
        pytest.param("method.projection.norm=false", marks=pytest.mark.slow),
        "method.projection.matrix=linear",
        pytest.param("method.projection.result=alone", marks=pytest.mark.slow),
        "federation.weighting=uniform",
    ],
)
def test_every_setting_changes_the_result(federation, change):
    # What is shared or not shows in the other weights only after a second round.
    small = federation(sites=2, rounds=2 if "shares" in change else 1)
    as_it_is = small.run(NAME, LAST).tensors("server")
    changed = small.run(NAME, change, LAST).tensors("server")
    common = as_it_is.keys() & changed.keys()
    same = [
        torch.equal(as_it_is[n], changed[n])
        for n in common
        if as_it_is[n].shape == changed[n].shape
    ]
    assert not all(same)


def test_parameters_and_traffic_are_those_counted_by_hand(federation):
    small = federation(task="fundus", sites=4, rounds=1)
    settings = (*PAPER, "training.iterations=1", "training.batch=2")
    done = small.run(NAME, *settings, "federation.statistics=private", LAST)
    levels = (128, 64, 32, 16)
    projection = sum(width * width + width + 2 * width for width in levels)
    unet, own_head, cosine_head = 1_813_907, 435, 3 * 16
    assert done.folder.about().parameters == unet - own_head + cosine_head + 3 * projection
    sent = unet - own_head + cosine_head + projection
    assert sent == 1_836_000
    lines = [line for line in done.folder.rounds() if line.stage == "fit"]
    assert [line.down for line in lines] == [4 * sent] * 4
    assert [line.up for line in lines] == [4 * sent + 24] * 4  # images, steps, classes used
    averaged = small.run(NAME, *settings, LAST)  # with the statistics of what is shared
    lines = [line for line in averaged.folder.rounds() if line.stage == "fit"]
    assert [line.down for line in lines] == [4 * (sent + 3_424)] * 4


@pytest.mark.parametrize("network", ["classic_unet", "pvt_fpn"])
def test_it_works_in_other_networks(federation, network):
    width = {"classic_unet": 2, "pvt_fpn": 8}[network]
    small = federation(rounds=1, sites=2)
    done = small.run(NAME, f"network.name={network}", f"network.width={width}", LAST)
    one, other = (done.site(site.name) for site in done.folder.about().sites)
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing
    assert all(".query." in name or ".matrix." in name for name in differing)


@pytest.mark.parametrize("task", ["fundus", "polyp", "prostate"])
def test_it_runs_on_every_task_and_with_weak_labels(federation, task):
    small = federation(task=task, sites=3, rounds=1, kinds=("mask", "scribble", "point"))
    done = small.run(NAME, LAST)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


def test_what_is_switched_off_is_not_built(federation):
    settings = ("method.virtual_classes=0", "method.paa=false")
    runner, _ = a_runner(federation, *settings)
    assert not any(isinstance(module, VirtualHead) for module in runner.net.modules())
    assert not affinity(runner.net, *ROLES)
    runner, _ = a_runner(federation, "method.virtual_classes=0")
    assert part(runner.net, "head") == {"head.weight", "head.bias"}


def test_a_sharing_that_does_not_exist_is_refused_with_those_that_do(federation):
    with pytest.raises(ConfigError, match=r"paa_shares.*query\+matrix"):
        federation().study(NAME, "method.paa_shares=keys")


def test_a_loss_of_ones_own_is_weighted_as_a_whole(federation):
    method, site, batch = a_site(federation, "method.real_weight=3.0", "method.virtual_weight=0")
    site.net.eval()
    site.loss = lambda logits, labels: logits.square().mean()
    torch.testing.assert_close(method.loss(site, batch), 3 * site.net(batch.images).square().mean())


def test_the_control_has_the_same_network_and_start_and_only_no_virtual_loss(federation):
    with_it, without = (
        a_runner(federation, f"method.virtual_weight={weight}")[0] for weight in (1, 0)
    )
    assert torch.equal(with_it.initial.flat, without.initial.flat)
    assert with_it.initial.names == without.initial.names


def test_signed_embeddings_reach_more_virtual_classes_than_positive_ones():
    """What a ReLU leaves has one common direction, and most kernels lie on its other side."""
    maps = torch.rand(2, 16, 32, 32, generator=torch.Generator().manual_seed(0)) + 1
    used = {}
    for signed in (False, True):
        head = VirtualHead(16, classes=3, virtual=12, scale=10.0, seed=0, signed=signed)
        shares = head.nearest(maps)
        assert float(shares.sum()) == pytest.approx(1)
        used[signed] = int((shares >= 0.01).sum())
        real, _ = head.both(maps)
        torch.testing.assert_close(real, head(maps))
    assert used[False] <= 2
    assert used[True] >= 11


def test_used_virtual_classes_are_told_in_every_round_and_warned_of_when_few(federation):
    done = federation(rounds=2).run(NAME, LAST)
    told = [
        line.numbers["virtual classes used"] for line in done.folder.rounds() if line.stage == "fit"
    ]
    assert len(told) == 4
    assert all(1 <= count <= 4 for count in told)  # two classes at two sites
    (table,) = [t for t in done.folder.tables() if t.name == "diagnostics"][-1:]
    assert {"virtual classes used", "virtual share used", "kernels fit"} <= set(table.columns)
    assert any("collapsed" in text for text in warnings_about("here", {"virtual share used": 0.25}))
    assert not list(warnings_about("here", {"virtual share used": 0.5, "kernels fit": 1.0}))


def test_more_kernels_than_channels_are_warned_of(federation, caplog):
    small = federation(rounds=1)
    small.run(NAME, "method.virtual_classes=4", LAST, name="too-many")
    assert "do not fit into 2 channels orthogonally" in caplog.text
    caplog.clear()
    small.run(NAME, "method.virtual_classes=4", LAST, "network.width=32", name="enough")
    assert not caplog.text
