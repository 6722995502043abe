"""Parts that were once found to do nothing: each is seen to act.

Seen elsewhere: second decoders that differ (`test_fedlppa`, `tests/federation/test_diagnosing`),
targets that follow or are kept (`test_enhancement`), signed embeddings and the virtual classes in
use (`test_virtual_classes`), calibration that counts (`test_calibration`), weightings
(`tests/config/test_weightings`), re-estimated statistics (`tests/federation/test_estimating`),
models as trained (`tests/engine/test_scores`), standardised inputs (`tests/data/test_preparing`)
and starts from drawn images (`tests/engine/test_pretrained`).
"""

import copy

import numpy as np
import pytest
import torch

from polyclinic.config import DataSettings, WeakSettings
from polyclinic.data.batches import in_order
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.losses import tree_filtered
from polyclinic.masks import UNLABELLED
from polyclinic.methods.learned_mixing import Mixing, mix_learned
from polyclinic.methods.site_contrast import site_contrast
from polyclinic.networks.gated_segmenter import SiteGate
from polyclinic.networks.parts import parameters, part
from polyclinic.networks.prompted_segmenter import Modulation, Prompts
from tests.federations import a_site

SITES, CHANNELS = 5, 8


def kept_by_trees(task, alike):
    """Mean Dice of true regions with what the image's tree makes of them, over drawn sites."""
    dice = []
    for site in load_federation(task, DataSettings(size=0.1), [], splits_folder=None):
        cases = site.train.select(range(min(4, len(site.train))))
        (batch,) = in_order(cases, batch=4)
        true = (cases.masks > 0) & (cases.masks != UNLABELLED)
        maps = torch.stack([~true, true], 1).float()
        kept = tree_filtered(WeakSettings(tree_alike=alike), maps, [batch.images]).argmax(1) > 0
        both = (kept & true).sum((1, 2))
        dice.append(float((2 * both / (kept.sum((1, 2)) + true.sum((1, 2)))).mean()))
    return np.mean(dice)


@pytest.mark.parametrize(
    "name",
    ["polyp", *(pytest.param(each, marks=pytest.mark.slow) for each in ("fundus", "prostate"))],
)
def test_trees_keep_true_regions_of_drawn_images_and_once_erased_them(name):
    task = TASKS[name].with_resolution(64)
    assert kept_by_trees(task, WeakSettings().tree_alike) >= 0.89
    assert kept_by_trees(task, 5.0) < 0.5


def test_behind_its_margin_the_contrast_pushes_no_further():
    others = torch.zeros(2, 3, 4)
    for apart, pushes in ((0.3, True), (0.4, False)):  # squared: 0.09 and 0.16
        own = torch.full((3, 4), apart, requires_grad=True)
        contrast = site_contrast(own, others, "squared", margin=0.1)
        contrast.backward()
        assert bool(own.grad.any()) == pushes
        assert float(contrast.detach()) == pytest.approx(-min(apart**2, 0.1))


@pytest.mark.parametrize(("both", "least", "most"), [(False, 0.7, 1.0), (True, 0.0, 0.3)])
def test_gates_saturate_unless_the_contrast_moves_those_of_the_others_too(both, least, most):
    """The others' gates come from the same layers: left alone they follow."""
    torch.manual_seed(0)
    gate, maps = SiteGate(16, 3), torch.rand(4, 16, 2, 2)
    gate.code.copy_(torch.eye(3)[0])
    optimizer = torch.optim.Adam(gate.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        others = gate.of_others(maps, learn=both)
        site_contrast(gate(maps), others, "squared", margin=0.1).backward()
        optimizer.step()
    gates = gate(maps).detach()
    assert least <= float(((gates < 0.05) | (gates > 0.95)).float().mean()) <= most
    apart = float((gates - gate.of_others(maps)).square().mean())
    assert (apart > 0.1) == both


@pytest.mark.parametrize(
    ("how", "moves"), [({}, False), ({"optimizer": "adam", "rate": 0.02}, True)]
)
def test_adam_moves_the_mixture_where_slopes_alone_leave_it_at_one(federation, how, moves):
    method, site, _ = a_site(federation, "fedicra")
    names = part(site.net, "decoder") & parameters(site.net)
    own = site.take(names)
    own.flat.add_(0.01 * torch.randn(own.flat.shape, generator=torch.Generator().manual_seed(0)))
    mix_learned(site, own, method.loss, Mixing(iterations=2, first_passes=2, **how))
    mixture = torch.cat([site.memory[f"mixture/{name}"].flatten() for name in names])
    assert (float(mixture.mean()) < 0.99) == moves


def test_ten_rounds_of_averaging_leave_nearly_all_that_sites_want_of_their_prompts():
    """With `apart=False` it is less than a half."""
    torch.manual_seed(0)
    wanted = torch.randn(SITES, CHANNELS) / 2  # offsets that differ from site to site
    prompts = Prompts(SITES, 4, universal=True, distribution=True, sparsity=False)
    layer = Modulation(len(prompts.own(apart=True)), CHANNELS)
    for number in range(10):
        trained = [visit(prompts, layer, site, wanted[site], number / 10) for site in range(SITES)]
        with torch.no_grad():
            for weight, *each in zip(
                layer.parameters(), *(own.parameters() for _, own in trained), strict=True
            ):
                weight.copy_(torch.stack(each).mean(0))
            for site, (own, _) in enumerate(trained):
                prompts.sites[site].copy_(own.sites[site])
    found = torch.stack([offset(prompts, layer, site).detach() for site in range(SITES)])
    wanted, found = wanted - wanted.mean(0), found - found.mean(0)
    assert (found * wanted).sum() / wanted.square().sum() > 0.8


def visit(prompts, layer, site, wanted, progress):
    """Ten steps of a site from the common weights."""
    prompts, layer = copy.deepcopy(prompts), copy.deepcopy(layer)
    learning = [*prompts.parameters(), *layer.parameters()]
    optimizer = torch.optim.AdamW(learning, lr=0.01 * (1 - progress) ** 0.9)
    for _ in range(10):
        optimizer.zero_grad()
        (offset(prompts, layer, site) - wanted).square().mean().backward()
        optimizer.step()
    return prompts, layer


def offset(prompts, layer, site):
    """What the site's prompts add to maps of noughts, for each channel."""
    prompts.place.copy_(torch.eye(SITES)[site])
    return layer(torch.zeros(1, CHANNELS, 1, 1), prompts.own(apart=True)).flatten()


# After training a little, at sites with weak labels: what the diagnostics of the model in use say.


@pytest.fixture
def trained(federation):
    """A function that trains a method and gives what is noted at each site, by name."""

    def train(method, *settings, rounds=8):
        small = federation(rounds=rounds, kinds=("point", "scribble", "block"))
        budget = ("training.iterations=10", "evaluation.every=0", "evaluation.choose=last")
        done = small.run(method, 'training.loss="ce+dice"', *budget, *settings)
        *_, table = [each for each in done.folder.tables() if each.name == "diagnostics"]
        return {
            name: [row[place] for row in table.values] for place, name in enumerate(table.columns)
        }

    return train


@pytest.mark.slow
def test_trained_prompts_that_differ_change_more_than_a_hundredth_of_the_objects(trained):
    notes = trained("fedlppa", "method.prompts=differing")
    assert min(notes["context swapped"]) > 0.01


@pytest.mark.slow
def test_trained_second_decoders_made_of_second_ones_differ_in_a_pixel_of_200(trained):
    notes = trained("fedlppa", "method.second_from=second")
    assert min(notes["decoders differ"]) > 0.005


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "least", "most"),
    [((), 0.97, 1.0), (("method.mixing.optimizer=adam", "method.mixing.rate=0.02"), 0.0, 0.95)],
)
def test_a_trained_mixture_leaves_one_by_adam_and_hardly_without(trained, how, least, most):
    assert all(least <= each < most for each in trained("fedicra", *how)["W mean"])


@pytest.mark.slow
@pytest.mark.parametrize(("margin", "least", "most"), [(0.1, 0.0, 0.5), (1.0, 0.9, 1.0)])
def test_trained_gates_that_both_move_saturate_only_without_a_margin(trained, margin, least, most):
    strong = ("method.moves=both", "method.contrast=10.0", f"method.margin={margin}")
    notes = trained("fedicra", *strong, rounds=12)
    assert all(least <= each <= most for each in notes["gates saturated"])
