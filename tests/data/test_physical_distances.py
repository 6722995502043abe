"""Distances of slices in millimetres are those that SimpleITK measures in the patient's space."""

import numpy as np
import pytest
import SimpleITK

from polyclinic.config import DataSettings
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.evaluation.mask_pair import MaskPair
from polyclinic.evaluation.metrics import assd, hd95
from tests.data.volumes import ORIENTATIONS, proper, reoriented, write_nifti, write_series

SIDE = 24
TASK = TASKS["prostate"].with_resolution(SIDE)
AFFINE = np.diag([-0.4, -0.9, 2.5, 1.0])
AFFINE[:3, 3] = 12, -7, 30
PLANES = {"axial": (2, 1, 0), "coronal": (1, 2, 0), "sagittal": (0, 2, 1)}  # of LPS arrays


def ball(middle, radii):
    places = np.stack(np.mgrid[:SIDE, :SIDE, :SIDE], axis=-1)
    return (np.linalg.norm((places - middle) / radii, axis=-1) < 1).astype(np.uint8)


TRUE = ball((11, 12, 13), (6, 5, 7))
PREDICTED = ball((13, 10, 12), (5, 7, 6))


def theirs(true, predicted):
    """HD95 and ASSD of two SimpleITK images of one slice, by their own maps of distances."""

    def surface(mask):
        # What lies beyond the image counts as outside for both programs.
        padded = SimpleITK.ConstantPad(mask, (1, 1), (1, 1))
        return SimpleITK.LabelContour(padded, fullyConnected=False)

    surfaces = [surface(mask) for mask in (true, predicted)]
    pooled = []
    for here, there in (surfaces, surfaces[::-1]):
        distances = SimpleITK.SignedMaurerDistanceMap(
            there, insideIsPositive=False, squaredDistance=False, useImageSpacing=True
        )
        inside = SimpleITK.GetArrayFromImage(here) > 0
        pooled.append(np.abs(SimpleITK.GetArrayFromImage(distances)[inside]))
    both = np.concatenate(pooled)
    return np.percentile(both, 95), both.mean()


def slices_of(path, plane):
    """The slices of a file along a plane, turned by SimpleITK alone."""
    image = SimpleITK.DICOMOrient(SimpleITK.ReadImage(str(path)), "LPS")
    across = PLANES[plane][0]
    for number in range(image.GetSize()[across]):
        size, start = list(image.GetSize()), [0, 0, 0]
        size[across], start[across] = 0, number
        yield SimpleITK.Extract(image, size, start)


def load(folder, plane):
    (folder / "site.toml").write_text(f'axis = "{plane}"')
    settings = DataSettings(source=str(folder), split=(0.4, 0.0, 0.6))
    (site,) = load_federation(TASK, settings)
    return {
        name: (cases.masks[n].numpy(), cases.spacing[n].numpy())
        for cases in (site.train, site.test)
        for n, name in enumerate(cases.names)
    }


@pytest.mark.parametrize("plane", PLANES)
def test_distances_of_a_nifti_site_are_those_in_physical_space(tmp_path, plane):
    for number, orientation in enumerate(filter(proper, ORIENTATIONS)):
        compare(tmp_path / str(number), plane, orientation)


def compare(folder, plane, orientation):
    for name, mask in (("a", TRUE), ("b", PREDICTED)):
        stored, affine = reoriented(mask, AFFINE, orientation)
        noise = np.random.default_rng(1).integers(0, 99, stored.shape).astype(np.int16)
        write_nifti(folder / "images" / f"{name}.nii", noise, affine)
        write_nifti(folder / "masks" / f"{name}.nii", stored, affine)
    cases = load(folder, plane)
    pairs = zip(
        slices_of(folder / "masks" / "a.nii", plane),
        slices_of(folder / "masks" / "b.nii", plane),
        strict=True,
    )
    compared = 0
    for slice_, (one, other) in enumerate(pairs):
        (true, spacing), (predicted, _) = (cases[f"{name}-{slice_:03d}"] for name in "ab")
        if slice_ % 3 or not (true.any() and predicted.any()):
            continue
        pair = MaskPair(predicted, true, spacing)
        assert np.allclose((hd95(pair), assd(pair)), theirs(one, other), atol=1e-4)
        compared += 1
    assert compared >= 3


def test_distances_of_a_dicom_series_are_those_in_physical_space(tmp_path):
    images = tmp_path / "north" / "images"
    affine = np.diag([-0.4, -0.9, 2.5, 1.0])
    for name, mask in (("a", TRUE), ("b", PREDICTED)):
        frames = mask.transpose(2, 1, 0).astype(np.int16)
        files = write_series(images / name, frames, spacing=(0.9, 0.4), step=2.5, patient=name)
        write_nifti(tmp_path / "north" / "masks" / f"{name}.nii", mask, affine)
    cases = load(tmp_path / "north", "axial")
    theirs_read = SimpleITK.ReadImage([str(file) for file in files])
    volumes = sorted({name.rpartition("-")[0] for name in cases})
    areas = {name: sum(cases[f"{name}-{n:03d}"][0].sum() for n in range(SIDE)) for name in volumes}
    first, second = (
        next(name for name in volumes if areas[name] == mask.sum()) for mask in (TRUE, PREDICTED)
    )

    assert np.allclose(theirs_read.GetSpacing(), (0.4, 0.9, 2.5))
    for slice_ in (9, 12, 15):
        (true, spacing), (predicted, _) = (
            cases[f"{name}-{slice_:03d}"] for name in (first, second)
        )
        flat = [SimpleITK.GetImageFromArray(mask) for mask in (true, predicted)]
        for image in flat:
            image.SetSpacing(theirs_read.GetSpacing()[:2])
        pair = MaskPair(predicted, true, spacing)
        assert np.allclose((hd95(pair), assd(pair)), theirs(*flat), atol=1e-4)
