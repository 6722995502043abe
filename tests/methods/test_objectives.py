"""What FedICRA and FedLPPA minimise, against their formulas written out by hand."""

from math import exp

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from polyclinic.data.cases import Batch
from polyclinic.losses import tree_filter
from polyclinic.methods.fedicra import CODE
from tests.federations import a_site
from tests.losses import brute_force

SIDE = 16
WINDOW = {"radius": 2, "sigma_xy": 3.0, "sigma_rgb": 0.3}
RELATIVE = {"crf_reach": 2 / SIDE, "crf_near": 3.0 / SIDE, "crf_alike": 0.3, "tree_alike": 0.5}


def settings(weak, **changes):
    """The method's settings and terms for weak labels, as the command line takes them."""
    terms = {f"weak.{key}": value for key, value in (weak | RELATIVE).items()}
    return [f"method.{key}={value}" for key, value in (changes | terms).items()]


def crf(probabilities, images):
    """The energy in a window of few pixels, as if it had the published one's neighbours."""
    energy = brute_force.gated_crf(probabilities, images, **WINDOW)
    return energy * neighbours(5, 6.0) / neighbours(2, 3.0)


def neighbours(radius, sigma):
    places = [(y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)]
    return sum(exp(-(y * y + x * x) / (2 * sigma * sigma)) for y, x in places if y or x)


def weakly_labelled():
    """Two small images, a part of whose pixels has a label."""
    rng = torch.Generator().manual_seed(0)
    images = 0.2 + 0.6 * torch.rand(2, 1, SIDE, SIDE, generator=rng)
    labels = torch.full((2, SIDE, SIDE), 255, dtype=torch.uint8)
    labels[0, :3], labels[0, 8:10], labels[1, :5, 4:9] = 0, 1, 1
    return Batch(images, labels)


def from_the_same_draws(net, look):
    """What `look` gives of the network in training, each time with the same dropout."""
    torch.manual_seed(5)
    net.train()
    return look()


def dice_loss(probabilities, label):
    """One minus Dice with squares below the line, over the batch, as a mean over classes."""
    truth = one_hot(label, probabilities.shape[1]).movedim(3, 1)
    pixels = (0, 2, 3)
    above = 2 * (probabilities * truth).sum(pixels) + 1e-5
    below = probabilities.square().sum(pixels) + truth.square().sum(pixels) + 1e-5
    return 1 - (above / below).mean()


def filtered(probabilities, image, guides):
    """On one tree after another; the filter itself is held to its definition in tests/losses."""
    values = probabilities
    for guide in (image, *guides):
        down, right = guide[:, :, 1:] - guide[:, :, :-1], guide[..., 1:] - guide[..., :-1]
        square = (down.square().sum(1).mean((1, 2)) + right.square().sum(1).mean((1, 2))) / 2
        values = tree_filter(values, guide / square.sqrt().view(-1, 1, 1, 1), 0.5)
    return values


@pytest.mark.parametrize(
    ("tree", "weight", "contrast", "guides", "distance"),
    [(0.1, 0.1, 1.0, "projected", "squared"), (0.7, 0.3, 2.0, "features", "absolute")],
)
@torch.no_grad()
def test_fedicra_adds_up_labels_trees_crf_and_contrast(
    federation, tree, weight, contrast, guides, distance
):
    names = {"contrast": contrast, "guides": guides, "distance": distance, "margin": 1.0}
    terms = settings({"tree": tree, "crf": weight}, **names)
    method, site, _ = a_site(federation, "fedicra", "network.name=unet", *terms, index=1)
    batch, net = weakly_labelled(), site.net
    images, labels = batch.images, batch.labels.long()
    found = from_the_same_draws(net, lambda: method.loss(site, batch))

    def look():
        seen = net.look(images)
        return seen, net.guide(images, seen.maps)

    seen, maps = from_the_same_draws(net, look)
    probabilities, unlabelled = seen.logits.softmax(1), labels == 255
    away = (probabilities - filtered(probabilities, images, maps)).abs().sum(1)
    others = []
    for other in (0, 2):
        site.load({CODE: torch.eye(3)[other]})
        apart = seen.gates - net.gate(seen.deepest)
        others.append((apart.square() if distance == "squared" else apart.abs()).mean())
    terms = (
        cross_entropy(seen.logits, labels, ignore_index=255),
        tree * away[unlabelled].sum() / unlabelled.sum(),
        weight * crf(probabilities, images),
        -contrast * sum(others) / len(others),
    )
    assert len(maps) == (3 if guides == "projected" else 2)
    assert all(term.abs() > 1e-4 for term in terms)
    torch.testing.assert_close(found, sum(terms))


@pytest.mark.parametrize(
    ("pseudo_labels", "least_share", "weight"), [(0.5, 0.7, 0.0), (0.8, 0.0, 0.3)]
)
@torch.no_grad()
def test_fedlppa_adds_up_labels_and_pseudo_labels_of_both_decoders_and_crf_of_the_main_one(
    federation, pseudo_labels, least_share, weight
):
    weak = {"pseudo_labels": pseudo_labels, "least_share": least_share, "crf": weight}
    method, site, _ = a_site(federation, "fedlppa", *settings(weak))
    batch, net = weakly_labelled(), site.net
    images, labels = batch.images, batch.labels.long()
    net.second.head.weight.normal_(generator=torch.Generator().manual_seed(1))
    found = from_the_same_draws(net, lambda: method.loss(site, batch))

    def look():
        main, second = net.both(images)
        return main, second, torch.empty((), dtype=torch.float64).uniform_(least_share, 1)

    main, second, share = from_the_same_draws(net, look)
    first, other = main.softmax(1), second.softmax(1)
    pseudo = (share * first + (1 - share) * other).argmax(1)
    assert not torch.equal(pseudo, first.argmax(1))
    entropies = [cross_entropy(each, labels, ignore_index=255) for each in (main, second)]
    dices = [dice_loss(each, pseudo) for each in (first, other)]
    expected = 0.5 * sum(entropies) + pseudo_labels * 0.5 * sum(dices)
    expected = expected + weight * crf(first, images)
    torch.testing.assert_close(found, expected)
