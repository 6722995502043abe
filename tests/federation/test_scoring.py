from dataclasses import replace

import numpy as np
import torch

from polyclinic.data.batches import in_order
from polyclinic.data.tiling import tile_weights
from polyclinic.federation.scoring import class_maps, predictions
from tests.federations import a_site


def test_what_the_camera_did_not_see_is_background_whatever_the_network_says(federation):
    method, site, _ = a_site(federation, "fedavg")
    cases = site.data.test
    with torch.no_grad():
        site.net.head.bias.copy_(torch.tensor([-100.0, 100.0]))
    assert class_maps(method, site, cases).all()

    bright = cases.images[:, 0] > cases.images[:, 0].float().mean()
    found = class_maps(method, site, replace(cases, views=bright))
    assert torch.equal(torch.from_numpy(found).bool(), bright)


def tiled(site, **settings):
    return replace(site, task=site.task.changed(**settings))


def test_tiles_of_the_whole_image_change_nothing(federation):
    method, site, _ = a_site(federation, "fedavg")
    side = site.task.resolution
    (whole,) = predictions(method, site, site.data.test)
    (tiles,) = predictions(method, tiled(site, tile=side), site.data.test)

    assert torch.equal(whole, tiles)


def test_overlapping_tiles_are_blended_by_how_far_in_a_pixel_lies(federation):
    method, site, _ = a_site(federation, "fedavg")
    cases, site = site.data.test, tiled(site, tile=16, overlap=0.5)
    side = site.task.resolution
    (found,) = predictions(method, site, cases)
    images = next(in_order(cases, batch=len(cases))).images
    weights = torch.from_numpy(tile_weights(16))
    total, count = torch.zeros_like(found), torch.zeros(side, side)
    with torch.no_grad():
        for top in range(0, side - 15, 8):
            for left in range(0, side - 15, 8):
                part = images[..., top : top + 16, left : left + 16]
                here = np.s_[..., top : top + 16, left : left + 16]
                total[here] += weights * method.predict(site, part)
                count[here[1:]] += weights

    assert torch.allclose(found, total / count, atol=1e-6)
    assert torch.allclose(found.sum(1), torch.ones_like(found[:, 0]), atol=1e-5)
