"""At which border the gated CRF is content: the published window is made for large images."""

import numpy as np
import torch
from scipy.ndimage import binary_dilation, binary_erosion

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.batches import in_order
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.losses import Window, gated_crf

SMALL = Window(radius=2, sigma_xy=3.0, sigma_rgb=0.05)


def energies(images, masks, window):
    """The energy of the true regions one pixel smaller, as they are, and one pixel larger."""
    moved = (binary_erosion, lambda mask: mask, binary_dilation)
    regions = [np.stack([move(mask) for mask in masks]) for move in moved]
    maps = [torch.from_numpy(np.stack([~r, r], 1)).float() for r in regions]
    return [float(gated_crf(each, images, **vars(window))) for each in maps]


def test_at_96_the_small_window_likes_true_borders_and_the_published_one_smaller_regions(
    real, tmp_path
):
    task = TASKS["octa"].with_resolution(96)
    settings = DataSettings(source=str(real / "faz"))
    chosen = [SiteSettings(name=name) for name in ("octa500-3m", "rose")]
    sites = load_federation(task, settings, chosen, splits_folder=tmp_path)
    too_small = set()
    for site in sites:
        cases = site.train.select(range(12))
        (batch,) = in_order(cases, batch=len(cases))
        smaller, true, larger = energies(batch.images, cases.masks.numpy() == 1, SMALL)
        assert true < min(smaller, larger), site.name
        smaller, true, _ = energies(batch.images, cases.masks.numpy() == 1, Window())
        if smaller < true:
            too_small.add(site.name)
    assert too_small == {"octa500-3m"}
