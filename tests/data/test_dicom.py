"""Real DICOM files: those that the package pydicom brings for its own tests."""

from pathlib import Path

import imagecodecs
import numpy as np
import pydicom
import pytest
import SimpleITK
from pydicom.encaps import encapsulate

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.instances import is_dicom, read_instance
from polyclinic.data.formats.reading import files_below, stacks_of
from polyclinic.data.formats.segmentation import read_segmentation
from tests.data.volumes import (
    draw_volume,
    plain_dicom,
    read_dicom,
    write_enhanced,
    write_segmentation,
    write_series,
)

# pydicom itself warns of what is odd about some of its files.
pytestmark = pytest.mark.filterwarnings("ignore")
FILES = Path(pydicom.__file__).parent / "data" / "test_files"


def read(name, **how):
    return read_dicom([FILES / name], **how)


@pytest.mark.parametrize(
    "name",
    ["RLE", "bigendian", "expb", "implicit", "jp2klossless", "jpeg_ls_lossless", "padded"],
)
def test_every_way_to_store_an_image_gives_the_same_image(name):
    plain = read("MR_small.dcm")
    other = read(f"MR_small_{name}.dcm")

    assert np.array_equal(plain.voxels, other.voxels)
    assert other.spacing == plain.spacing == (0.3125, 0.3125)
    assert np.array_equal(plain.affine, other.affine)


@pytest.mark.parametrize(
    "name",
    [
        "MR_small.dcm",
        "CT_small.dcm",
        "693_J2KI.dcm",
        "JPEG2000.dcm",
        "image_dfl.dcm",
        "examples_overlay.dcm",
        "examples_rgb_color.dcm",
        "SC_rgb_rle.dcm",
        "SC_rgb_jpeg_dcmtk.dcm",
        "SC_rgb_small_odd.dcm",
    ],
)
def test_values_and_places_are_those_that_simpleitk_reads(name):
    volume = read(name)
    theirs = SimpleITK.ReadImage(str(FILES / name))
    array = SimpleITK.GetArrayFromImage(theirs)
    seen = array.transpose(0, 3, 1, 2) if array.ndim == 4 else array[:, None]

    # Decoders of lossy JPEG round differently.
    assert abs(volume.voxels - seen.astype(np.float64)).max() <= (3 if "jpeg" in name else 0)
    if volume.affine is not None:
        columns, rows, _ = theirs.GetSpacing()
        assert np.allclose(volume.spacing, (rows, columns))
        for row, column in ((0, 0), (5, 9)):
            place = volume.affine @ [0, row, column, 1]
            point = theirs.TransformIndexToPhysicalPoint((column, row, 0))
            assert np.allclose(place[:3], np.array(point) * [-1, -1, 1])


@pytest.mark.parametrize("name", ["JPEG-lossy", "JPGExtended", "SC_rgb_jpeg_gdcm"])
def test_jpeg_of_12_bits_and_lossless_jpeg_are_read_as_simpleitk_reads_them(name):
    array = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(FILES / f"{name}.dcm")))
    theirs = array.transpose(0, 3, 1, 2) if array.ndim == 4 else array[:, None]

    assert np.array_equal(read(f"{name}.dcm").voxels, theirs)


def compressed(pixels, bits, *, signed=False):
    """A file in lossless JPEG: liblj92 writes it, and another library will read it."""
    data = plain_dicom(np.zeros_like(pixels))
    data.file_meta.TransferSyntaxUID = pydicom.uid.JPEGLosslessSV1
    data.BitsStored, data.HighBit, data.PixelRepresentation = bits, bits - 1, int(signed)
    unsigned = pixels.view(np.uint16) & np.uint16(2**bits - 1)
    data.PixelData = encapsulate([imagecodecs.ljpeg_encode(unsigned, bitspersample=bits)])
    data["PixelData"].VR = "OB"
    return data


@pytest.mark.parametrize(("bits", "signed"), [(12, False), (16, False), (12, True), (16, True)])
def test_lossless_jpeg_loses_nothing(tmp_path, bits, signed):
    lowest = -(2 ** (bits - 1)) if signed else 0
    numbers = np.random.default_rng(bits).integers(lowest, lowest + 2**bits, (9, 14))
    pixels = numbers.astype(np.int16 if signed else np.uint16)
    file = tmp_path / "image.dcm"
    compressed(pixels, bits, signed=signed).save_as(file, enforce_file_format=True)

    assert np.array_equal(read_dicom([file]).voxels[0, 0], numbers)


def test_a_jpeg_of_another_size_than_its_file_says_is_refused_before_it_is_decoded(tmp_path):
    data = compressed(np.zeros((9, 14), np.uint16), 12)
    data.Rows = 8
    data.save_as(tmp_path / "image.dcm", enforce_file_format=True)

    with pytest.raises(UnreadableError, match="DICOM file says 8×14×1"):
        read_dicom([tmp_path / "image.dcm"])


def test_files_of_several_frames_give_a_slice_for_each():
    volume = read("examples_ybr_color.dcm")

    assert volume.voxels.shape == (30, 3, 240, 320)
    assert volume.voxels.dtype == np.uint8
    assert not np.array_equal(volume.voxels[0], volume.voxels[29])


def test_colours_are_rgb_whatever_they_are_stored_as():
    reference = read("SC_rgb_dcmtk_+eb+cr.dcm").voxels.astype(int)
    for name in ("SC_rgb_dcmtk_+eb+cy+n1.dcm", "SC_rgb_dcmtk_+eb+cy+np.dcm"):
        found = read(name).voxels.astype(int)
        middle = np.s_[..., 4:6, 10:90]  # within one stripe of colour
        assert abs(found[middle] - reference[middle]).max() <= 4
    assert read("examples_palette.dcm").voxels.shape == (1, 3, 350, 800)


def test_bright_is_bright_in_monochrome1():
    name = "dicomdirtests/77654033/CR1/6154"
    data = pydicom.dcmread(FILES / name)

    assert data.PhotometricInterpretation == "MONOCHROME1"
    stored = data.pixel_array * float(data.RescaleSlope) + float(data.RescaleIntercept)
    inverted = (
        (2**data.BitsStored - 1) * float(data.RescaleSlope) + 2 * data.RescaleIntercept - stored
    )
    assert np.allclose(read(name).voxels[0, 0], inverted)


def test_the_stored_window_cuts_values_off(tmp_path):
    image = np.arange(0, 1024, dtype=np.int16).reshape(32, 32)
    data = plain_dicom(image)
    data.RescaleSlope, data.RescaleIntercept = 2, -1000
    data.WindowCenter, data.WindowWidth = 40, 400
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    plain = read_dicom([tmp_path / "a.dcm"]).voxels[0, 0]
    seen = read_dicom([tmp_path / "a.dcm"], stored_window=True).voxels[0, 0]

    assert np.array_equal(plain, image * 2.0 - 1000)
    below, above = plain < -165, plain > 245
    assert len(np.unique(seen[below])) == len(np.unique(seen[above])) == 1
    between = ~below & ~above
    assert np.corrcoef(seen[between], plain[between])[0, 1] > 0.999


def test_a_file_of_many_slices_is_as_a_series_of_them(tmp_path):
    image, _ = draw_volume(3, slices=4)
    series = read_dicom(write_series(tmp_path / "series", image, spacing=(0.7, 0.4), step=2.0))
    write_enhanced(tmp_path / "a.dcm", image, spacing=(0.7, 0.4), step=2.0)
    volume = read_dicom([tmp_path / "a.dcm"])

    slopes = np.arange(1, 5)[:, None, None, None]
    assert np.array_equal(volume.voxels, series.voxels * slopes)
    assert volume.spacing == series.spacing
    # Masks go back to the order of the file's frames.
    assert np.array_equal(volume.restored(volume.voxels[:, 0])[3], image[0])


def test_a_segmentation_may_be_about_the_frames_of_one_file(tmp_path):
    image, mask = draw_volume(3, slices=4)
    mask[2] = 0  # a frame that segmentations leave out
    file = write_enhanced(tmp_path / "a.dcm", image, spacing=(0.7, 0.4), step=2.0)
    seg = write_segmentation(tmp_path / "seg.dcm", [file], mask[::-1])
    volume = read_dicom([file])

    assert read_instance(seg).references == (read_instance(file).uid,)
    assert np.array_equal(read_segmentation(seg, volume, [read_instance(file)]), mask)


def test_segments_are_class_numbers_and_must_not_overlap(tmp_path):
    image, mask = draw_volume(3, slices=3)
    files = write_series(tmp_path / "s", image)
    inner = np.roll(mask, 3, axis=2) & mask
    apart = np.stack([mask - inner, inner], axis=-1)
    volume, instances = read_dicom(files), [read_instance(file) for file in files]
    write_segmentation(tmp_path / "a.dcm", files, apart, ("rim", "core"))
    write_segmentation(tmp_path / "b.dcm", files, np.stack([mask, inner], axis=-1), ("a", "b"))

    assert np.array_equal(read_segmentation(tmp_path / "a.dcm", volume, instances), mask + inner)
    with pytest.raises(UnreadableError, match="overlap"):
        read_segmentation(tmp_path / "b.dcm", volume, instances)


def test_a_whole_archive_is_sorted_into_volumes_with_a_reason_for_all_else():
    stacks, left = stacks_of(files_below(FILES / "dicomdirtests"))
    sizes = {}
    for stack in stacks:
        folder = stack.files[0].parent.name
        try:
            sizes.setdefault(folder, []).append(len(stack.read().voxels))
        except UnreadableError as error:
            sizes.setdefault(folder, []).append(str(error).split(":")[0])

    assert sizes == {
        "CR1": [1],
        "CR2": [1],
        "CR3": [1],
        "CT2": ["misses slices"],
        "CT2N": ["holds images of several directions (a localizer?)"],
        "CT5N": [5],
        "MR1": [1, 1, 1],
        "MR2": [1] + ["holds images of several directions (a localizer?)"] * 2,
        "MR700": ["holds images of several directions (a localizer?)"],
    }
    assert {reason for _, reason in left} == {
        "is DICOM without an image (an index, or cut off: it says no modality)",
        "is DICOM without an image (modality CT)",
        "is neither NIfTI nor DICOM",
    }


def test_no_file_of_theirs_ends_in_a_traceback():
    files = [file for file in sorted(FILES.rglob("*")) if file.is_file() and is_dicom(file)]
    read_whole, refused = 0, {}
    for file in files:
        try:
            read_dicom([file])
            read_whole += 1
        except UnreadableError as error:
            refused[file.name] = str(error)

    assert read_whole > 80
    assert "bytes of pixel data is less than expected" in refused["MR_truncated.dcm"]
    assert not {"SC_rgb_jpeg_gdcm.dcm", "JPGExtended.dcm", "JPEG-lossy.dcm"} & set(refused)
    assert "modality RTDOSE" in refused["rtdose.dcm"]
    assert "modality SR" in refused["test-SR.dcm"]


def test_patients_are_told_apart_by_number_and_issuer(tmp_path):
    instances = []
    for number, (patient, issuer) in enumerate((("7", "A"), ("7", "B"), ("7", "A"), ("", ""))):
        data = plain_dicom(np.zeros((4, 4), np.uint8))
        data.PatientID, data.IssuerOfPatientID = patient, issuer
        data.save_as(tmp_path / f"{number}.dcm", enforce_file_format=True)
        instances.append(read_instance(tmp_path / f"{number}.dcm"))

    assert instances[0].patient == instances[2].patient
    assert len({each.patient for each in instances}) == 3
