from dataclasses import replace

import torch

from polyclinic.federation.scoring import class_maps
from tests.federations import a_site


def test_what_the_camera_did_not_see_is_background_whatever_the_network_says(federation):
    method, site, _ = a_site(federation, "fedavg")
    cases = site.data.test
    with torch.no_grad():
        site.net.head.bias.copy_(torch.tensor([-100.0, 100.0]))
    assert class_maps(method, site, cases).all()

    found = class_maps(method, replace(site, task=replace(site.task, dark=0.5)), cases)
    offset, scale = cases.offset.view(-1, 1, 1), cases.scale.view(-1, 1, 1)
    bright = (cases.images[:, 0] - offset) / scale > 0.5
    assert 0.1 < bright.float().mean() < 0.9
    assert torch.equal(torch.from_numpy(found).bool(), bright)
