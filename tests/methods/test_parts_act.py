"""Parts that were once found to do nothing: each is seen to act.

Seen elsewhere: targets of the enhancement that follow and that are kept (`test_enhancement`), signed
embeddings and the virtual classes in use (`test_virtual_classes`), calibration that counts
(`test_calibration`), weightings (`tests/config/test_weightings`), re-estimated statistics
(`tests/federation/test_estimating`), models as trained (`tests/engine/test_scores`), standardised
inputs (`tests/data/test_preparing`) and starts from a file (`tests/engine/test_pretrained`).
"""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

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
from polyclinic.networks.prompted_segmenter import PromptedSegmenter, Prompts
from tests.federations import a_site
from tests.small_unet import SmallUNet

KINDS = ("point", "scribble", "block")
SLOW = pytest.mark.slow


def kept_by_trees(task, side, data, alike):
    """Mean Dice of true regions with what the image's tree makes of them, over all sites."""
    dice = []
    for site in load_federation(task.with_resolution(side), data, [], splits_folder=None):
        cases = site.train.select(range(min(4, len(site.train))))
        (batch,) = in_order(cases, batch=4)
        true = (cases.masks > 0) & (cases.masks != UNLABELLED)
        maps = torch.stack([~true, true], 1).float()
        weak = WeakSettings(tree_alike=alike)
        kept = tree_filtered(weak, maps, [batch.images]).argmax(1) > 0
        both = (kept & true).sum((1, 2))
        dice.append(float((2 * both / (kept.sum((1, 2)) + true.sum((1, 2)))).mean()))
    return np.mean(dice)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("polyp", 64),
        *(pytest.param(*each, marks=SLOW) for each in (("fundus", 64), ("prostate", 64))),
    ],
)
def test_trees_keep_true_regions_of_drawn_images(name, side):
    data = DataSettings(size=0.1)
    assert kept_by_trees(TASKS[name], side, data, WeakSettings().tree_alike) >= 0.89
    assert kept_by_trees(TASKS[name], side, data, 5.0) < 0.8


def test_gates_stay_open_behind_a_margin_and_saturate_without_one():
    saturated = {}
    for margin in (0.1, 1.0):
        torch.manual_seed(0)
        gates = [SiteGate(32, 3) for _ in range(3)]
        maps = torch.rand(4, 32, 2, 2)
        for index, gate in enumerate(gates):
            gate.load_state_dict(gates[0].state_dict())
            gate.code.copy_(torch.eye(3)[index])
        every = [each for gate in gates[:1] for each in gate.parameters()]
        optimizer = torch.optim.Adam(every, lr=0.01)
        for step in range(300):
            gates[0].code.copy_(torch.eye(3)[step % 3])
            own, others = gates[0](maps), gates[0].of_others(maps)
            optimizer.zero_grad()
            site_contrast(own, others, "squared", margin).backward()
            optimizer.step()
        with torch.no_grad():
            found = gates[0](maps)
        saturated[margin] = float(((found < 0.05) | (found > 0.95)).float().mean())
    assert saturated[1.0] > 0.7
    assert saturated[0.1] < 0.3


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


def sized(small, large):
    """Images of a bright disc with a soft edge, and labels of two sites: small and large discs."""
    down, right = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    middles = 12 + 8 * torch.rand(8, 2, generator=torch.Generator().manual_seed(0))
    away = (
        (down - middles[:, 0, None, None]) ** 2 + (right - middles[:, 1, None, None]) ** 2
    ).sqrt()
    return torch.sigmoid((8 - away) / 2)[:, None], [(away < each).long() for each in (small, large)]


def swapped_area(form):
    """Pixels that change with the other site's prompts, over the smaller objects' area."""
    torch.manual_seed(0)
    plain = SmallUNet(channels=1, classes=2, width=4)
    prompts = Prompts(2, 16, universal=True, distribution=True, sparsity=True)
    how = {"attention": "dual", "channel_weights": "distance", "gate": "residual"}
    net = PromptedSegmenter(plain, prompts=prompts, form=form, second=None, **how)
    images, labels = sized(6, 9)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    codes = torch.eye(2)
    for step in range(120):
        net.prompts.place.copy_(codes[step % 2])
        optimizer.zero_grad()
        cross_entropy(net(images), labels[step % 2]).backward()
        optimizer.step()
    found = []
    with torch.no_grad():
        for code in codes:
            net.prompts.place.copy_(code)
            found.append(net.eval()(images).argmax(1))
    return float((found[0] != found[1]).sum() / labels[0].sum())


def test_swapping_modulating_prompts_changes_a_tenth_of_the_object_s_area_and_joined_ones_do_not():
    assert swapped_area("modulating") > 0.1
    assert swapped_area("joined") < 0.1
