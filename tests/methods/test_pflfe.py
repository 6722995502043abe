from dataclasses import dataclass

import pytest
import torch

from polyclinic.federation.method import Method
from polyclinic.methods import METHODS
from polyclinic.methods.enhancement import SPREADS, enhance
from polyclinic.methods.pflfe import FCPFLFE, PFLFE, last_layers
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, parameters, part, statistics
from tests.federations import equal

LAST = "evaluation.choose=last"
NO_ENHANCEMENT = "method.enhancement.share=0.0"
BOTH = pytest.mark.parametrize("method", ["pflfe", "fc-pflfe"])


@dataclass(frozen=True)
class DecoderPrivate(Method):
    """Averaging of encoders under private decoders."""

    def shares(self, net):
        return part(net, "encoder")


@pytest.fixture
def decoder_private(monkeypatch):
    monkeypatch.setitem(METHODS, "decoder-private", DecoderPrivate)
    return "decoder-private"


def classic(method=None):
    net = NETWORKS["classic_unet"](channels=3, classes=1)
    return method.adapt(net, ()) if method else net


def count(net, names):
    return sum(p.numel() for name, p in net.named_parameters() if name in names)


@BOTH
def test_without_enhancement_it_is_averaging_with_private_decoders(
    federation, decoder_private, method
):
    small = federation(rounds=3)
    plain = small.run(decoder_private, LAST)
    without = small.run(method, NO_ENHANCEMENT, LAST)
    assert equal(plain.tensors("server"), without.tensors("server"))
    for site in plain.folder.about().sites:
        assert equal(plain.tensors(site.name), without.tensors(site.name))


def test_enhancement_of_no_steps_is_the_same_but_for_its_idle_exchange(federation, decoder_private):
    small = federation(rounds=2)
    plain = small.run(decoder_private, LAST)
    idle = small.run("pflfe", "method.enhancement.share=0.01", LAST)  # of two steps: none
    assert equal(plain.tensors("server"), idle.tensors("server"))
    for site in plain.folder.about().sites:
        own, other = plain.site(site.name), idle.site(site.name)
        assert all(torch.equal(own[name], other[name]) for name in own)


@BOTH
def test_encoders_are_common_and_decoders_and_projectors_private(federation, method):
    done = federation(rounds=2).run(method, LAST)
    sites = [done.site(site.name) for site in done.folder.about().sites]
    for name in sites[0]:
        same = all(torch.equal(sites[0][name], other[name]) for other in sites[1:])
        private = name.partition(".")[0] in ("decoder", "head", "projector")
        if private and torch.equal(sites[0][name], sites[1][name]):
            assert "running" in name  # a projector's statistics never move
        else:
            assert same != private, name
    server = {name.removeprefix("weights/") for name in done.tensors("server")}
    assert {name.partition(".")[0] for name in server} == {"encoder"}


def test_a_round_has_two_exchanges_or_one_and_tells_the_spread(federation):
    small = federation(rounds=2)
    two, one = (small.run(name, LAST).folder.rounds() for name in ("pflfe", "fc-pflfe"))
    stages = [line.stage for line in two if line.round == 1]
    assert stages == ["enhance"] * 2 + ["fit"] * 2
    assert [line.stage for line in one if line.round == 1] == ["fit"] * 2
    told = [line for line in (*two, *one) if SPREADS[0] in line.numbers]
    assert len(told) == 2 * 2 * 2
    assert all(0 < line.numbers[name] < 2 for line in told for name in SPREADS)
    steps = {line.stage: line.numbers["steps"] for line in two if line.round}
    assert steps["enhance"] == steps["fit"] == 2
    assert {line.numbers["steps"] for line in one if line.stage == "fit"} == {4}


def test_the_projector_lives_on_between_rounds_and_the_target_does_not(federation, monkeypatch):
    begun, ended = [], []

    def watched(site, how, views):
        begun.append(site.take(part(site.net, "projector")))
        numbers = enhance(site, how, views)
        ended.append(site.take(part(site.net, "projector")))
        return numbers

    monkeypatch.setattr("polyclinic.methods.pflfe.enhance", watched)
    done = federation(sites=2, rounds=2).run("pflfe", LAST, name="watched")
    for site in (0, 1):  # two visits of the first round, then two of the second
        assert torch.equal(ended[site].flat, begun[site + 2].flat)
        assert not torch.equal(begun[site].flat, ended[site].flat)
        assert not torch.equal(begun[site + 2].flat, ended[site + 2].flat)
    kept = [name for s in done.folder.about().sites for name in done.memory(s.name)]
    assert kept
    assert not any(name.startswith("target/") for name in kept)


@pytest.mark.parametrize(("rounds", "same"), [(1, True), (2, False)])
def test_a_target_that_is_kept_differs_from_a_new_one_from_the_second_visit_on(
    federation, rounds, same
):
    small = federation(sites=2, rounds=rounds)
    kept = "method.enhancement.target=kept"
    new, old = (small.run("pflfe", *more, LAST).tensors("server") for more in ((), (kept,)))
    assert equal(new, old) == same


def test_its_diagnostics_tell_what_the_enhancement_did(federation):
    done = federation(rounds=1).run("pflfe", LAST)
    table = [each for each in done.folder.tables() if each.name == "diagnostics"][-1]
    told = {"enhancement moved", "target followed", "spread of features"}
    assert told <= set(table.columns)
    assert not told & set(diagnostics_of(federation(rounds=1).run("pflfe", NO_ENHANCEMENT, LAST)))


def diagnostics_of(done):
    return [each for each in done.folder.tables() if each.name == "diagnostics"][-1].columns


@pytest.mark.slow
def test_enhancement_the_middle_average_and_every_setting_of_it_matter(federation):
    small = federation(rounds=1)
    servers = [
        small.run(name, *settings, LAST).tensors("server")
        for name, *settings in (
            ("pflfe",),
            ("pflfe", NO_ENHANCEMENT),
            ("fc-pflfe",),
            ("pflfe", "method.enhancement.decay=0.5"),
            ("pflfe", "method.enhancement.share=2.0"),
            ("pflfe", "method.enhancement.rate=1.0"),
            ("pflfe", "method.enhancement.hidden=64"),
            ("pflfe", "method.enhancement.target=kept", "federation.rounds=2"),
            ("pflfe", "federation.rounds=2"),
            ("pflfe", "method.enhancement.outputs=16"),
            ("pflfe", "method.views.colour=0.0"),
            ("pflfe", "method.views.smallest=0.9"),
            ("pflfe", "method.views.flips=false"),
        )
    ]
    for place, one in enumerate(servers):
        assert not any(equal(one, other) for other in servers[place + 1 :])


def test_the_classic_u_net_s_encoder_is_what_the_paper_transmits():
    method = PFLFE()
    net = classic(method)
    assert count(net, method.shares(net)) == 18_851_136
    moments = statistics(net) & method.shares(net)
    assert sum(net.state_dict()[name].numel() for name in moments) == 7_936
    assert count(net, everything(net) - part(net, "projector")) == 31_043_521


@pytest.mark.parametrize(
    ("layers", "millions"),
    [(1, 31.05), (3, 31.01), (8, 30.76), (13, 29.74), (18, 25.67), (21, 18.86)],
)
def test_private_layers_leave_what_the_paper_s_table_says(layers, millions):
    method = PFLFE(private_layers=layers)
    net = classic(method)
    shared = count(net, method.shares(net))
    # The table rounds up, but for its last row, which has 18.85.
    assert -(-shared // 10_000) / 100 == pytest.approx(millions)


def test_last_layers_are_counted_from_the_head_and_end_at_the_decoder():
    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    assert last_layers(net, 1) == part(net, "head")
    assert last_layers(net, 2) == part(net, "head") | {
        name for name in everything(net) if name.startswith("decoder.levels.3.combine.norm2.")
    }
    assert last_layers(net, 1000) == part(net, "decoder") | part(net, "head")


def test_traffic_is_the_encoder_each_way_in_each_exchange(federation):
    small = federation(sites=2, rounds=1)
    settings = ("network.name=classic_unet", "federation.statistics=private", LAST)
    for name, exchanges in (("pflfe", 2), ("fc-pflfe", 1)):
        done = small.run(name, *settings)
        net = NETWORKS["classic_unet"](channels=1, classes=2, width=2)
        size = 4 * count(net, part(net, "encoder") & parameters(net))
        lines = [line for line in done.folder.rounds() if line.round == 1]
        assert len(lines) == 2 * exchanges
        assert all(line.down == size for line in lines)
        assert all(line.up == size + 8 * len(line.numbers) for line in lines)


@pytest.mark.parametrize("task", ["fundus", "prostate"])
def test_it_runs_in_colour_and_grey_with_weak_labels_and_a_single_image_at_a_time(federation, task):
    kinds = ("mask", "scribble", "point")
    small = federation(task=task, rounds=1, kinds=kinds)
    done = small.run("pflfe", "training.batch=1", "method.private_layers=3", LAST)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


@pytest.mark.parametrize(
    "network",
    [
        "unet_plus_plus",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("pvt_fpn", "res_unet", "fcn")),
    ],
)
def test_it_runs_with_other_networks(federation, network):
    done = federation(sites=2, rounds=1).run("pflfe", f"network.name={network}", LAST)
    assert done.folder.finished


def test_its_embeddings_are_kept_for_the_report(federation):
    done = federation(rounds=1).run("pflfe", "evaluation.pictures=true", LAST)
    for site in done.folder.about().sites:
        assert done.folder.embeddings_path(site.name).exists()


def test_the_fast_one_is_a_pflfe():
    assert issubclass(FCPFLFE, PFLFE)
    assert [stage.name for stage in FCPFLFE().each_round()] == ["fit"]
