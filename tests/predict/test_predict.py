"""What comes out of `polyclinic predict` lies where its image lies, whatever the file was."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image
from pydicom.uid import OphthalmicPhotography8BitImageStorage
from typer.testing import CliRunner

import polyclinic
from polyclinic.cli import app
from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.reading import files_below, stacks_of
from polyclinic.data.formats.segmentation import read_segmentation
from polyclinic.predict import load
from polyclinic.predict.folder import Options, predict_all
from polyclinic.predict.inputs import inputs_in
from tests.data.volumes import (
    ORIENTATIONS,
    plain_dicom,
    reoriented,
    write_nifti,
    write_series,
)
from tests.predict.hand_made import disc, hand_made, written

BIG = 4000  # brightness of volumes


@pytest.fixture
def model(tmp_path):
    return load(written(tmp_path), threads=1)


def predicted(model, source, to, **options):
    found, left = inputs_in([source])
    return predict_all(model, found, to, Options(**options)), left


def table(folder):
    """The rows of the table of a folder of predictions."""
    return list(csv.DictReader((folder / "cases.csv").read_text().splitlines()))


def bright(image):
    """Where the ellipse of `disc` is."""
    return image > image.max() / 2


def overlap(mask, expected) -> float:
    return 2 * np.sum((mask == 1) & expected) / (np.sum(mask == 1) + np.sum(expected))


def dice_of(mask, image) -> float:
    assert mask.shape == image.shape
    return overlap(mask, bright(image))


@pytest.mark.parametrize(
    ("name", "size", "levels", "dtype"),
    [
        ("a.png", (60, 90), 255, np.uint8),
        ("a.jpg", (60, 90), 255, np.uint8),
        ("a.tiff", (41, 53), 60000, np.uint16),
        ("a.npy", (41, 53), 3.0, np.float32),
    ],
)
def test_a_picture_gets_a_png_of_its_own_size(model, tmp_path, name, size, levels, dtype):
    image = disc(size, levels=levels, dtype=dtype)
    (tmp_path / "in").mkdir()
    if name.endswith("npy"):
        np.save(tmp_path / "in" / name, image)
    else:
        Image.fromarray(image).save(tmp_path / "in" / name)
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out")
    assert not outcome.failed
    mask = np.asarray(Image.open(tmp_path / "out" / "masks" / "a.png"))
    assert mask.dtype == np.uint8
    assert dice_of(mask, image) > 0.9
    assert (tmp_path / "out" / "overlays" / "a.png").exists()


def test_transparency_colours_and_single_pixels_are_no_trouble(model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    grey = disc((40, 50))
    Image.fromarray(np.stack([grey] * 3 + [grey * 0 + 90], axis=2)).save(folder / "rgba.png")
    Image.fromarray(np.full((1, 1), 7, np.uint8)).save(folder / "single.png")
    outcome, _ = predicted(model, folder, tmp_path / "out")
    assert (outcome.done, outcome.failed) == (2, ())
    mask = np.asarray(Image.open(tmp_path / "out" / "masks" / "rgba.png"))
    assert dice_of(mask, grey) > 0.9
    assert np.asarray(Image.open(tmp_path / "out" / "masks" / "single.png")).shape == (1, 1)


@pytest.mark.parametrize("axis", ["acquired", "axial", "coronal", "sagittal"])
def test_nifti_comes_back_with_its_shape_and_affine(model, tmp_path, axis):
    volume = np.stack([disc((30, 26), levels=BIG, dtype=np.int16)] * 12, axis=2)
    affine = np.array([[0, -0.7, 0, 4], [0.5, 0, 0, -9], [0, 0, 2.5, 1], [0, 0, 0, 1.0]])
    write_nifti(tmp_path / "in" / "v.nii.gz", volume, affine)
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out", axis=axis)
    assert not outcome.failed
    mask = nibabel.load(tmp_path / "out" / "masks" / "v.nii.gz")
    assert mask.shape == volume.shape
    assert np.allclose(mask.affine, affine)
    found = np.asarray(mask.dataobj)
    if axis in ("acquired", "axial"):  # in other planes the ellipse is a bar, of any brightness
        assert dice_of(found, volume) > 0.9
        rows = table(tmp_path / "out")
        voxel = 0.7 * 0.5 * 2.5
        assert float(rows[0]["volume_mm3"]) == pytest.approx(np.sum(found == 1) * voxel, rel=1e-5)


def test_nifti_is_cut_alike_in_whatever_order_it_is_stored(model, tmp_path):
    volume = np.random.default_rng(0).normal(size=(20, 24, 5)).astype(np.float32)
    masks = model.predict(write_nifti(tmp_path / "a.nii", volume))
    for number in (13, 29, 41):
        turned, affine = reoriented(volume, np.eye(4), ORIENTATIONS[number])
        there, _ = reoriented(masks, np.eye(4), ORIENTATIONS[number])
        assert (model.predict(write_nifti(tmp_path / "b.nii", turned, affine)) == there).all()


def test_a_flat_nifti_stays_flat(model, tmp_path):
    image = disc((30, 26), levels=BIG, dtype=np.int16)
    write_nifti(tmp_path / "in" / "flat.nii", image)
    predicted(model, tmp_path / "in", tmp_path / "out")
    mask = nibabel.load(tmp_path / "out" / "masks" / "flat.nii.gz")
    assert dice_of(np.asarray(mask.dataobj), image) > 0.9


def test_a_series_gets_one_segmentation_that_names_its_slices(model, tmp_path):
    sizes = [0.3, 0.6, 0.9, 0.0]
    shape = (32, 24)
    rows, columns = (np.linspace(-1, 1, side) for side in shape)
    away = np.hypot(rows[:, None], columns)
    frames = [(np.where(away < size, BIG, 100) + np.arange(24)).astype(np.uint16) for size in sizes]
    write_series(tmp_path / "in" / "scan", frames, spacing=(0.5, 0.8), FrameOfReferenceUID="1.2.3")
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out")
    assert (outcome.done, outcome.failed) == (1, ())
    (file,) = (tmp_path / "out" / "masks").rglob("*.dcm")
    (stack,), _ = stacks_of(files_below(tmp_path / "in"))
    volume = stack.read()
    masks = read_segmentation(file, volume, stack.instances)
    expected = volume.voxels[:, 0] > BIG / 2
    assert masks.shape == expected.shape
    assert overlap(masks[:3], expected[:3]) > 0.9


def test_dicom_without_a_place_gets_a_segmentation_too(model, tmp_path):
    image = disc((30, 26), levels=BIG, dtype=np.uint16)
    (tmp_path / "in").mkdir()
    plain_dicom(image).save_as(tmp_path / "in" / "one.dcm", enforce_file_format=True)
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out")
    assert not outcome.failed
    (stack,), _ = stacks_of(files_below(tmp_path / "in"))
    found = tmp_path / "out" / "masks" / "one.dcm"
    mask = read_segmentation(found, stack.read(), stack.instances)
    assert dice_of(mask[0], image) > 0.9


def test_a_photograph_of_the_eye_gets_a_secondary_capture_that_names_it(model, tmp_path):
    import pydicom

    image = disc((30, 26))
    photograph = plain_dicom(image, modality="OP")
    photograph.SOPClassUID = OphthalmicPhotography8BitImageStorage
    photograph.file_meta.MediaStorageSOPClassUID = OphthalmicPhotography8BitImageStorage
    photograph.PixelSpacing = [0.01, 0.01]
    (tmp_path / "in").mkdir()
    photograph.save_as(tmp_path / "in" / "eye.dcm", enforce_file_format=True)
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out")
    assert not outcome.failed
    found = pydicom.dcmread(tmp_path / "out" / "masks" / "eye.dcm")
    assert found.SOPClassUID.name == "Secondary Capture Image Storage"
    assert found.SourceImageSequence[0].ReferencedSOPInstanceUID == photograph.SOPInstanceUID
    assert found.StudyInstanceUID == photograph.StudyInstanceUID
    assert dice_of(found.pixel_array, image) > 0.9


def test_one_bad_file_stops_nothing_and_is_named(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    Image.fromarray(disc((40, 50))).save(folder / "good.png")
    whole = tmp_path / "whole.dcm"
    plain_dicom(disc((64, 64), levels=BIG, dtype=np.uint16)).save_as(whole)
    (folder / "torn.dcm").write_bytes(whole.read_bytes()[:3000])
    (folder / "empty.png").write_bytes(b"")
    (folder / "notes.txt").write_text("hello")
    done = CliRunner().invoke(
        app, ["predict", str(written(tmp_path)), str(folder), "--to", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    assert "1 cases predicted" in done.stdout
    assert "torn.dcm" in done.stderr
    assert "empty.png" in done.stderr
    assert "left out" in done.stderr
    assert "empty.png" in (tmp_path / "out" / "index.html").read_text()


def test_a_folder_without_images_is_said(tmp_path):
    (tmp_path / "in").mkdir()
    done = CliRunner().invoke(
        app, ["predict", str(written(tmp_path)), str(tmp_path / "in"), "--to", str(tmp_path / "o")]
    )
    assert isinstance(done.exception, ValueError)
    assert "there are no images in" in str(done.exception)


def test_a_stopped_command_continues_and_sees_changed_files(model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        Image.fromarray(disc((40, 50))).save(folder / f"{name}.png")
    found, _ = inputs_in([folder])
    to = tmp_path / "out"

    class Stopped(Exception):
        pass

    def stop(name):
        if name == "b":
            raise Stopped

    with pytest.raises(Stopped):
        predict_all(model, found, to, Options(), on_case=stop)
    first = (to / "masks" / "a.png").stat().st_mtime_ns
    outcome = predict_all(model, found, to, Options())
    assert (outcome.done, outcome.before) == (1, 2)
    assert (to / "masks" / "a.png").stat().st_mtime_ns == first
    os.utime(folder / "a.png", ns=(time.time_ns(), time.time_ns()))
    outcome = predict_all(model, found, to, Options())
    assert (outcome.done, outcome.before) == (1, 2)
    rows = table(to)
    assert [row["case"] for row in rows] == ["a", "b", "c"]


def test_another_models_predictions_are_not_mixed_in(model, tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(disc((40, 50))).save(tmp_path / "in" / "a.png")
    predicted(model, tmp_path / "in", tmp_path / "out")
    hand_made(title="another").write(tmp_path / "other.polyclinic")
    other = load(tmp_path / "other.polyclinic", threads=1)
    with pytest.raises(ValueError, match="predictions of another model"):
        predicted(other, tmp_path / "in", tmp_path / "out")


def test_equal_names_get_masks_of_their_own(model, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.png", "a.jpg"):
        Image.fromarray(disc((40, 50))).save(tmp_path / "in" / name)
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out")
    assert outcome.done == 2
    masks = sorted(path.name for path in (tmp_path / "out" / "masks").iterdir())
    assert masks == ["a-jpg.png", "a-png.png"]


def test_areas_are_in_millimetres_where_the_spacing_is_known(model, tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(disc((40, 50))).save(tmp_path / "in" / "a.png")
    predicted(model, tmp_path / "in", tmp_path / "out", spacing=(0.5, 2.0))
    (row,) = table(tmp_path / "out")
    assert float(row["area_mm2"]) == float(row["pixels"]) * 1.0


def test_python_takes_paths_pictures_and_arrays_alike(model, tmp_path):
    image = disc((40, 50))
    Image.fromarray(image).save(tmp_path / "a.png")
    expected = model.predict(tmp_path / "a.png")
    assert (model.predict(Image.open(tmp_path / "a.png")) == expected).all()
    assert (model.predict(image) == expected).all()
    assert (model.predict(image[None]) == expected).all()
    assert (model.predict(np.stack([image] * 3, axis=2)) == expected).all()
    palette = Image.fromarray(image).quantize(256)  # numbers of colours, not colours
    assert (np.asarray(palette) != image).any()
    assert (model.predict(palette) == expected).all()
    with pytest.raises(UnreadableError, match="is of no known type"):
        model.predict(written(tmp_path))


def test_the_page_needs_nothing_beside_itself(model, tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(disc((40, 50))).save(tmp_path / "in" / "<i>&.png")
    outcome, _ = predicted(model, tmp_path / "in", tmp_path / "out")
    page = outcome.page.read_text()
    assert "&lt;i&gt;&amp;" in page
    assert "<i>&" not in page
    assert "data:image/jpeg;base64," in page
    assert 'src="http' not in page


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "scipy", "numba", "h5py", "matplotlib", "onnx"}:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, NoTorch())
from polyclinic.cli import main
main()
"""


def test_predicting_needs_neither_torch_nor_anything_else_of_training(tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(disc((40, 50))).save(tmp_path / "in" / "a.png")
    write_nifti(tmp_path / "in" / "v.nii.gz", np.ones((8, 8, 2), np.int16))
    model = written(tmp_path)
    words = ["predict", model, tmp_path / "in", "--to", tmp_path / "out", "--threads", "1"]
    source = Path(polyclinic.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert done.returncode == 0, done.stderr
    assert "2 cases predicted" in done.stdout
    lines = (tmp_path / "out" / "cases.jsonl").read_text().splitlines()
    assert [json.loads(line).get("case") for line in lines] == [None, "a", "v"]
