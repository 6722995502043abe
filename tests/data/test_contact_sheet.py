import numpy as np
from PIL import Image

from polyclinic.data.contact_sheet import GAP, TILE, contact_sheet
from polyclinic.data.pictures import COLOURS
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_labels, write_listing, write_site
from tests.data.volumes import write_nifti


def test_a_sheet_has_a_row_for_each_site_and_shows_contours(tmp_path):
    for name in ("alpha", "beta", "gamma"):
        write_site(tmp_path / "sites" / name, 5)
    write_listing(
        tmp_path / "sites" / "alpha",
        [("00", "a", "train"), ("01", "b", "val")] + [(f"{n:02d}", "c", "test") for n in (2, 3, 4)],
    )
    contact_sheet(tmp_path / "sites", TASKS["fundus"], tmp_path / "out" / "a.png", per_site=4)

    with Image.open(tmp_path / "out" / "a.png") as picture:
        sheet = np.asarray(picture)
    assert sheet.shape[1] == GAP + 4 * (TILE + GAP)
    assert sheet.shape[0] > 3 * TILE
    for colour in COLOURS[:2]:
        assert (sheet == np.array(colour)).all(axis=2).sum() > 1000


def test_sites_with_labels_only_few_cases_or_broken_files_have_a_sheet_too(tmp_path):
    folder = write_site(tmp_path / "alpha", 2)
    write_labels(folder, "point")
    for file in (folder / "masks").iterdir():
        file.unlink()
    (folder / "images" / "00.png").write_text("broken")
    long = folder / "images" / f"{'x' * 90}.png"
    (folder / "images" / "01.png").rename(long)
    (folder / "labels" / "point" / "01.png").rename(folder / "labels" / "point" / long.name)
    (tmp_path / "empty" / "images").mkdir(parents=True)

    contact_sheet(tmp_path, TASKS["fundus"], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as sheet:
        assert sheet.width == GAP + 2 * (TILE + GAP)


def test_labels_of_a_kind_are_tinted_and_cases_without_one_left_out(tmp_path):
    folder = write_site(tmp_path / "alpha", 6)
    write_labels(folder, "block", only=3)

    contact_sheet(tmp_path, TASKS["fundus"], tmp_path / "masks.png")
    contact_sheet(tmp_path, TASKS["fundus"], tmp_path / "labels.png", kind="block")
    sheets = []
    for name in ("masks", "labels"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            sheets.append(np.asarray(picture, dtype=float))
    masks, labels = (sheet[40 : 40 + TILE] for sheet in sheets)
    # Half of the pixels are labelled, and background, which most are, turns blue.
    blue, seen = (sheet[:, GAP : GAP + TILE].mean(axis=(0, 1)) for sheet in (labels, masks))
    assert blue[2] > seen[2] + 20
    assert blue[0] < seen[0] - 20
    assert (labels[:, GAP + 4 * (TILE + GAP) :] == 255).all()


def test_strokes_of_background_are_seen_as_such(tmp_path):
    folder = write_site(tmp_path / "alpha", 2)
    write_labels(folder, "scribble")
    (folder / "site.toml").write_text('labels = "scribble"')
    for file in (folder / "labels" / "scribble").iterdir():
        label = np.full((32, 32), 255, np.uint8)
        label[2:6] = 0
        Image.fromarray(label).save(file)

    contact_sheet(tmp_path, TASKS["fundus"], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        tile = np.asarray(picture, dtype=float)[GAP + 44 :, GAP : GAP + TILE][:TILE]
    stroke, rest = tile[20:34].mean(axis=(0, 1)), tile[60:90].mean(axis=(0, 1))
    assert stroke[2] > rest[2] + 50
    assert stroke[0] < rest[0] - 30


def test_of_volumes_those_slices_are_shown_in_which_something_is_drawn(tmp_path):
    mask = np.zeros((32, 32, 20), np.uint8)
    mask[8:24, 8:24, 11:13] = 1
    mask[14:18, 14:18, 13] = 1
    for part, array in (("images", mask * 100.0), ("masks", mask)):
        write_nifti(tmp_path / "alpha" / part / "a.nii.gz", array)

    contact_sheet(tmp_path, TASKS["prostate"], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        sheet = np.asarray(picture)
    assert sheet.shape[1] == GAP + 6 * (TILE + GAP)
    outlined = (sheet[60:] == np.array(COLOURS[0])).all(axis=2).any(axis=0)
    assert outlined[GAP : GAP + TILE].any()
    assert outlined[GAP + TILE : GAP + 2 * TILE].any()
    assert not outlined[GAP + 2 * (TILE + GAP) :].any()
