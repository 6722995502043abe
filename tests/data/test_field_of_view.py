import pytest
import torch

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.federation.scoring import background_out_of_view
from tests.data.real import FOLDERS


def test_without_darkness_everything_is_in_view():
    probabilities = torch.rand(2, 3, 4, 4).softmax(1)

    assert background_out_of_view(probabilities, None) is probabilities


def test_out_of_view_is_background_and_the_rest_untouched():
    probabilities = torch.rand(2, 3, 4, 4).softmax(1)
    view = torch.rand(2, 4, 4) < 0.5
    found = background_out_of_view(probabilities, view)

    pixels, seen = found.movedim(1, -1), probabilities.movedim(1, -1)
    assert torch.equal(pixels[view], seen[view])
    assert (pixels[~view] == torch.tensor([1.0, 0.0, 0.0])).all()


@pytest.mark.parametrize(("name", "place"), [("fundus", "refuge-val"), ("polyp", "cvc-clinicdb")])
def test_real_photographs_have_corners_out_of_view_and_nothing_to_segment_there(
    real,
    tmp_path,
    name,
    place,
):
    task = TASKS[name].with_resolution(64)
    settings = DataSettings(source=str(real / FOLDERS[name]))
    sites = [SiteSettings(name=place)]
    (site,) = load_federation(task, settings, sites, splits_folder=tmp_path)
    view = site.train.views
    wanted = site.train.masks > 0

    assert (~view).float().mean() > 0.05
    assert (wanted & ~view).sum() < 0.001 * wanted.sum()
