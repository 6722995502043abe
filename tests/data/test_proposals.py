import tomllib
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from polyclinic.data.check import check_folder
from polyclinic.data.errors import DataError
from polyclinic.data.proposals import proposal
from polyclinic.data.tasks import TASKS
from polyclinic.data.weakening import weaken_site
from tests.data.folders import write_picture, write_site

FUNDUS, OCTA = TASKS["fundus"], TASKS["octa"]


def lines(kind, task, **seen):
    """What is proposed to be written, as the tables that TOML makes of it."""
    codes = Counter({code.removeprefix("_").replace("x", "#"): n for code, n in seen.items()})
    text = proposal(kind, codes, task)
    return [tomllib.loads(line) for line in text.splitlines()[1:] if "=" in line]


def test_black_and_white_are_background_and_the_only_class():
    assert lines("mask", OCTA, _0=10, _255=90) == [{"values": {"0": "background", "255": "faz"}}]


def test_as_many_values_as_classes_are_the_classes_by_their_size():
    values = {"0": "cup", "128": "rim", "255": "background"}

    assert lines("mask", FUNDUS, _255=900, _128=80, _0=20) == [{"values": values}]


def test_black_and_white_are_one_of_the_regions_where_there_are_several():
    assert lines("mask", FUNDUS, _0=900, _255=100) == [
        {"values": {"0": "background", "255": ["rim", "cup"]}},
        {"values": {"0": ["background", "rim"], "255": "cup"}},
    ]


def test_colours_are_proposed_too():
    colours = {"#000000": "background", "#ff0000": "rim", "#0000ff": "cup"}

    assert lines("mask", FUNDUS, x000000=900, xff0000=80, x0000ff=20) == [{"colours": colours}]


def test_soft_edges_of_strokes_are_no_proposal():
    seen = {"xff0000": 500, "x00ff00": 400, "x0000ff": 300, "xfe0000": 3, "x010203": 2}

    (line,) = lines("scribble", FUNDUS, **seen)
    assert line["weak"]["colours"] == {"#ff0000": "background", "#00ff00": "rim", "#0000ff": "cup"}


def test_soft_edges_on_transparency_are_no_colour_to_be_named():
    seen = {"transparent": 9000, "half transparent": 800, "x00ff00": 90, "xff0000": 9, "x0000ff": 8}

    (line,) = lines("scribble", FUNDUS, **seen)
    names = {"#00ff00": "background", "#ff0000": "rim", "#0000ff": "cup"}
    assert line["weak"]["colours"] == {**names, "transparent": "unlabelled"}
    assert "smoothed" in proposal("mask", Counter(seen), FUNDUS)


def test_what_is_255_in_labels_stays_unlabelled():
    (line,) = lines("scribble", OCTA, _255=900, _7=50, _9=20)

    assert line["weak"]["values"] == {"7": "background", "9": "faz", "255": "unlabelled"}


def test_many_values_come_from_smoothing():
    text = proposal("mask", Counter({str(value): 1 for value in range(40)}), OCTA)

    assert "saved as JPEG" in text
    assert "values =" not in text


@pytest.fixture
def site(tmp_path):
    """A site whose masks show the disc as 255."""
    folder = write_site(tmp_path / "alpha", 6)
    for file in (folder / "masks").iterdir():
        write_picture(file, np.where(np.asarray(Image.open(file)) > 0, 255, 0).astype(np.uint8))
    return folder


def test_the_check_says_once_what_is_wrong_and_what_to_write(site):
    found = check_folder(site, FUNDUS)

    assert len(found.mistakes) == 2
    assert found.mistakes[0].startswith("site alpha, masks/00.png and 5 more: has the value 255")
    assert 'values = { 0 = "background", 255 = ["rim", "cup"] }' in found.mistakes[1]
    assert "docs/data.md" in found.mistakes[1]
    assert found.warnings == ()


def test_with_the_proposed_line_the_check_has_nothing_to_say(site):
    text = check_folder(site, FUNDUS).mistakes[1]
    (site / "site.toml").write_text(text.splitlines()[1])

    found = check_folder(site, FUNDUS)
    assert (found.mistakes, found.warnings) == ((), ())
    assert [*found.sites[0].shares] == ["background", "rim or cup"]


def test_a_stray_value_in_one_file_is_no_other_way_to_write_classes(tmp_path):
    write_site(tmp_path / "alpha", 6)
    write_picture(tmp_path / "alpha" / "masks" / "01.png", np.full((32, 32), 5, np.uint8))

    assert len(check_folder(tmp_path / "alpha", FUNDUS).mistakes) == 1


def test_labels_made_from_such_masks_are_read_again_as_class_numbers(site):
    with pytest.raises(DataError, match="such as"):
        weaken_site(site, "scribble", task=FUNDUS)
    (site / "site.toml").write_text('values = { 0 = "background", 255 = "disc" }')
    weaken_site(site, "scribble", task=FUNDUS)

    label = np.asarray(Image.open(site / "labels" / "scribble" / "00.png"))
    assert set(np.unique(label)) == {0, 1, 255}
    assert check_folder(site, FUNDUS).mistakes == ()


def test_a_scribble_whose_undrawn_pixels_are_0_is_a_warning(tmp_path):
    folder = write_site(tmp_path / "alpha", 4)
    for number in range(4):
        label = np.zeros((32, 32), np.uint8)
        label[14:18, 10:20] = 1
        for kind in ("scribble", "box"):  # a box does label every pixel
            write_picture(folder / "labels" / kind / f"{number:02d}.png", label)

    (warning,) = check_folder(folder, FUNDUS).warnings
    assert warning.startswith("site alpha, labels/scribble/00.png and 3 more: labels every pixel")
    (folder / "site.toml").write_text('weak.values = { 0 = "unlabelled", 1 = "rim" }')
    assert check_folder(folder, FUNDUS).warnings == ()


def test_thin_strokes_on_a_large_transparent_layer_are_proposed_too():
    seen = Counter({"transparent": 100_000, "#ff0000": 60, "#0000ff": 40, "#ff0001": 1})
    told = proposal("scribble", seen, TASKS["fundus"])
    assert '"#ff0000" = "rim", "#0000ff"' in told or '"#0000ff" = "cup", "#ff0000"' in told
    assert 'transparent = "unlabelled"' in told
    assert "#ff0001" not in told
