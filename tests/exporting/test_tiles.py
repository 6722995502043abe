"""A model of a task with tiles blends them inside its graph, as the run that scored it."""

import numpy as np
import pytest
import torch

from polyclinic.engine.run import assignment_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.exporting.choosing import origins
from polyclinic.exporting.packaging import packaged
from polyclinic.federation.scoring import probabilities
from polyclinic.predict import load
from tests.federations import Federation
from tests.small_unet import TABLES

TILES = ("task.tile=16", "task.overlap=0.5", "training.iterations=20", "data.size=0.2")


@pytest.mark.slow
def test_a_tiled_model_predicts_the_same_without_torch(tmp_path):
    done = Federation(tmp_path, sites=2).run("fedavg", *TILES, "network.width=4")
    packaged(origins([done.folder.path], TABLES, sites=["fjord"])).write(tmp_path / "m.polyclinic")
    model = load(tmp_path / "m.polyclinic")
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 32), dtype=np.uint8)
    _, prepared = model.square(image)
    found = model.look(image, flips=False).probabilities

    runner = SiteRunner(assignment_of(done.run, done.folder.about().sites), torch.device("cpu"))
    site = runner.opened(runner.assignment.sites[0], None, None)
    site.load({name: torch.as_tensor(each) for name, each in done.site("fjord").items()})
    site.net.eval()
    with torch.no_grad():
        tiles = probabilities(runner.assignment.method, site, torch.from_numpy(prepared)[None])
        whole = runner.assignment.method.predict(site, torch.from_numpy(prepared)[None])

    assert np.allclose(found, tiles[0].numpy(), atol=1e-5)
    assert not np.allclose(found, whole[0].numpy(), atol=1e-5)
