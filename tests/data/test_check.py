import shutil

import numpy as np
import pytest

from polyclinic.data.check import check_folder
from polyclinic.data.errors import DataError
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_labels, write_listing, write_picture, write_site

FUNDUS = TASKS["fundus"]


@pytest.fixture
def source(tmp_path):
    write_site(tmp_path / "alpha", 4)
    write_site(tmp_path / "beta", 3, side=48)
    return tmp_path


def test_good_sites_are_summed_up(source):
    write_listing(
        source / "alpha",
        [("00", "a", "train"), ("01", "a", "train"), ("02", "b", "val"), ("03", "c", "test")],
    )
    write_labels(source / "alpha", "point", only=2)
    summary = check_folder(source, FUNDUS)

    assert (summary.mistakes, summary.warnings) == ((), ())
    alpha, beta = summary.sites
    assert (alpha.name, alpha.cases, alpha.patients) == ("alpha", 4, 3)
    assert alpha.splits == {"train": 2, "val": 1, "test": 1}
    assert alpha.kinds == {"mask": 4, "point": 2}
    assert (alpha.smallest, beta.largest) == ((32, 32), (48, 48))
    assert list(alpha.shares) == ["background", "rim", "cup"]
    assert sum(alpha.shares.values()) == pytest.approx(1)
    assert beta.splits == {}


def test_kept_splits_are_counted(source):
    rows = "case,patient,split,rule\n00,00,train,x\n01,01,val,x\n02,02,test,x\n"
    (source / "beta" / "splits.csv").write_text(rows)

    assert check_folder(source, FUNDUS).sites[1].splits == {"train": 1, "val": 1, "test": 1}


def test_mistakes_are_gathered_not_raised(source):
    (source / "alpha" / "images" / "00.png").write_text("broken")
    (source / "beta" / "masks" / "01.png").unlink()
    (source / "beta" / "site.toml").write_text('task = "octa"')

    found = check_folder(source, FUNDUS).mistakes
    assert len(found) == 3
    assert "site beta: is for the task octa, not fundus" in found


def test_a_kept_split_that_does_not_fit_any_more_is_a_mistake(source):
    (source / "beta" / "splits.csv").write_text("case,patient,split,rule\n00,00,train,x\n")

    assert "01, 02: new since the split was kept" in check_folder(source, FUNDUS).mistakes[0]


def test_the_labels_a_site_says_it_has_must_be_there(source):
    (source / "alpha" / "site.toml").write_text('labels = "dots"')

    assert 'no labels of kind "dots"' in check_folder(source, FUNDUS).mistakes[0]


def test_every_kind_of_label_is_checked(source):
    write_labels(source / "alpha", "point")
    write_picture(source / "alpha" / "labels" / "point" / "01.png", np.full((32, 32), 4, np.uint8))

    assert "labels/point/01.png: has the value 4" in check_folder(source, FUNDUS).mistakes[0]


def test_the_same_image_twice_is_a_warning_with_both_places(source):
    for part in ("images", "masks"):
        shutil.copy(source / "alpha" / part / "00.png", source / "beta" / part / "09.png")

    assert check_folder(source, FUNDUS).warnings == (
        "the same image: site alpha, 00; site beta, 09",
    )


def test_the_same_image_twice_of_one_patient_is_none(source):
    for part in ("images", "masks"):
        shutil.copy(source / "alpha" / part / "00.png", source / "alpha" / part / "09.png")
    write_listing(
        source / "alpha", [(f"{n:02d}", "p") for n in (0, 1, 2, 3, 9)], header="case,patient"
    )

    assert check_folder(source, FUNDUS).warnings == ()


def test_oddities_are_warnings(source):
    write_picture(source / "alpha" / "images" / "00.png", np.full((32, 32), 3, np.uint8))
    write_labels(source / "beta", "point")
    (source / "beta" / "masks" / "02.png").unlink()
    for number in range(2):
        mask = np.eye(48, dtype=np.uint8)
        write_picture(source / "beta" / "masks" / f"{number:02d}.png", mask)

    assert check_folder(source, FUNDUS).warnings == (
        "site alpha, images/00.png: every pixel has the same value",
        "site beta: cannot be scored without a mask: 02",
        "site beta: no mask has a pixel of cup; where the site does not annotate it, site.toml has "
        "to say so (docs/data.md, Partial masks)",
    )


def test_the_task_comes_from_the_sites_where_they_name_it(source):
    with pytest.raises(DataError, match=r"no site\.toml names one"):
        check_folder(source)

    (source / "alpha" / "site.toml").write_text('task = "fundus"')
    assert check_folder(source).task == FUNDUS

    (source / "beta" / "site.toml").write_text('task = "polyp"')
    with pytest.raises(DataError, match="the sites name fundus, polyp"):
        check_folder(source)
