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

    bright = cases.images[:, 0] > cases.images[:, 0].float().mean()
    found = class_maps(method, site, replace(cases, views=bright))
    assert torch.equal(torch.from_numpy(found).bool(), bright)
