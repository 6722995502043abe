import numpy as np
import pytest
from PIL import Image

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data import weakening
from polyclinic.data.errors import DataError
from polyclinic.data.folder import read_site
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.data.weakening import weaken_site
from polyclinic.weak import KINDS
from tests.data.folders import write_labels, write_picture, write_site

FUNDUS = TASKS["fundus"].with_resolution(32)


@pytest.fixture
def folder(tmp_path):
    return write_site(tmp_path / "sites" / "alpha", 10)


def mistakes(folder, kind="scribble", task=FUNDUS):
    with pytest.raises(DataError) as caught:
        weaken_site(folder, kind, task=task)
    return caught.value.mistakes


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_gets_a_label_that_the_site_then_trains_on(folder, kind):
    weaken_site(folder, kind, task=FUNDUS)

    assert {case.labels[kind].stem for case in read_site(folder).cases} == {
        f"{number:02d}" for number in range(10)
    }
    settings = DataSettings(source=str(folder.parent))
    (site,) = load_federation(FUNDUS, settings, [SiteSettings(name="alpha", labels=kind)])
    for number, name in enumerate(site.train.names):
        with Image.open(folder / "labels" / kind / f"{name}.png") as label:
            assert np.array_equal(site.train.labels[number], np.asarray(label))


def test_written_labels_are_those_that_training_would_have_made(folder):
    settings = DataSettings(source=str(folder.parent))
    listed = [SiteSettings(name="alpha", labels="scribble")]
    (made,) = load_federation(FUNDUS, settings, listed)
    weaken_site(folder, "scribble", task=FUNDUS)
    (read,) = load_federation(FUNDUS, settings, listed)

    assert made.train.labels.equal(read.train.labels)


def test_another_seed_draws_otherwise(folder, tmp_path):
    other = write_site(tmp_path / "other" / "alpha", 10)
    weaken_site(folder, "scribble", task=FUNDUS, seed=0)
    weaken_site(other, "scribble", task=FUNDUS, seed=1)

    pictures = [(each / "labels" / "scribble" / "00.png").read_bytes() for each in (folder, other)]
    assert pictures[0] != pictures[1]


def test_each_case_is_told_and_a_contact_sheet_given(folder):
    seen = []
    sheet = weaken_site(folder, "block", task=FUNDUS, on_case=lambda *case: seen.append(case))

    assert seen == [(f"{number:02d}", number + 1, 10) for number in range(10)]
    assert sheet == folder / "labels-block.png"
    with Image.open(sheet) as picture:
        assert picture.width > 1000


def test_the_task_is_the_one_that_the_site_names(folder):
    assert "say for which task" in mistakes(folder, task=None)[0]

    (folder / "site.toml").write_text('task = "fundus"')
    assert weaken_site(folder, "point").is_file()


def test_a_divided_site_has_its_labels_in_each_part(tmp_path):
    folder = write_site(tmp_path / "alpha", 3, part="train")
    write_site(folder, 2, part="test")
    weaken_site(folder, "box", task=FUNDUS)

    assert len(list((folder / "train" / "labels" / "box").iterdir())) == 3
    assert len(list((folder / "test" / "labels" / "box").iterdir())) == 2
    assert read_site(folder).mistakes == ()


def test_a_site_may_be_where_one_stands(folder, monkeypatch):
    monkeypatch.chdir(folder)
    weaken_site(type(folder)(), "box", task=FUNDUS)

    assert len(list((folder / "labels" / "box").iterdir())) == 10


def test_labels_that_are_there_are_never_touched(folder):
    write_labels(folder, "scribble", only=2)
    before = (folder / "labels" / "scribble" / "00.png").read_bytes()

    assert mistakes(folder) == (
        "site alpha: has scribble labels for 00, 01; move them away to have new ones",
    )
    assert (folder / "labels" / "scribble" / "00.png").read_bytes() == before


def test_everything_wrong_is_said_at_once_and_nothing_is_written(folder):
    write_picture(folder / "masks" / "01.png", np.full((32, 32), 7, np.uint8))
    (folder / "images" / "02.png").write_text("broken")

    found = mistakes(folder, "scrible")
    assert 'did you mean "scribble"?' in found[0]
    assert "site alpha, masks/01.png: has the value 7" in found[1]
    assert "site alpha, images/02.png: cannot be read" in found[2]
    assert not (folder / "labels").exists()


def test_no_masks_no_labels(folder):
    write_labels(folder, "point")
    for file in (folder / "masks").iterdir():
        file.unlink()

    assert mistakes(folder) == ("site alpha: has no masks to make labels from",)


def test_a_folder_that_must_not_be_written_to_is_said_to_be_so(folder, monkeypatch):
    monkeypatch.setattr(weakening.os, "access", lambda *_: False)

    assert mistakes(folder) == ("site alpha: its folder must not be written to",)


def test_an_interrupted_site_is_left_as_it_was(folder):
    def interrupt(name, done, count):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weaken_site(folder, "scribble", task=FUNDUS, on_case=interrupt)
    assert sorted(path.name for path in folder.iterdir()) == ["images", "masks"]
