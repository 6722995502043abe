"""Sites whose files are volumes: NIfTI, DICOM with segmentations, nnU-Net's datasets."""

import gzip
import json
import os

import numpy as np
import pytest
from pydicom import dcmread

from polyclinic.config import DataSettings
from polyclinic.data.check import check_folder
from polyclinic.data.errors import DataError
from polyclinic.data.folder import read_site
from polyclinic.data.formats.store import FOLDER, read_slice
from polyclinic.data.load import load_federation
from polyclinic.data.splits import write_splits
from polyclinic.data.splitting import SplitRule
from polyclinic.data.tasks import TASKS
from polyclinic.data.weakening import weaken_site
from tests.data.folders import write_listing, write_picture, write_site
from tests.data.volumes import (
    as_stored,
    draw_volume,
    plain_dicom,
    write_nifti,
    write_segmentation,
    write_series,
    write_volume_site,
)

PROSTATE = TASKS["prostate"].with_resolution(32)


def load(folder, runs=None, **more):
    settings = DataSettings(source=str(folder), **more)
    (site,) = load_federation(PROSTATE, settings, splits_folder=runs and runs / "splits")
    return site


def write_dicom_site(folder, volumes=4, slices=3):
    """Series in folders of their own, segmentations anywhere below masks/."""
    for number in range(volumes):
        image, mask = draw_volume(number, slices)
        place = folder / "images" / f"DOE^{number}"
        files = write_series(place, image, spacing=(0.75, 0.5), patient=f"SECRET-{number}")
        write_segmentation(folder / "masks" / f"seg{number}.dcm", files, mask)
    return folder


def mistakes(folder):
    return "\n".join(check_folder(folder, PROSTATE).mistakes)


def all_cases(site):
    return {
        name: (cases.images[n], cases.masks[n], cases.spacing[n], cases.patients[n])
        for cases in (site.train, site.val, site.test)
        for n, name in enumerate(cases.names)
    }


def test_slices_of_nifti_volumes_are_cases_and_volumes_are_patients(tmp_path):
    cases = all_cases(load(write_volume_site(tmp_path / "north")))

    assert sorted(cases) == [
        f"v{volume}-{number:03d}" for volume in range(4) for number in range(3)
    ]
    image, mask = draw_volume(2)
    for number in range(3):
        found, labelled, spacing, patient = cases[f"v2-{number:03d}"]
        assert np.array_equal(found[0], image[number])
        assert np.array_equal(labelled, mask[number])
        assert np.allclose(spacing, (0.75, 0.5))
        assert patient == "v2"


def test_site_toml_chooses_the_axis(tmp_path):
    folder = write_volume_site(tmp_path / "north", slices=5)
    (folder / "site.toml").write_text('axis = "coronal"')
    cases = all_cases(load(folder))

    assert len(cases) == 4 * 32
    site = read_site(folder)
    assert {case.spacing for case in site.cases} == {(3.0, 0.5)}
    (folder / "site.toml").write_text('axis = "axail"')
    assert (
        'no axis "axail" (allowed: axial, coronal, sagittal, acquired); did you mean "axial"'
        in (mistakes(folder))
    )


def test_a_dicom_site_trains_on_what_its_segmentations_refer_to(tmp_path):
    cases = all_cases(load(write_dicom_site(tmp_path / "north")))
    images = {
        draw_volume(number)[0][slice_].tobytes(): (number, slice_)
        for number in range(4)
        for slice_ in range(3)
    }

    assert len(cases) == 12
    assert len({patient for *_, patient in cases.values()}) == 4
    for image, mask, spacing, _ in cases.values():
        number, slice_ = images[image[0].numpy().astype(np.int16).tobytes()]
        assert np.array_equal(mask, draw_volume(number)[1][slice_])
        assert np.allclose(spacing, (0.75, 0.5))


def test_no_identifier_appears_in_any_file_of_a_study(tmp_path):
    folder = write_dicom_site(tmp_path / "north")
    before = sorted(folder.rglob("*"))
    site = load(folder, tmp_path / "runs")
    instance = next((folder / "images" / "DOE^0").iterdir())
    secrets = [b"SECRET", b"DOE", b"Somebody", b"1.2.826."]

    assert instance.read_bytes().count(b"SECRET") == 2
    assert sorted(folder.rglob("*")) == before
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert {path.suffix for path in written} == {".csv", ".npy", ".json", ".index", ""}
    for path in written:
        assert not any(secret in path.read_bytes() for secret in secrets), path
        assert not any(secret.decode() in str(path) for secret in secrets)
    assert not any(b"SECRET" in name.encode() for name in all_cases(site))


def test_names_are_kept_with_the_salt_and_new_without_it(tmp_path):
    folder = write_dicom_site(tmp_path / "north", volumes=3)
    one, same, other = (set(all_cases(load(folder, tmp_path / runs))) for runs in ("a", "a", "b"))
    salt = tmp_path / "a" / FOLDER / "north" / "salt"

    assert one == same
    assert not one & other
    assert salt.stat().st_mode & 0o777 == 0o600
    (folder / "salt").write_bytes(salt.read_bytes())
    assert set(all_cases(load(folder, tmp_path / "c"))) == one
    (folder / "salt").write_text("short")
    with pytest.raises(DataError, match="salt"):
        load(folder, tmp_path / "c")


def test_the_second_start_reads_no_volume(tmp_path):
    folder = write_dicom_site(tmp_path / "north", volumes=3)
    first = all_cases(load(folder, tmp_path / "runs"))
    for path in folder.rglob("*"):  # same name, size and time, nothing to read in it
        if path.is_file():
            status = path.stat()
            path.write_bytes(bytes(status.st_size))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    second = all_cases(load(folder, tmp_path / "runs"))

    assert first.keys() == second.keys()
    for name, (image, mask, spacing, patient) in first.items():
        assert image.equal(second[name][0])
        assert mask.equal(second[name][1])
        assert spacing.equal(second[name][2])
        assert patient == second[name][3]


def test_a_changed_volume_is_read_anew(tmp_path):
    folder = write_volume_site(tmp_path / "north")
    load(folder, tmp_path / "runs")
    image, _ = draw_volume(77)
    write_nifti(folder / "images" / "v1.nii.gz", as_stored(image), np.diag([-0.5, -0.75, 3, 1]))

    cases = all_cases(load(folder, tmp_path / "runs"))
    assert np.array_equal(cases["v1-001"][0][0], image[1])


def test_single_dicom_images_have_pictures_or_segmentations_as_masks(tmp_path):
    folder = tmp_path / "north"
    (folder / "images").mkdir(parents=True)
    for number in range(3):
        image, mask = draw_volume(number, slices=1)
        data = plain_dicom(image[0], "OP")
        data.PatientID, data.PixelSpacing = f"P{number}", [0.2, 0.3]
        data.save_as(folder / "images" / f"eye{number}.dcm", enforce_file_format=True)
        write_picture(folder / "masks" / f"eye{number}.png", mask[0])
    cases = all_cases(load(folder))

    assert len(cases) == 3
    assert not any("eye" in name for name in cases)
    assert {tuple(spacing.tolist()) for _, _, spacing, _ in cases.values()} == {(0.2, 0.3)}
    assert all((mask == 1).any() for _, mask, *_ in cases.values())


def test_nifti_masks_belong_to_a_series_by_the_name_of_its_folder(tmp_path):
    folder = tmp_path / "north"
    for number in range(3):
        image, mask = draw_volume(number)
        files = write_series(folder / "images" / f"s{number}", image, patient=f"P{number}")
        affine = np.diag([-1.0, -1.0, 3.0, 1.0])
        write_nifti(folder / "masks" / f"s{number}.nii", as_stored(mask), affine)
        assert len(files) == 3

    cases = all_cases(load(folder))
    assert sorted(int((mask == 1).sum()) for _, mask, *_ in cases.values()) == sorted(
        int(draw_volume(number)[1][slice_].sum()) for number in range(3) for slice_ in range(3)
    )


def test_pictures_and_volumes_may_lie_in_one_site(tmp_path):
    folder = write_volume_site(tmp_path / "north", volumes=1)
    write_site(folder, 3)

    assert len(read_site(folder).cases) == 3 + 3
    assert read_site(folder).mistakes == ()


def test_labels_may_be_pictures_of_single_slices(tmp_path):
    folder = write_volume_site(tmp_path / "north", volumes=1)
    label = np.full((32, 32), 255, np.uint8)
    label[4:6, 4:9] = 0
    write_picture(folder / "labels" / "scribble" / "v0-001.png", label)
    write_picture(folder / "labels" / "scribble" / "v0-009.png", label)
    site = read_site(folder)

    assert [case.name for case in site.cases if "scribble" in case.labels] == ["v0-001"]
    assert site.mistakes == (
        "site north, labels/scribble/v0-009.png: there is no image v0-009 to it",
    )


def test_cases_csv_may_speak_of_whole_volumes(tmp_path):
    folder = write_volume_site(tmp_path / "north", volumes=3)
    write_listing(folder, [("v0", "a", "train"), ("v1", "b", "val"), ("v2", "c", "test")])
    site = load(folder)

    assert site.train.patients == ("a",) * 3
    assert site.test.names == ("v2-000", "v2-001", "v2-002")


def test_an_nnunet_dataset_is_a_site(tmp_path):
    folder = tmp_path / "Dataset001_North"
    affine = np.diag([-0.5, -0.75, 3.0, 1.0])
    for number in range(4):
        image, mask = draw_volume(number)
        part = "Ts" if number == 3 else "Tr"
        for channel in range(2):
            path = folder / f"images{part}" / f"p_{number}_{channel:04d}.nii.gz"
            write_nifti(path, as_stored(image + channel), affine)
        write_nifti(folder / f"labels{part}" / f"p_{number}.nii.gz", as_stored(mask), affine)
    about = {"channel_names": {"0": "T2", "1": "ADC"}, "labels": {"background": 0, "prostate": 1}}
    (folder / "dataset.json").write_text(json.dumps(about))
    site = read_site(folder)

    assert site.mistakes == ()
    assert {case.split for case in site.cases if case.volume == "p_3"} == {"test"}
    case = site.cases[4]
    assert case.name == "p_1-001"
    channels = read_slice(case.slices[case.image])
    assert np.array_equal(channels, np.stack([draw_volume(1)[0][1], draw_volume(1)[0][1] + 1]))


def test_everything_wrong_with_volumes_is_said_at_once_with_site_and_file(tmp_path):
    folder = write_volume_site(tmp_path / "north", volumes=7)
    images, masks = folder / "images", folder / "masks"
    image, mask = draw_volume(0)
    affine = np.diag([-0.5, -0.75, 3.0, 1.0])
    phases = np.stack([as_stored(image)] * 2, axis=-1)
    write_nifti(images / "v0.nii.gz", phases, affine)
    (images / "v1.nii.gz").write_bytes((images / "v1.nii.gz").read_bytes()[:500])
    elsewhere = affine.copy()
    elsewhere[:3, 3] = 0, 0, 30
    write_nifti(masks / "v2.nii.gz", as_stored(mask), elsewhere)
    write_nifti(masks / "v3.nii.gz", as_stored(mask)[:, :, :2], affine)
    write_nifti(masks / "v4.nii.gz", as_stored(mask * np.float32(0.5)), affine)
    (images / "v5.nii.gz").write_bytes(gzip.compress(b"no"))
    (masks / "v6.nii.gz").unlink()
    write_nifti(masks / "v9.nii.gz", as_stored(mask), affine)
    found = mistakes(folder)

    for line in (
        "images/v0.nii.gz: has 4 dimensions (32×32×3×2): several phases or channels",
        "images/v1.nii.gz: cannot be read: ",
        "masks/v2.nii.gz: lies elsewhere than its image",
        "masks/v3.nii.gz: has 2×32×32 voxels (slices × rows × columns), its image 3×32×32",
        "masks/v4.nii.gz: has the value 0.5; class numbers are whole",
        "images/v5.nii.gz: is no NIfTI file",
        "images/v6.nii.gz: has no mask and no label",
        "masks/v9.nii.gz: there is no image v9 to it",
    ):
        assert f"site north, {line}" in found


def test_everything_wrong_with_dicom_is_said_at_once_with_site_and_file(tmp_path):
    folder = tmp_path / "north"
    image, mask = draw_volume(0, slices=5)
    series = {
        name: write_series(folder / "images" / name, image, patient=name)
        for name in ("gap", "twice", "sizes", "phases", "fine")
    }
    series["gap"][2].unlink()
    again = folder / "images" / "twice" / "copy.dcm"
    again.write_bytes(series["twice"][0].read_bytes())
    data = dcmread(series["sizes"][1])
    data.Rows, data.PixelData = 16, data.PixelData[: len(data.PixelData) // 2]
    data.save_as(series["sizes"][1])
    for file in series["phases"]:
        data = dcmread(file)
        data.SOPInstanceUID = data.SOPInstanceUID[:-1] + "9"
        data.save_as(f"{file}.2")
    write_segmentation(folder / "masks" / "a.dcm", series["fine"], mask)
    write_segmentation(folder / "images" / "fine.dcm", series["fine"], mask)
    other = write_series(tmp_path / "other", image)
    write_segmentation(folder / "masks" / "b.dcm", other, mask)
    plain_dicom(image[0], "SR").save_as(folder / "images" / "r.dcm", enforce_file_format=True)
    plain_dicom(image[0], "CT").save_as(folder / "images" / "c.dcm", enforce_file_format=True)
    (folder / "images" / "fine" / "notes.txt").write_text("hello")
    found = mistakes(folder)

    for line in (
        "images/gap: misses slices: they are 3 mm apart, but 6 mm after IM0004",
        "images/twice/copy.dcm: has the same SOP instance UID as twice/",
        "images/sizes: is a series of mixed sizes: 32×32",
        "images/phases: has two images at the same place: several phases",
        "images/fine.dcm: is a segmentation; it belongs in masks/",
        "masks/b.dcm: is a segmentation of no image of this site",
        "images/r.dcm: is DICOM without an image (modality SR)",
        "images/fine/notes.txt: is neither NIfTI nor DICOM",
    ):
        assert f"site north, {line}" in found
    assert "holds images of several modalities (MR 30, CT 1); say which one" in found
    (folder / "site.toml").write_text('modality = "MR"')
    assert "images/c.dcm: is of modality CT, the site of MR" in mistakes(folder)


def test_a_split_in_the_folder_of_a_dicom_site_brings_the_salt_of_its_names(tmp_path):
    folder = write_dicom_site(tmp_path / "north")
    write_splits(folder, SplitRule(), tmp_path / "runs" / FOLDER)
    listed = (folder / "splits.csv").read_text()

    site = load(folder, tmp_path / "elsewhere")
    assert all(name in listed for name in all_cases(site))
    assert not (tmp_path / "elsewhere" / FOLDER / "north" / "salt").exists()
    assert (folder / "salt").stat().st_mode & 0o777 == 0o600


def test_weak_labels_are_made_for_every_slice(tmp_path):
    folder = write_dicom_site(tmp_path / "north")
    weaken_site(folder, "scribble", task=PROSTATE)
    site = read_site(folder)

    assert site.mistakes == ()
    assert all("scribble" in case.labels for case in site.cases)
    loaded = load_federation(PROSTATE, DataSettings(source=str(folder)), labels="scribble")
    assert (loaded[0].train.labels == 255).any()


def test_from_the_second_time_on_a_studys_tensors_are_mapped_from_disk(tmp_path):
    folder = write_volume_site(tmp_path / "north")
    first = load(folder, tmp_path / "runs")
    (about,) = (tmp_path / "runs" / FOLDER / "north" / "cache").glob("*/about.json")
    images = np.load(about.with_name("train-images.npy"), mmap_mode="r+")
    images[0] = 7.0
    images.flush()
    second = load(folder, tmp_path / "runs")

    assert (second.train.images[0] == 7).all()
    assert second.train.images[1:].equal(first.train.images[1:])
    assert second.train.names == first.train.names
    second.train.images[:] = 0  # of this process only
    assert load(folder, tmp_path / "runs").train.images.any()
    (folder / "site.toml").write_text('name = "north"\n')
    assert not (load(folder, tmp_path / "runs").train.images[0] == 7).all()


def test_a_split_without_a_case_is_kept_too(tmp_path):
    folder = write_volume_site(tmp_path / "north")
    first, second = (load(folder, tmp_path / "runs", split=(0.5, 0.0, 0.5)) for _ in range(2))

    assert len(first.val) == len(second.val) == 0
    assert first.test.masks.equal(second.test.masks)


def test_masks_may_be_stored_in_another_order_than_a_series(tmp_path):
    folder = tmp_path / "north"
    image, mask = draw_volume(0, slices=5)
    # Sagittal images from left to right, as their normal points to the right.
    files = write_series(
        folder / "images" / "s", image, rows=(0, 1, 0), columns=(0, 0, -1), step=2.0
    )
    assert len(files) == 5
    # The same in an array that counts to the left, the back and the head.
    placed = mask.transpose(0, 2, 1)[::-1, :, ::-1]
    affine = np.diag([-2.0, -1.0, 1.0, 1.0])
    affine[:3, 3] = 8, 0, -31
    write_nifti(folder / "masks" / "s.nii", placed, affine)
    site = read_site(folder)

    assert site.mistakes == ()
    seen = [read_slice(case.slices[case.mask])[0] for case in site.cases]
    assert np.array_equal(seen, mask[::-1])


def test_patients_of_train_and_test_folders_are_told_apart_unless_dicom_says_they_are_one(tmp_path):
    for part in ("train", "test"):
        write_volume_site(tmp_path / "nifti" / part, volumes=2)
        image, mask = draw_volume(0)
        files = write_series(tmp_path / "dicom" / part / "images" / "s", image, patient="same")
        write_segmentation(tmp_path / "dicom" / part / "masks" / "a.dcm", files, mask)

    nifti = read_site(tmp_path / "nifti")
    assert nifti.mistakes == ()
    assert {case.patient for case in nifti.cases} == {"train-v0", "train-v1", "test-v0", "test-v1"}
    assert (
        "is in train and test; a patient belongs to one split"
        in read_site(tmp_path / "dicom").mistakes[0]
    )


def test_nnunet_files_that_are_not_used_are_named(tmp_path):
    folder = tmp_path / "Dataset001"
    write_volume_site(folder, volumes=1)
    (folder / "images").rename(folder / "imagesTr")
    (folder / "masks").rename(folder / "labelsTr")
    (folder / "imagesTr" / "v0.nii.gz").rename(folder / "imagesTr" / "v0_0000.nii.gz")
    (folder / "imagesTr" / "v1_0000.mha").write_text("")
    (folder / "imagesTs").mkdir()
    (folder / "dataset.json").write_text('{"labels": {"background": 0, "prostate": 1}}')
    site = read_site(folder)

    assert site.mistakes == (
        "site Dataset001, imagesTr/v1_0000.mha: is neither NIfTI nor a picture",
    )
    assert site.warnings == (
        "site Dataset001, imagesTs: is left out, because there is no labelsTs",
    )
    (folder / "dataset.json").write_text('{"labels": {"background": 0, "ignore": 1}}')
    assert "has an ignore label" in read_site(folder).mistakes[-1]


def test_linked_folders_are_followed_and_loops_end(tmp_path):
    image, mask = draw_volume(0)
    files = write_series(tmp_path / "archive" / "s", image)
    write_segmentation(tmp_path / "north" / "masks" / "a.dcm", files, mask)
    (tmp_path / "north" / "images").mkdir()
    (tmp_path / "north" / "images" / "s").symlink_to(tmp_path / "archive" / "s")
    (tmp_path / "archive" / "s" / "again").symlink_to(tmp_path / "archive" / "s")

    assert len(read_site(tmp_path / "north").cases) == 3
    assert read_site(tmp_path / "north").mistakes == ()


def test_a_site_knows_whether_its_pixels_have_a_size(tmp_path):
    assert load(write_volume_site(tmp_path / "north"), tmp_path / "runs").measured
    assert load(tmp_path / "north", tmp_path / "runs").measured  # as it was kept
    write_site(tmp_path / "south")
    settings = DataSettings(source=str(tmp_path / "south"))
    (south,) = load_federation(TASKS["fundus"].with_resolution(32), settings)
    assert not south.measured
    (tmp_path / "south" / "site.toml").write_text("spacing = 1.0\n")
    (south,) = load_federation(TASKS["fundus"].with_resolution(32), settings)
    assert south.measured


def test_copies_of_an_image_keep_a_plain_name(tmp_path):
    (tmp_path / "north" / "images").mkdir(parents=True)
    data = plain_dicom(draw_volume(0, 1)[0][0])
    for name, uid in (("a", "1.2"), ("b", "1.2"), ("c", "1.3"), ("d", "1.3")):
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = uid
        data.save_as(tmp_path / "north" / "images" / name, enforce_file_format=True)
    site = read_site(tmp_path / "north")
    assert "has the same SOP instance UID as" in "\n".join(site.mistakes)
    assert not [case.name for case in site.cases if case.name.startswith("None")]


def test_of_series_that_share_a_folder_a_message_names_files(tmp_path):
    folder = tmp_path / "north"
    for name in ("whole", "twice"):
        files = write_series(tmp_path / name, draw_volume(1, slices=4)[0])
        (folder / "images").mkdir(parents=True, exist_ok=True)
        for file in files:
            file.rename(folder / "images" / f"{name}-{file.name}")
    again = dcmread(folder / "images" / "twice-IM0002")
    again.SOPInstanceUID = f"{again.SOPInstanceUID}9"
    again.save_as(folder / "images" / "twice-IM0009")

    found = mistakes(folder)
    assert "site north, images/twice-IM0001: has two images at the same place" in found
    assert "(twice-IM0002 and twice-IM0009)" in found
