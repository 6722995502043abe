import errno
import gzip
import shutil

import h5py
import numpy as np
import pytest

from polyclinic.config import DataSettings
from polyclinic.data.check import check_folder
from polyclinic.data.errors import DataError
from polyclinic.data.exporting import export_nnunet
from polyclinic.data.folder import read_site
from polyclinic.data.formats.store import read_slice
from polyclinic.data.import_choices import Choices
from polyclinic.data.importing import import_sites
from polyclinic.data.load import load_federation
from polyclinic.data.readers import read_mask
from polyclinic.data.tasks import TASKS
from polyclinic.data.understanding import understanding
from tests.data.folders import draw_case, write_labels, write_picture, write_site
from tests.data.volumes import (
    draw_volume,
    plain_dicom,
    write_segmentation,
    write_series,
    write_volume_site,
)

FUNDUS = TASKS["fundus"].with_resolution(32)
PROSTATE = TASKS["prostate"].with_resolution(32)


@pytest.fixture
def source(tmp_path):
    for name in ("alpha", "beta"):
        folder = write_site(tmp_path / "source" / name, 8, part="train")
        write_labels(folder / "train", "point", place="weak")
        write_site(folder, 3, part="test")
    return tmp_path / "source"


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def understand(source, runs=None, **choices):
    with understanding(source, Choices(**choices), runs) as understood:
        return understood


KEYS = ("masks", "images", "name", "axis", "modality", "values", "colours")


def bring(source, destination, task, **how):
    choices = {key: how.pop(key) for key in KEYS if key in how}
    with understanding(source, Choices(**choices)) as understood:
        return import_sites(understood, destination, task, **how)


def import_folder(source, destination, task):
    return bring(source, destination, task)[0]


def test_divided_folders_become_site_folders(source, tmp_path):
    folders = import_folder(source, tmp_path / "ours", FUNDUS)

    assert folders == [tmp_path / "ours" / "alpha", tmp_path / "ours" / "beta"]
    site = read_site(folders[0])
    assert site.mistakes == ()
    assert not site.divided
    assert len(site.cases) == 11
    assert site.kinds == ("mask", "point")
    assert (site.toml.name, site.toml.task) == ("alpha", "fundus")
    assert check_folder(tmp_path / "ours").mistakes == ()


def test_imported_sites_are_loaded_to_the_same_tensors(source, tmp_path):
    import_folder(source, tmp_path / "ours", FUNDUS)
    theirs = load_federation(FUNDUS, DataSettings(source=str(source)))
    ours = load_federation(FUNDUS, DataSettings(source=str(tmp_path / "ours")))

    for one, other in zip(theirs, ours, strict=True):
        assert one.name == other.name
        for split in ("train", "val", "test"):
            first, second = getattr(one, split), getattr(other, split)
            order = [second.names.index(name) for name in first.names]
            assert first.images.equal(second.images[order])
            assert first.masks.equal(second.masks[order])


def test_the_source_is_left_exactly_as_it_was(source, tmp_path):
    before = contents(source)
    import_folder(source, tmp_path / "ours", FUNDUS)

    assert contents(source) == before


def test_site_folders_keep_what_they_say_about_themselves(tmp_path):
    folder = write_site(tmp_path / "source" / "alpha", 3)
    (folder / "site.toml").write_text('labels = "mask"\nspacing = [0.5, 0.25]\n')
    import_folder(tmp_path / "source", tmp_path / "ours", FUNDUS)

    about = read_site(tmp_path / "ours" / "alpha").toml
    assert (about.labels, about.spacing) == ("mask", (0.5, 0.25))


def test_masks_within_hdf5_images_go_with_them(tmp_path):
    (tmp_path / "source" / "alpha" / "images").mkdir(parents=True)
    image, mask = draw_case(1)
    with h5py.File(tmp_path / "source" / "alpha" / "images" / "a.h5", "w") as file:
        file["image"], file["mask"] = image, mask
    import_folder(tmp_path / "source", tmp_path / "ours", FUNDUS)

    assert not (tmp_path / "ours" / "alpha" / "masks").exists()
    assert check_folder(tmp_path / "ours").mistakes == ()


def test_mistakes_are_said_before_anything_is_copied(source, tmp_path):
    (source / "alpha" / "train" / "masks" / "00.png").write_text("broken")

    with pytest.raises(DataError, match=r"site alpha, train/masks/00.png: cannot be read"):
        import_folder(source, tmp_path / "ours", FUNDUS)
    assert not (tmp_path / "ours").exists()


def test_nothing_that_is_there_is_overwritten(source, tmp_path):
    kept = tmp_path / "ours" / "beta" / "precious.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("keep me")

    with pytest.raises(DataError, match="beta is there already; move it away first"):
        import_folder(source, tmp_path / "ours", FUNDUS)
    assert contents(tmp_path / "ours") == {kept.relative_to(tmp_path / "ours"): b"keep me"}


def test_a_full_disk_leaves_no_half_site(source, tmp_path, monkeypatch):
    copied = []

    def copy_until_full(file, target):
        copied.append(target)
        if len(copied) > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        target.write_bytes(file.read_bytes())

    before = contents(source)
    monkeypatch.setattr(shutil, "copyfile", copy_until_full)
    with pytest.raises(OSError, match="No space left"):
        import_folder(source, tmp_path / "ours", FUNDUS)
    assert list((tmp_path / "ours").iterdir()) == []
    assert contents(source) == before


def test_the_destination_must_lie_outside_of_the_source(source):
    with pytest.raises(DataError, match="choose another place"):
        import_folder(source, source / "ours", FUNDUS)


def test_a_task_that_is_not_built_in_goes_into_the_folders(tmp_path):
    source = write_site(tmp_path / "published" / "east", side=32)
    (source / "views").mkdir()
    shutil.copy(source / "masks" / "00.png", source / "views" / "00.png")
    task = FUNDUS.changed(name="eye", fit="pad")
    (folder,) = import_folder(source.parent, tmp_path / "ours", task)

    assert check_folder(tmp_path / "ours").task == task
    assert (folder / "views" / "00.png").exists()


def write_loose(folder):
    """Photographs and masks as people name them, and things that are neither."""
    for number in range(4):
        image, mask = draw_case(number)
        write_picture(folder / "photos" / f"{number}_image.png", image)
        write_picture(folder / "Ground Truth" / f"{number}_mask.png", mask)
    image, _ = draw_case(9)
    write_picture(folder / "photos" / "9_image.png", image)
    write_picture(folder / "photos" / "9-img.png", image)
    (folder / "notes.txt").write_text("hello")
    return folder


def test_loose_pictures_are_paired_by_their_names(tmp_path):
    source = write_loose(tmp_path / "clinic")
    before = contents(source)
    understood = understand(source)
    folders, left = bring(source, tmp_path / "ours", FUNDUS)

    assert understood.layout == "files"
    assert understood.left_out() == [
        "notes.txt: is no image that can be read",
        "photos/9_image.png: is a second file of case 9, as 9-img.png",
    ]
    assert left == ["site clinic, photos/9-img.png: has no mask and no label"]
    assert folders == [tmp_path / "ours" / "clinic"]
    site = read_site(folders[0])
    assert [case.name for case in site.cases] == ["0", "1", "2", "3"]
    assert site.mistakes == ()
    for number in range(4):
        assert np.array_equal(
            read_mask(folders[0] / "masks" / f"{number}.png"), draw_case(number)[1]
        )
    assert contents(source) == before


def test_what_names_do_not_say_is_asked_for_by_the_option_that_says_it(tmp_path):
    for number in range(3):
        image, mask = draw_case(number)
        write_picture(tmp_path / "clinic" / "a" / f"{number}.png", image)
        write_picture(tmp_path / "clinic" / "b" / f"{number}.png", mask)
        write_picture(tmp_path / "clinic" / "c" / f"{number}.png", image)

    with pytest.raises(DataError, match=r"which files are masks.*a/ \(3\).*say it by --masks"):
        understand(tmp_path / "clinic")
    understood = understand(tmp_path / "clinic", masks="b/*", images="a/*")
    assert len(understood.sites[0].cases) == 3
    assert understood.left_out() == [
        "c/0.png, c/1.png, c/2.png: is named by neither --images nor --masks"
    ]


def test_a_dicom_archive_becomes_a_site_without_identifiers(tmp_path):
    source = tmp_path / "archive"
    for number in range(3):
        image, mask = draw_volume(number)
        place = source / f"DOE^{number}" / "study" / "series"
        files = write_series(place, image, spacing=(0.75, 0.5), patient=f"SECRET-{number}")
        write_segmentation(source / f"DOE^{number}" / "seg" / "1.dcm", files, mask)
    write_series(source / "DOE^9", draw_volume(9)[0], patient="SECRET-9")
    plain_dicom(draw_volume(1)[0][0], "SR").save_as(source / "report.dcm", enforce_file_format=True)
    (folder,), left = bring(source, tmp_path / "ours", PROSTATE, name="north")

    site = read_site(folder)
    assert (len(site.cases), len({case.patient for case in site.cases})) == (9, 3)
    assert {case.spacing for case in site.cases} == {(0.75, 0.5)}
    assert left == ["site north, DOE^9: has no mask and no label"]
    masks = sorted(int(read_slice(case.slices[case.mask]).sum()) for case in site.cases)
    assert masks == sorted(
        int(each.sum()) for number in range(3) for each in draw_volume(number)[1]
    )
    for path, data in contents(folder).items():
        unpacked = gzip.decompress(data) if path.suffix == ".gz" else data
        assert not any(word in str(path).encode() + unpacked for word in (b"DOE", b"SECRET"))


def test_images_of_another_modality_and_broken_series_are_named_where_they_lie(tmp_path):
    source = tmp_path / "archive"
    for name, modality, dropped in (("whole", "MR", 0), ("holes", "MR", 1), ("other", "CT", 0)):
        image, mask = draw_volume(1, slices=5)
        files = write_series(source / name / "series", image, Modality=modality)
        write_segmentation(source / name / "seg" / "1.dcm", files, mask)
        if dropped:
            files[2].unlink()
    with pytest.raises(DataError) as caught:
        bring(source, tmp_path / "ours", PROSTATE)

    missing = "site archive, holes/series: misses slices: they are 3 mm apart, but 6 mm after"
    assert missing in str(caught.value)
    assert 'modality = "MR" in site.toml, or --modality MR' in str(caught.value)
    (folder,), left = bring(source, tmp_path / "ours", PROSTATE, modality="MR", leave_out=True)
    assert len(read_site(folder).cases) == 5
    assert any(line.startswith("site archive, other/series/IM0001") for line in left)
    assert any(line.startswith(missing) for line in left)


@pytest.mark.parametrize("plane", ["axial", "coronal"])
def test_an_imported_series_shows_the_same_slices_as_its_files(tmp_path, plane):
    image, mask = draw_volume(4, slices=5)
    directions = {"axial": ((1, 0, 0), (0, 1, 0)), "coronal": ((1, 0, 0), (0, 0, 1))}[plane]
    source = tmp_path / "archive"
    files = write_series(source / "images" / "s", image, rows=directions[0], columns=directions[1])
    write_segmentation(source / "masks" / "1.dcm", files, mask)
    ((folder,), _) = bring(source, tmp_path / "ours", PROSTATE)

    for before, after in zip(read_site(source).cases, read_site(folder).cases, strict=True):
        one, other = (read_slice(case.slices[case.image]) for case in (before, after))
        assert np.array_equal(one, other)


def test_photographs_in_dicom_become_pictures_with_their_pixels_size(tmp_path):
    for number in range(3):
        image, mask = draw_case(number, colour=False)
        data = plain_dicom(image, "OP")
        data.PatientID, data.PixelSpacing = f"P{number % 2}", [0.1, 0.2]
        (tmp_path / "eyes" / "images").mkdir(parents=True, exist_ok=True)
        data.save_as(tmp_path / "eyes" / "images" / f"e{number}.dcm", enforce_file_format=True)
        write_picture(tmp_path / "eyes" / "masks" / f"e{number}.png", mask)
    (folder,), left = bring(tmp_path / "eyes", tmp_path / "ours", FUNDUS)
    site = read_site(folder)

    assert left == []
    assert site.toml.spacing == (0.1, 0.2)
    assert (len(site.cases), len({case.patient for case in site.cases})) == (3, 2)
    assert {path.suffix for path in (folder / "images").iterdir()} == {".png"}


def test_what_is_damaged_refuses_all_or_is_left_out_on_request(tmp_path):
    source = write_loose(tmp_path / "clinic")
    (source / "Ground Truth" / "1_mask.png").write_bytes(b"broken")
    (source / "photos" / "2_image.png").write_bytes(b"broken")

    with pytest.raises(DataError, match=r"masks/1.png(.|\n)*images/2.png"):
        bring(source, tmp_path / "ours", FUNDUS)
    assert not (tmp_path / "ours").exists()
    (folder,), left = bring(source, tmp_path / "ours", FUNDUS, leave_out=True)
    assert [case.name for case in read_site(folder).cases] == ["0", "3"]
    assert len(left) == 3


def test_nothing_is_written_without_agreement(source, tmp_path):
    seen = []

    def agree():
        seen.append((tmp_path / "sheet.png").exists())
        return False

    folders, _ = bring(source, tmp_path / "ours", FUNDUS, sheet=tmp_path / "sheet.png", agree=agree)
    assert (folders, seen) == ([], [True])
    assert list((tmp_path / "ours").iterdir()) == []


def test_nnunet_datasets_become_site_folders(tmp_path):
    export_nnunet(write_volume_site(tmp_path / "north"), tmp_path / "Dataset001", PROSTATE)
    (folder,), left = bring(tmp_path / "Dataset001", tmp_path / "ours", PROSTATE, name="north")

    assert left == []
    before, after = (read_site(each).cases for each in (tmp_path / "north", folder))
    assert [case.name for case in before] == [case.name for case in after]
    (tmp_path / "Dataset001" / "imagesTr" / "v0_0001.nii.gz").write_bytes(
        (tmp_path / "Dataset001" / "imagesTr" / "v0_0000.nii.gz").read_bytes()
    )
    with pytest.raises(DataError, match="has channels in files of their own"):
        bring(tmp_path / "Dataset001", tmp_path / "theirs", PROSTATE)


def write_public(folder, inside=255):
    """Photographs and masks of black and another value or colour, called as public sets do."""
    for number in range(3):
        image, mask = draw_case(number)
        write_picture(folder / "photos" / f"{number:02}.png", image)
        drawn = np.multiply.outer(mask > 0, np.array(inside)).astype(np.uint8)
        write_picture(folder / "manual" / f"{number:02}_manual1.png", drawn)
    return folder


def test_what_values_of_masks_mean_can_be_an_option(tmp_path):
    source = write_public(tmp_path / "drive")
    (folder,), _ = bring(source, tmp_path / "ours", FUNDUS, values="0=background, 255=rim+cup")
    assert read_site(folder).toml.masks.values == {0: ("background",), 255: ("rim", "cup")}
    assert check_folder(tmp_path / "ours").mistakes == ()
    red = write_public(tmp_path / "red", inside=(255, 0, 0))
    colours = {"colours": "#000000=background, #ff0000=disc"}
    (painted,), _ = bring(red, tmp_path / "again", FUNDUS, **colours)
    assert read_site(painted).toml.masks.colours["#ff0000"] == ("disc",)
    site_folder = folder.rename(tmp_path / "site")  # of a site folder, too
    (site_folder / "site.toml").unlink()
    (folder,), _ = bring(site_folder, tmp_path / "third", FUNDUS, values="0=background,255=disc")
    assert check_folder(folder, FUNDUS).mistakes == ()
    with pytest.raises(DataError, match=r"--values: .*such as 0=background,255=vessel"):
        bring(source, tmp_path / "no", FUNDUS, values="255")
    with pytest.raises(DataError, match=r"--values: values has \"x\""):
        bring(source, tmp_path / "no", FUNDUS, values="x=rim")


def test_masks_that_mean_nothing_yet_are_told_once_by_the_names_of_their_source(tmp_path):
    source = write_public(tmp_path / "drive")
    with pytest.raises(DataError) as caught:
        bring(source, tmp_path / "ours", FUNDUS)
    text = str(caught.value)
    assert "site drive, manual/00_manual1.png: has the value 255" in text
    assert "--values" in text
    assert "there is no case with a mask" not in text
    assert not (tmp_path / "ours").exists()


def test_an_axis_and_a_name_that_would_have_no_effect_are_refused(tmp_path):
    write_volume_site(tmp_path / "sites" / "north")
    write_volume_site(tmp_path / "sites" / "south")
    with pytest.raises(DataError, match=r"--axis.*site\.toml"):
        bring(tmp_path / "sites", tmp_path / "ours", PROSTATE, axis="coronal")
    with pytest.raises(DataError, match=r"--name: .*2 sites"):
        bring(tmp_path / "sites", tmp_path / "ours", PROSTATE, name="east")
