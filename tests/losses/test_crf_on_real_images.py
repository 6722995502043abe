"""At which border the gated CRF is content, and what trees leave of true regions."""

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_dilation, binary_erosion

from polyclinic.config import DataSettings, SiteSettings, WeakSettings
from polyclinic.data.batches import in_order
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.losses import crf_energy, tree_filtered

SIDE = 96
DEFAULT = WeakSettings()
PUBLISHED = WeakSettings(crf_reach=5 / SIDE, crf_near=6 / SIDE, crf_alike=0.1)


def energies(images, masks, settings):
    """The energy of the true regions one pixel smaller, as they are, and one pixel larger."""
    moved = (binary_erosion, lambda mask: mask, binary_dilation)
    regions = [np.stack([move(mask) for mask in masks]) for move in moved]
    maps = [torch.from_numpy(np.stack([~r, r], 1)).float() for r in regions]
    return [float(crf_energy(settings, each, images)) for each in maps]


def test_the_relative_window_likes_true_borders_and_the_published_one_smaller_regions(
    real, tmp_path
):
    task = TASKS["octa"].with_resolution(SIDE)
    settings = DataSettings(source=str(real / "faz"))
    chosen = [SiteSettings(name=name) for name in ("octa500-3m", "rose")]
    sites = load_federation(task, settings, chosen, splits_folder=tmp_path)
    too_small = set()
    for site in sites:
        cases = site.train.select(range(12))
        (batch,) = in_order(cases, batch=len(cases))
        smaller, true, larger = energies(batch.images, cases.masks.numpy() == 1, DEFAULT)
        assert true < min(smaller, larger), site.name
        smaller, true, _ = energies(batch.images, cases.masks.numpy() == 1, PUBLISHED)
        if smaller < true:
            too_small.add(site.name)
    assert too_small == {"octa500-3m"}


@pytest.mark.parametrize("side", [64, 96])
def test_the_image_s_tree_keeps_true_regions_at_every_resolution(real, tmp_path, side):
    task = TASKS["octa"].with_resolution(side)
    settings = DataSettings(source=str(real / "faz"))
    chosen = [SiteSettings(name=name) for name in ("octa500-3m", "octa500-6m")]
    for site in load_federation(task, settings, chosen, splits_folder=tmp_path):
        cases = site.train.select(range(4))
        (batch,) = in_order(cases, batch=len(cases))
        true = cases.masks.numpy() == 1
        maps = torch.from_numpy(np.stack([~true, true], 1)).float()
        kept = tree_filtered(DEFAULT, maps, [batch.images]).argmax(1).numpy() == 1
        assert 2 * (kept & true).sum() / (kept.sum() + true.sum()) > 0.8, site.name
