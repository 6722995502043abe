import h5py
import numpy as np
import pytest

from polyclinic.data.errors import DataError
from polyclinic.data.folder import find_sites, read_site
from polyclinic.data.site_files import KEYS
from tests.data.folders import draw_case, write_labels, write_listing, write_picture, write_site


def test_cases_are_found_with_masks_and_labels(tmp_path):
    folder = write_site(tmp_path / "alpha", 3)
    write_labels(folder, "point", only=2)

    site = read_site(folder)
    assert site.mistakes == ()
    assert [case.name for case in site.cases] == ["00", "01", "02"]
    assert site.cases[1].mask == folder / "masks" / "01.png"
    assert site.cases[1].labels == {"point": folder / "labels" / "point" / "01.png"}
    assert site.cases[2].labels == {}
    assert site.kinds == ("mask", "point")
    assert {case.split for case in site.cases} == {None}


def test_patients_and_splits_come_from_the_listing(tmp_path):
    folder = write_site(tmp_path / "alpha", 3)
    write_listing(folder, [("00", "a", "train"), ("01", "a", "train"), ("02", "b", "test")])

    site = read_site(folder)
    assert site.mistakes == ()
    assert [(case.patient, case.split) for case in site.cases] == [
        ("a", "train"),
        ("a", "train"),
        ("b", "test"),
    ]


def test_folders_divided_into_train_and_test_give_the_split(tmp_path):
    folder = write_site(tmp_path / "alpha", 2, part="train")
    for number in range(2, 4):
        image, mask = draw_case(number)
        write_picture(folder / "test" / "images" / f"{number:02d}.jpg", image)
        write_picture(folder / "test" / "masks" / f"{number:02d}.png", mask)
    write_labels(folder / "train", "scribble", place="weak")

    site = read_site(folder)
    assert site.mistakes == ()
    assert site.divided
    assert [(case.name, case.split) for case in site.cases] == [
        ("00", "train"),
        ("01", "train"),
        ("02", "test"),
        ("03", "test"),
    ]
    assert site.kinds == ("mask", "scribble")


def test_names_that_train_and_test_share_get_their_split_in_front(tmp_path):
    folder = write_site(tmp_path / "alpha", 1, part="train")
    write_site(folder, 1, part="test")

    site = read_site(folder)
    assert site.mistakes == ()
    assert [(case.name, case.patient) for case in site.cases] == [
        ("train-00", "train-00"),
        ("test-00", "test-00"),
    ]


def test_the_name_is_given_or_from_the_description_or_the_folder(tmp_path):
    folder = write_site(tmp_path / "alpha", 1)
    assert read_site(folder).name == "alpha"

    (folder / "site.toml").write_text('name = "Clinic A"')
    assert read_site(folder).name == "Clinic A"
    assert read_site(folder, "mine").name == "mine"


def test_an_hdf5_image_may_hold_mask_and_labels(tmp_path):
    image, mask = draw_case(1)
    (tmp_path / "images").mkdir()
    with h5py.File(tmp_path / "images" / "a.h5", "w") as file:
        file["image"], file["mask"], file["point"] = image, mask, mask

    case = read_site(tmp_path).cases[0]
    assert case.mask == case.image
    assert case.labels == {"point": case.image}


def test_every_mistake_of_a_site_is_found_at_once(tmp_path):
    folder = write_site(tmp_path / "alpha", 4)
    (folder / "masks" / "01.png").unlink()
    (folder / "images" / "02.png").unlink()
    write_picture(folder / "images" / "03.jpg", np.zeros((8, 8), np.uint8))
    (folder / "images" / "notes.txt").write_text("hello")
    (folder / "images" / ".DS_Store").write_text("")
    (folder / "images" / "Thumbs.db").write_text("")
    (folder / "site.toml").write_text('tsak = "fundus"')

    assert set(read_site(folder).mistakes) == {
        f'site alpha, site.toml: no key "tsak" (allowed: {", ".join(KEYS)}); did you mean "task"?',
        "site alpha, images/notes.txt: is of no known type; known are .png, .jpg, .jpeg, .tif, "
        ".tiff, .npy, .h5, .hdf5, .nii, .nii.gz, .dcm",
        "site alpha, images/03.png: is a second file of case 03",
        "site alpha, masks/02.png: there is no image 02 to it",
        "site alpha, images/01.png: has no mask and no label",
    }


@pytest.mark.parametrize(
    ("rows", "mistakes"),
    [
        (
            [("00", "a", ""), ("00.png", "b", "")],
            [
                ", cases.csv: no image for 00.png (cases are named without .png)",
                ", images/01.png: is not listed in cases.csv",
            ],
        ),
        (
            [("00", "a", "train"), ("01", "a", "test")],
            [": patient a is in train and test; a patient belongs to one split"],
        ),
        (
            [("00", "a", "val"), ("01", "b", "")],
            [
                ": no split for 01; give one to all cases or to none",
                ": its split has no train case",
                ": its split has no test case",
            ],
        ),
    ],
    ids=["images as listed", "a patient in one split", "all cases, with train and test"],
)
def test_a_listing_must_agree_with_images_and_itself(tmp_path, rows, mistakes):
    folder = write_site(tmp_path / "alpha", 2)
    write_listing(folder, rows)

    assert read_site(folder).mistakes == tuple(f"site alpha{each}" for each in mistakes)


def test_an_empty_site_is_a_mistake(tmp_path):
    (tmp_path / "alpha" / "images").mkdir(parents=True)
    (tmp_path / "beta").mkdir()

    for name in ("alpha", "beta"):
        assert f"site {name}: no images" in read_site(tmp_path / name).mistakes[0]
    assert "there is no folder" in read_site(tmp_path / "gamma").mistakes[0]


def test_a_listing_beside_divided_folders_is_not_silently_ignored(tmp_path):
    folder = write_site(tmp_path / "alpha", 2, part="train")
    write_site(folder, 1, part="test")
    write_listing(folder, [])

    assert any("is not read" in mistake for mistake in read_site(folder).mistakes)


def test_sites_are_found_by_name_and_hidden_folders_left_out(tmp_path):
    for name in ("beta", "alpha", ".hidden", "_old"):
        (tmp_path / name / "images").mkdir(parents=True)
    (tmp_path / "README.md").write_text("")

    assert [folder.name for folder in find_sites(tmp_path)] == ["alpha", "beta"]
    assert find_sites(tmp_path / "beta") == [tmp_path / "beta"]


def test_a_folder_without_sites_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no site"):
        find_sites(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        find_sites(tmp_path / "nowhere")
