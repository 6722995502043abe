import numpy as np
import pytest

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.box_files import read_boxed_label, read_boxes
from polyclinic.data.errors import DataError, UnreadableError
from polyclinic.data.folder import read_site
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.weak import Box
from tests.data.folders import write_site

FUNDUS = TASKS["fundus"].with_resolution(32)
HEADER = "class,left,top,width,height"


@pytest.fixture
def write(tmp_path):
    def write(*rows, header=HEADER):
        path = tmp_path / "boxes.csv"
        path.write_text("\n".join((header, *rows)))
        return path

    return write


def refusal(path, size=(20, 40)):
    with pytest.raises(UnreadableError) as caught:
        read_boxes(path, size, FUNDUS)
    return str(caught.value)


def test_boxes_are_read_by_name_and_number(write):
    path = write("rim, 4, 2, 10, 6", "2,6,4,2,2")

    assert read_boxes(path, (20, 40), FUNDUS) == [
        Box(1, row=4.5, column=8.5, height=6, width=10),
        Box(2, row=4.5, column=6.5, height=2, width=2),
    ]


def test_a_box_covers_just_its_pixels(write):
    label = read_boxed_label(write("rim,4,2,10,6", "cup,6,4,2,2"), "box", (20, 40), FUNDUS)

    expected = np.zeros((20, 40), np.uint8)
    expected[2:8, 4:14] = 1
    expected[4:6, 6:8] = 2
    assert np.array_equal(label, expected)


def test_a_turned_box_may_reach_over_the_border(write):
    path = write("rim,0,0,10,6,30", header=f"{HEADER},angle")

    assert read_boxes(path, (20, 40), FUNDUS)[0].angle == 30


def test_a_file_without_rows_shows_background_only(write):
    label = read_boxed_label(write(), "box-block", (20, 40), FUNDUS)

    assert (label == 0).all()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("rim,36,2,10,6", "box 1 lies outside of the image, which is 20×40"),
        ("rim,4,-3,10,6", "box 1 lies outside of the image"),
        ("rim,4,2,0,6", "box 1 has no area: 0×6"),
        ("rim,4,x,10,6", 'box 1 has "x" as top, which is no number'),
        ("rim,4,nan,10,6", 'box 1 has "nan" as top'),
        ("rim,4,2", 'box 1 has "" as width'),
        ("cupp,4,2,10,6", 'has class "cupp", not rim (1), cup (2); did you mean "cup"?'),
        ("background,4,2,10,6", 'has class "background"'),
        ("3,4,2,10,6", 'has class "3"'),
    ],
)
def test_wrong_boxes_are_refused(write, row, reason):
    assert reason in refusal(write(row))


def test_all_wrong_boxes_of_a_file_are_named(write):
    found = refusal(write("rim,4,2,10,6", "rim,99,2,10,6", "x,4,2,10,6"))

    assert "box 2 lies" in found
    assert "box 3 has class" in found
    assert "box 1 " not in found


def test_a_turned_box_with_its_middle_outside_is_refused(write):
    assert "lies outside" in refusal(write("rim,38,2,10,6,30", header=f"{HEADER},angle"))


def test_other_columns_are_refused(write):
    assert "found class, x" in refusal(write("1,2", header="class,x"))


def test_a_site_trains_on_its_boxes_and_on_what_they_make(tmp_path):
    folder = write_site(tmp_path / "alpha", 5)
    for kind in ("box", "box-block"):
        (folder / "labels" / kind).mkdir(parents=True)
        for number in range(5):
            boxes = f"{HEADER}\nrim,8,8,16,16\ncup,12,12,8,8\n"
            (folder / "labels" / kind / f"{number:02d}.csv").write_text(boxes)

    assert read_site(folder).kinds == ("mask", "box", "box-block")
    settings = DataSettings(source=str(tmp_path))
    for kind, unlabelled in (("box", False), ("box-block", True)):
        (site,) = load_federation(FUNDUS, settings, [SiteSettings(name="alpha", labels=kind)])
        assert (site.train.labels == 255).any() == unlabelled
        assert {0, 1, 2} <= set(site.train.labels.unique().tolist())


def test_a_wrong_box_is_refused_before_training_with_site_and_file(tmp_path):
    folder = write_site(tmp_path / "alpha", 5)
    (folder / "labels" / "box").mkdir(parents=True)
    for number in range(5):
        far = f"{HEADER}\nrim,{30 * number},8,2,2\n"
        (folder / "labels" / "box" / f"{number:02d}.csv").write_text(far)
    (folder / "images" / "02.png").write_text("broken")

    with pytest.raises(DataError) as caught:
        load_federation(
            FUNDUS,
            DataSettings(source=str(tmp_path)),
            [SiteSettings(name="alpha", labels="box")],
        )
    lines = caught.value.mistakes
    assert "site alpha, labels/box/03.csv: box 1 lies outside of the image, which is 32×32" in lines
    assert any("images/02.png" in line for line in lines)
    assert not any("labels/box/02.csv" in line for line in lines)


def test_boxes_are_no_scribbles(tmp_path):
    folder = write_site(tmp_path / "alpha", 2)
    (folder / "labels" / "scribble").mkdir(parents=True)
    (folder / "labels" / "scribble" / "00.csv").write_text(HEADER)

    assert "labels/scribble/00.csv: is of no known type" in read_site(folder).mistakes[0]
