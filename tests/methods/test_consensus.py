import math

import pytest
import torch

from polyclinic.data.cases import Batch
from polyclinic.evaluation.diagnostics import warnings_about
from polyclinic.methods.consensus import DECODER, consensus, received_decoders
from tests.federations import a_site, equal

LAST = "evaluation.choose=last"
KINDS = ("point", "scribble", "block")
SOON = ("method.warm_up=1", LAST)


def test_without_weight_or_in_the_warm_up_it_is_fedavg(federation):
    small = federation(sites=2, rounds=2, kinds=KINDS)
    fedavg = small.run("fedavg", LAST).tensors("server")
    for settings in (("method.weight=0.0", "method.warm_up=1"), ("method.warm_up=2",)):
        plain = small.run("consensus", *settings, LAST).tensors("server")
        assert all(torch.equal(plain[name], fedavg[name]) for name in fedavg)


def test_consensus_labels_change_what_is_learned_where_labels_are_weak(federation):
    small = federation(sites=2, rounds=2, kinds=KINDS)
    sure = ("method.confidence=0.0", *SOON)
    fedavg = small.run("fedavg", LAST).tensors("server")
    agreed = small.run("consensus", *sure).tensors("server")
    assert any(not torch.equal(agreed[name], fedavg[name]) for name in fedavg)
    masks = federation(sites=2, rounds=2)
    full = masks.run("consensus", *sure).tensors("server")
    without = masks.run("fedavg", LAST).tensors("server")
    assert all(torch.equal(full[name], without[name]) for name in without)


def test_every_site_gets_the_decoders_of_all_after_the_warm_up_and_no_other_part(federation):
    done = federation(sites=3, rounds=2, kinds=KINDS).run("consensus", *SOON)
    for line in done.folder.rounds():
        numbers = {name.split("/")[1] for name in line.extras}
        assert numbers == ({"0", "1", "2"} if (line.stage, line.round) == ("fit", 2) else set())
        parts = {name.split("/")[2].split(".")[0] for name in line.extras}
        assert parts <= {"decoder", "head"}
        assert all(name.startswith(f"{DECODER}/") for name in line.extras)


@pytest.fixture
def decoders(federation):
    """Three decoders on one encoder, and a batch."""
    _, site, batch = a_site(federation, "consensus")
    names = [n for n in site.weights if n.startswith(("decoder.", "head."))]
    rng = torch.Generator().manual_seed(0)
    extras = {
        f"{DECODER}/{number}/{name}": site.weights[name].clone()
        + (0.3 * torch.randn(site.weights[name].shape, generator=rng)).abs() * number
        for number in range(3)
        for name in names
    }
    site.message = type(site.message)(extras=extras)
    return received_decoders(site), batch


def test_the_label_is_the_likeliest_class_of_the_mean_where_it_is_sure_enough(decoders):
    nets, batch = decoders
    mean = torch.stack([net(batch.images).softmax(1) for net in nets]).mean(0)
    middle = float(mean.max(1).values.median())
    label = consensus(nets, batch, middle)
    sure = (mean.max(1).values >= middle) & (batch.labels == 255)
    assert sure.any()
    assert torch.equal(label != 255, sure)
    assert torch.equal(label[sure].long(), mean.argmax(1)[sure])


def test_pixels_with_a_label_of_their_own_get_no_other(decoders):
    nets, batch = decoders
    labelled = Batch(batch.images, torch.zeros_like(batch.labels))
    assert (consensus(nets, labelled, 0.0) == 255).all()


@pytest.mark.parametrize(("agreed", "kept"), [(1, 1.0), (0, 0.0)])
def test_a_consensus_that_loses_the_predicted_object_is_told(decoders, federation, agreed, kept):
    nets, _ = decoders
    method, site, _ = a_site(federation, "consensus")
    for net, number in (*((each, agreed) for each in nets), (site.net, 1)):
        with torch.no_grad():
            net.head.weight.zero_()
            net.head.bias.copy_(9 * torch.eye(2)[number])  # sure of one class everywhere
    notes = method.notes(nets, site)
    assert notes["consensus labels"] == 1
    assert notes["pseudo label keeps"] == kept
    assert (notes["pseudo label Dice"] > 0) == bool(agreed), "the drawn masks have an object"
    told = " ".join(warnings_about("here", notes))
    assert ("the pseudo label keeps only 0%" in told) != bool(kept)


def test_what_the_consensus_was_like_is_among_the_diagnostics_of_weak_sites(federation):
    small = federation(sites=2, rounds=2, kinds=("point", "mask"))
    done = small.run("consensus", "method.confidence=0.0", *SOON)
    early, *_, late = [each for each in done.folder.tables() if each.name == "diagnostics"]
    assert "consensus labels" not in early.columns, "in the warm-up there are none"
    place = late.columns.index("consensus labels")
    weak, full = (row[place] for row in late.values)
    assert weak == 1
    assert math.isnan(full)


def test_a_site_that_stays_away_is_heard_with_its_last_decoder(federation):
    done = federation(sites=3, rounds=3, kinds=KINDS).run(
        "consensus", "federation.participation=0.67", *SOON
    )
    heard = [
        len({name.split("/")[1] for name in line.extras})
        for line in done.folder.rounds()
        if line.stage == "fit" and line.round > 1
    ]
    assert heard == sorted(heard)
    assert heard[-1] >= 2
    assert not equal(done.tensors("server"), {})
