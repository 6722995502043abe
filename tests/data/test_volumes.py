"""Volumes come out alike, whatever the order in which a file stores them, and go back."""

import gzip
import subprocess
import sys

import nibabel
import numpy as np
import pytest
import SimpleITK

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.nifti import read_nifti
from polyclinic.data.formats.nifti import write_nifti as write_back
from tests.data.volumes import (
    ORIENTATIONS,
    plain_dicom,
    proper,
    read_dicom,
    reoriented,
    write_nifti,
    write_series,
)

RNG = np.random.default_rng(0)
# To the left, the back and the head, as SimpleITK and DICOM count.
LPS = RNG.integers(0, 1000, (4, 5, 6)).astype(np.int16)
SPACING = (0.5, 0.75, 3.0)
AFFINE = np.diag([-0.5, -0.75, 3.0, 1.0])
AFFINE[:3, 3] = 10, 20, -30
SEEN = {
    "axial": LPS.transpose(2, 1, 0),
    "coronal": LPS.transpose(1, 2, 0)[:, ::-1],
    "sagittal": LPS.transpose(0, 2, 1)[:, ::-1],
}
IN_PLANE = {"axial": (0.75, 0.5), "coronal": (3.0, 0.5), "sagittal": (3.0, 0.75)}


def test_there_are_24_turns_and_as_many_mirror_images():
    assert (len(ORIENTATIONS), sum(map(proper, ORIENTATIONS))) == (48, 24)


@pytest.mark.parametrize("axis", SEEN)
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_all_orientations_of_a_nifti_file_give_the_same_slices(tmp_path, axis, suffix):
    for number, orientation in enumerate(ORIENTATIONS):
        path = tmp_path / f"{number}{suffix}"
        volume = read_nifti(write_nifti(path, *reoriented(LPS, AFFINE, orientation)), axis)

        assert np.array_equal(volume.voxels[:, 0], SEEN[axis]), orientation
        assert np.allclose(volume.spacing, IN_PLANE[axis])
        assert volume.warnings == ()


def test_the_test_itself_moves_voxels_as_simpleitk_understands_it(tmp_path):
    for number, orientation in enumerate(ORIENTATIONS):
        path = write_nifti(tmp_path / f"{number}.nii", *reoriented(LPS, AFFINE, orientation))
        # SimpleITK cannot hold mirror images in every release; it must hold all turns.
        if proper(orientation):
            image = SimpleITK.DICOMOrient(SimpleITK.ReadImage(str(path)), "LPS")
            assert np.array_equal(SimpleITK.GetArrayFromImage(image), LPS.transpose(2, 1, 0))
            assert np.allclose(image.GetSpacing(), SPACING)


@pytest.mark.parametrize("axis", SEEN)
def test_masks_go_back_to_where_their_file_has_them(tmp_path, axis):
    for number, orientation in enumerate(ORIENTATIONS):
        stored, affine = reoriented(LPS, AFFINE, orientation)
        volume = read_nifti(write_nifti(tmp_path / f"{number}.nii", stored, affine), axis)
        restored = volume.restored(volume.voxels[:, 0] > 500)
        write_back(tmp_path / "mask.nii.gz", restored.astype(np.uint8), volume.affine)

        mask = nibabel.load(tmp_path / "mask.nii.gz")
        assert np.array_equal(np.asarray(mask.dataobj), stored > 500)
        assert np.allclose(mask.affine, affine)


PLANES = {  # directions of rows and columns, and what is seen
    "axial": ((1, 0, 0), (0, 1, 0)),
    "coronal": ((1, 0, 0), (0, 0, -1)),
    "sagittal": ((0, 1, 0), (0, 0, -1)),
}


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("axis", [*SEEN, "acquired"])
def test_three_dicom_orientations_give_the_same_slices(tmp_path, plane, axis):
    rows, columns = PLANES[plane]
    # The normal of coronal images points to the back, that of sagittal ones to the right.
    backwards = plane == "sagittal"
    frames = SEEN[plane][::-1] if backwards else SEEN[plane]
    step = {"axial": 3.0, "coronal": 0.75, "sagittal": 0.5}[plane]
    files = write_series(
        tmp_path, frames, rows=rows, columns=columns, spacing=IN_PLANE[plane], step=step
    )
    volume = read_dicom(files, axis)

    named = plane if axis == "acquired" else axis
    assert np.array_equal(volume.voxels[:, 0], SEEN[named])
    assert np.allclose(volume.spacing, IN_PLANE[named])
    assert volume.files == tuple(files)
    assert np.array_equal(volume.restored(volume.voxels[:, 0]), frames)


def test_a_dicom_series_lies_where_simpleitk_says(tmp_path):
    turned = np.radians(20)
    rows, columns = (np.cos(turned), np.sin(turned), 0), (-np.sin(turned), np.cos(turned), 0)
    files = write_series(
        tmp_path, SEEN["axial"], rows=rows, columns=columns, spacing=(0.75, 0.5), start=(7, 8, 9)
    )
    volume = read_dicom(files)
    theirs = SimpleITK.ReadImage([str(file) for file in volume.files])

    assert volume.warnings == ("is tilted by 20°; its slices stay as stored",)
    for index in [(0, 0, 0), (5, 4, 3), (2, 0, 3)]:  # frame, row, column
        place = volume.affine @ [*index, 1]
        theirs_lps = theirs.TransformIndexToPhysicalPoint(index[::-1])
        assert np.allclose(place[:3], np.array(theirs_lps) * [-1, -1, 1])


def test_oblique_and_sheared_volumes_are_refused(tmp_path):
    turned = np.radians(43)
    oblique = np.eye(4)
    oblique[:2, :2] = [[np.cos(turned), -np.sin(turned)], [np.sin(turned), np.cos(turned)]]
    sheared = np.eye(4)
    sheared[0, 2] = 0.3

    with pytest.raises(UnreadableError, match="oblique by 43°"):
        read_nifti(write_nifti(tmp_path / "a.nii", LPS, oblique))
    with pytest.raises(UnreadableError, match="sheared"):
        read_nifti(write_nifti(tmp_path / "b.nii", LPS, sheared))


def test_headers_that_ask_for_too_much_are_refused_before_anything_is_unpacked(tmp_path):
    path = write_nifti(tmp_path / "a.nii", LPS)
    data = bytearray(path.read_bytes())
    data[42:48] = np.array([30000, 30000, 30000], "<i2").tobytes()
    (tmp_path / "bomb.nii.gz").write_bytes(gzip.compress(bytes(data)))
    longer = gzip.compress(path.read_bytes() + bytes(50_000_000))
    (tmp_path / "longer.nii.gz").write_bytes(longer)
    bomb = plain_dicom(np.zeros((4, 4), np.uint8))
    bomb.Rows, bomb.Columns, bomb.NumberOfFrames = 60000, 60000, 1000
    bomb.save_as(tmp_path / "bomb.dcm", enforce_file_format=True)

    with pytest.raises(UnreadableError, match="27,000,000,000,000 pixels; at most"):
        read_nifti(tmp_path / "bomb.nii.gz")
    with pytest.raises(UnreadableError, match="pixels; at most"):
        read_dicom([tmp_path / "bomb.dcm"])
    assert np.array_equal(read_nifti(tmp_path / "longer.nii.gz").voxels, read_nifti(path).voxels)


def test_a_cut_off_file_says_how_much_is_missing(tmp_path):
    path = write_nifti(tmp_path / "a.nii", LPS)
    path.write_bytes(path.read_bytes()[:-10])

    with pytest.raises(UnreadableError, match="is cut off: 582 of 592 bytes"):
        read_nifti(path)


def test_a_header_in_metres_gives_millimetres(tmp_path):
    path = write_nifti(tmp_path / "a.nii", LPS, np.diag([-0.001, -0.001, 0.002, 1]), xyzt_units=1)

    assert np.allclose(read_nifti(path, "coronal").spacing, (2.0, 1.0))


def test_files_that_do_not_say_how_they_lie_are_told(tmp_path):
    path = write_nifti(tmp_path / "a.nii", LPS)
    data = bytearray(path.read_bytes())
    data[252:256] = bytes(4)  # the codes of qform and sform
    path.write_bytes(data)

    assert read_nifti(path).warnings == ("does not say how it lies; taken as stored",)


def test_scaled_values_are_what_nibabel_gives(tmp_path):
    image = nibabel.Nifti1Image(LPS, AFFINE)
    image.header.set_slope_inter(0.5, -7)
    nibabel.save(image, tmp_path / "a.nii.gz")
    theirs = nibabel.as_closest_canonical(nibabel.load(tmp_path / "a.nii.gz")).get_fdata()

    # Theirs count to the right and to the front.
    assert np.allclose(read_nifti(tmp_path / "a.nii.gz").voxels[:, 0], theirs[::-1, ::-1].T)


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    path = write_nifti(tmp_path / "a.nii", LPS)
    (tmp_path / "a.dcm").write_bytes(b"")
    for package in ("nibabel", "pydicom"):
        monkeypatch.setitem(sys.modules, package, None)

    for read in (lambda: read_nifti(path), lambda: read_dicom([tmp_path / "a.dcm"])):
        with pytest.raises(UnreadableError, match=r"pip install 'polyclinic\[formats\]'"):
            read()


def test_nothing_heavy_is_imported_before_a_file_asks_for_it():
    heavy = {"torch", "nibabel", "pydicom", "highdicom", "h5py"}
    modules = "polyclinic.data.folder, polyclinic.data.formats.reading, polyclinic.data.readers"
    script = f"import sys, {modules}; print(*({heavy} & set(sys.modules)))"

    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "\n"
