import json

import nibabel
import numpy as np
import pytest
import SimpleITK
from PIL import Image

from polyclinic.data.errors import DataError
from polyclinic.data.exporting import export_nnunet
from polyclinic.data.folder import read_site
from polyclinic.data.formats.store import read_slice
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_listing, write_picture, write_site
from tests.data.volumes import draw_volume, write_series, write_volume_site

FUNDUS, PROSTATE = TASKS["fundus"], TASKS["prostate"]


def test_volumes_come_back_as_the_same_slices(tmp_path):
    folder = write_volume_site(tmp_path / "north")
    write_listing(folder, [(f"v{n}", f"v{n}", "test" if n == 3 else "train") for n in range(4)])
    (folder / "site.toml").write_text('modality = "MR"')
    counts, left = export_nnunet(folder, tmp_path / "Dataset001_North", PROSTATE)
    again = read_site(tmp_path / "Dataset001_North")

    assert (counts, left) == ({"Tr": 3, "Ts": 1}, [])
    assert again.mistakes == ()
    assert {case.volume for case in again.cases if case.split == "test"} == {"v3"}
    for before, after in zip(read_site(folder).cases, again.cases, strict=True):
        assert before.name == after.name
        assert before.spacing == after.spacing
        for one, other in ((before.image, after.image), (before.mask, after.mask)):
            assert np.array_equal(read_slice(before.slices[one]), read_slice(after.slices[other]))


def test_what_is_written_is_what_nnunet_reads(tmp_path):
    export_nnunet(write_volume_site(tmp_path / "north"), tmp_path / "out", PROSTATE)
    about = json.loads((tmp_path / "out" / "dataset.json").read_text())
    # nnU-Net reads with SimpleITK, and wants images and labels of the same geometry.
    image = SimpleITK.ReadImage(str(tmp_path / "out" / "imagesTr" / "v1_0000.nii.gz"))
    label = SimpleITK.ReadImage(str(tmp_path / "out" / "labelsTr" / "v1.nii.gz"))

    assert about["labels"] == {"background": 0, "prostate": 1}
    assert (about["numTraining"], about["file_ending"]) == (4, ".nii.gz")
    assert about["channel_names"] == {"0": "zscore"}
    assert np.allclose(image.GetSpacing(), (0.5, 0.75, 3))
    assert image.GetOrigin() == label.GetOrigin()
    assert image.GetDirection() == label.GetDirection()
    assert np.array_equal(SimpleITK.GetArrayFromImage(label), draw_volume(1)[1])


def test_pictures_stay_pictures(tmp_path):
    folder = write_site(tmp_path / "north", 3)
    export_nnunet(folder, tmp_path / "out", FUNDUS)

    for name in ("00", "01", "02"):
        for ours, theirs in ((f"imagesTr/{name}_0000", "images"), (f"labelsTr/{name}", "masks")):
            written = np.asarray(Image.open(tmp_path / "out" / f"{ours}.png"))
            assert np.array_equal(written, np.asarray(Image.open(folder / theirs / f"{name}.png")))
    assert len(read_site(tmp_path / "out").cases) == 3


def test_deep_pictures_become_volumes_of_one_slice(tmp_path):
    folder = tmp_path / "north"
    image, mask = draw_volume(1, slices=1)
    write_picture(folder / "images" / "a.png", image[0].astype(np.uint16))
    write_picture(folder / "masks" / "a.png", mask[0])
    export_nnunet(folder, tmp_path / "out", PROSTATE)

    written = nibabel.load(tmp_path / "out" / "imagesTr" / "a_0000.nii.gz")
    assert np.array_equal(np.asarray(written.dataobj)[:, :, 0].T, image[0])


def test_cases_without_a_mask_are_left_out_and_named(tmp_path):
    folder = write_volume_site(tmp_path / "north", volumes=2)
    write_series(folder / "images" / "bare", draw_volume(5)[0])
    write_picture(folder / "labels" / "point" / "v0-000.png", np.zeros((32, 32), np.uint8))
    (folder / "masks" / "v0.nii.gz").unlink()

    with pytest.raises(DataError, match="images/bare: has no mask and no label"):
        export_nnunet(folder, tmp_path / "out", PROSTATE)
    for file in (folder / "images" / "bare").iterdir():
        file.unlink()
    for number in (1, 2):
        write_picture(folder / f"labels/point/v0-00{number}.png", np.zeros((32, 32), np.uint8))
    counts, left = export_nnunet(folder, tmp_path / "out", PROSTATE)
    assert counts == {"Tr": 1, "Ts": 0}
    assert left == [
        "site north, images/v0.nii.gz: has no mask for every slice; nnU-Net trains on whole masks"
    ]


def test_nothing_is_overwritten_and_nothing_left_half_done(tmp_path):
    folder = write_site(tmp_path / "north", 3)
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="is there already"):
        export_nnunet(folder, tmp_path / "out", FUNDUS)
    write_picture(folder / "masks" / "02.png", np.full((32, 32), 9, np.uint8))
    with pytest.raises(DataError, match=r"masks/02.png: has the value 9"):
        export_nnunet(folder, tmp_path / "new", FUNDUS)
    with pytest.raises(DataError, match="lies within the site's folder"):
        export_nnunet(folder, folder / "new", FUNDUS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north", "out"]
