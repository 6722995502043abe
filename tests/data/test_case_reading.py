import numpy as np
import pytest

from polyclinic.data.case_reading import read_content, read_contents
from polyclinic.data.folder import read_site
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_labels, write_picture, write_site

FUNDUS = TASKS["fundus"]


@pytest.fixture
def folder(tmp_path):
    return write_site(tmp_path / "alpha", 2)


def mistakes(folder, kinds=()):
    contents = read_contents(read_site(folder).cases, FUNDUS, kinds)
    return [(file.name, text) for content in contents for file, text in content.mistakes]


def test_good_cases_have_no_findings(folder):
    write_labels(folder, "point")

    content = read_content(read_site(folder).cases[0], FUNDUS, ("point",))
    assert (content.mistakes, content.warnings) == ([], [])
    assert content.image.shape == (3, 32, 32)
    assert content.size == (32, 32)
    assert content.labels["point"].shape == (32, 32)


def test_only_labels_asked_for_are_read(folder):
    write_labels(folder, "point")

    assert read_content(read_site(folder).cases[0], FUNDUS, ()).labels == {}


def test_sizes_must_agree(folder):
    write_picture(folder / "masks" / "01.png", np.zeros((16, 20), np.uint8))

    assert mistakes(folder) == [("01.png", "is 16×20 pixels, its image 32×32")]


def test_unknown_classes_are_named_with_the_known_ones(folder):
    write_picture(folder / "masks" / "00.png", np.full((32, 32), 7, np.uint8))

    assert mistakes(folder) == [
        ("00.png", "has the value 7; a mask has 0 background, 1 rim, 2 cup")
    ]


def test_255_in_a_mask_is_explained(folder):
    write_picture(folder / "masks" / "00.png", np.diag([255] * 32).astype(np.uint8))

    assert "255 means unlabelled and belongs in labels/ only" in mistakes(folder)[0][1]


def test_labels_may_be_unlabelled_but_not_everywhere(folder):
    write_labels(folder, "point")
    write_picture(folder / "labels" / "point" / "00.png", np.full((32, 32), 255, np.uint8))
    write_picture(folder / "labels" / "point" / "01.png", np.full((32, 32), 9, np.uint8))

    assert mistakes(folder, ("point",)) == [
        ("00.png", "labels no pixel: all are 255"),
        ("01.png", "has the value 9; a label has 0 background, 1 rim, 2 cup, 255 unlabelled"),
    ]


def test_unreadable_files_are_mistakes_and_the_others_are_still_read(folder):
    write_labels(folder, "point")
    (folder / "images" / "00.png").write_text("broken")
    (folder / "masks" / "01.png").write_text("broken")
    (folder / "labels" / "point" / "01.png").write_text("broken")

    found = mistakes(folder, ("point",))
    assert [name for name, _ in found] == ["00.png", "01.png", "01.png"]
    assert all("cannot be read" in text for _, text in found)


def test_a_constant_image_is_a_warning(folder):
    write_picture(folder / "images" / "00.png", np.full((32, 32), 9, np.uint8))

    content = read_content(read_site(folder).cases[0], FUNDUS, ())
    assert content.mistakes == []
    assert content.warnings[0][1] == "every pixel has the same value"


def test_equal_images_have_equal_digests(folder):
    first, second = read_contents(read_site(folder).cases, FUNDUS, ())

    assert first.digest() == read_content(first.case, FUNDUS, ()).digest()
    assert first.digest() != second.digest()
