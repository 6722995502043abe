import torch
from demo.drawn_sites import write_drawn_site

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS


def test_a_drawn_site_on_disk_is_the_one_in_memory(tmp_path):
    for name, site in (("octa", "fjord"), ("fundus", None)):
        task = TASKS[name].with_resolution(32)
        data = DataSettings(size=0.2)
        drawn = load_federation(task, data)
        expected = next(each for each in drawn if site in (None, each.name))
        folder = tmp_path / name
        write_drawn_site(folder, name, expected.name, resolution=32, size=0.2)
        place = SiteSettings(name=expected.name, folder=folder, labels=expected.kind)
        (read,) = load_federation(task, data, [place])
        for split in ("train", "val", "test"):
            ours, theirs = getattr(read, split), getattr(expected, split)
            assert ours.names == theirs.names
            assert torch.equal(ours.images, theirs.images)
            assert torch.equal(ours.masks, theirs.masks)
