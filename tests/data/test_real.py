"""The four real tasks, where the folder in POLYCLINIC_REAL_DATA has them."""

import pytest

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.contact_sheet import contact_sheet
from polyclinic.data.folder import find_sites, read_site
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.masks import UNLABELLED
from tests.data.real import FOLDERS

SMALLEST = {"octa": "rose", "fundus": "drishti-gs", "polyp": "etis-larib", "prostate": "prostatex"}


@pytest.mark.parametrize("name", TASKS)
def test_every_real_site_is_found_without_mistakes(real, name):
    sites = [read_site(folder) for folder in find_sites(real / FOLDERS[name])]

    assert len(sites) >= 4
    for site in sites:
        assert site.mistakes == ()
        assert {case.split for case in site.cases} == {"train", "test"}


def everything_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", TASKS)
def test_a_real_site_is_loaded_with_validation_cut_from_train(real, name, tmp_path):
    task = TASKS[name].with_resolution(64)
    folder = real / FOLDERS[name] / SMALLEST[name]
    before = everything_in(folder)
    given = {case.name: case for case in read_site(folder).cases}
    settings = DataSettings(source=str(real / FOLDERS[name]))
    sites = [SiteSettings(name=SMALLEST[name])]
    (site,) = load_federation(task, settings, sites, splits_folder=tmp_path)
    (again,) = load_federation(task, settings, sites, splits_folder=tmp_path)

    assert {given[case].split for case in site.test.names} == {"test"}
    assert {given[case].split for case in (*site.train.names, *site.val.names)} == {"train"}
    assert not set(site.train.patients) & set(site.val.patients)
    assert len(site.train) + len(site.val) + len(site.test) == len(given)
    assert len(site.val) >= 1
    assert again.val.names == site.val.names
    assert everything_in(folder) == before
    assert site.train.masks.max() == len(task.classes) - 1
    assert site.train.images.shape[1:] == (task.channels, 64, 64)


@pytest.mark.parametrize(("name", "kind"), [("octa", "box-block"), ("fundus", "scribble2")])
def test_published_weak_labels_agree_with_the_masks(real, name, kind, tmp_path):
    settings = DataSettings(source=str(real / FOLDERS[name]))
    sites = [SiteSettings(name=SMALLEST[name], labels=kind)]
    (site,) = load_federation(TASKS[name], settings, sites, splits_folder=tmp_path)

    labelled = site.train.labels != UNLABELLED
    assert 0.005 < labelled.float().mean() < 0.95
    agree = site.train.labels[labelled] == site.train.masks[labelled]
    assert agree.float().mean() > 0.99
    assert (site.test.labels == UNLABELLED).all()


def test_a_contact_sheet_of_real_cases_is_written(real, tmp_path):
    contact_sheet(real / "polyp", TASKS["polyp"], tmp_path / "sheet.png", per_site=2)

    assert (tmp_path / "sheet.png").stat().st_size > 100_000
