import errno
import shutil

import h5py
import pytest

from polyclinic.config import DataSettings
from polyclinic.data.check import check_folder
from polyclinic.data.errors import DataError
from polyclinic.data.folder import read_site
from polyclinic.data.importing import import_folder
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from tests.data.folders import draw_case, write_labels, write_site

FUNDUS = TASKS["fundus"].with_resolution(32)


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
