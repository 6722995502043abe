import tomllib

import numpy as np
import pytest
from PIL import Image

from polyclinic.data.coded_masks import decode
from polyclinic.data.coding import coding_of
from polyclinic.data.errors import UnreadableError
from polyclinic.data.site_files import SiteToml, read_site_toml
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_picture

FUNDUS, OCTA = TASKS["fundus"], TASKS["octa"]
MASK = np.array([[0, 0, 1], [1, 2, 2]], dtype=np.uint8)
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def said(tmp_path, text):
    (tmp_path / "site.toml").write_text(text)
    toml, errors = read_site_toml(tmp_path / "site.toml")
    assert errors == []
    return toml


def coding(tmp_path, text, task=FUNDUS):
    found, errors = coding_of(said(tmp_path, text), task)
    assert errors == []
    return found


def complaints(tmp_path, text, task=FUNDUS):
    return coding_of(said(tmp_path, text), task)[1]


def read(tmp_path, pixels, text="", *, label=False, task=FUNDUS, image=None):
    found = coding(tmp_path, text, task)
    path = write_picture(tmp_path / "a.png", pixels)
    how = found.labels if label else found.masks
    return decode(path, ("mask",), how, label=label, image=image)


def test_without_a_word_files_hold_class_numbers(tmp_path):
    found, errors = coding_of(SiteToml(), FUNDUS)

    assert errors == []
    assert found.masks.values == {0: 0, 1: 1, 2: 2, 255: 255}
    assert (found.masks.groups, found.labels.groups) == ((), ())
    assert np.array_equal(read(tmp_path, MASK).mask, MASK)


def test_values_are_read_by_their_names(tmp_path):
    text = 'values = { 255 = "background", 128 = "rim", 0 = "cup" }'

    found = read(tmp_path, np.array([255, 128, 0], np.uint8)[MASK], text)
    assert np.array_equal(found.mask, MASK)
    assert found.problem == ""


def test_values_of_16_bits_are_read(tmp_path):
    np.save(tmp_path / "a.npy", np.array([0, 500, 1000], np.uint16)[MASK])
    how = coding(tmp_path, 'values = { 0 = "background", 500 = "rim", 1000 = "cup" }').masks

    assert np.array_equal(decode(tmp_path / "a.npy", (), how, label=False).mask, MASK)


def test_a_value_without_a_name_is_told_with_those_that_have_one(tmp_path):
    text = 'values = { 0 = "background", 255 = "faz" }'

    found = read(tmp_path, np.array([[0, 255, 7]], np.uint8), text, task=OCTA)
    assert found.problem == "has the value 7; a mask has 0 background, 255 faz"
    assert found.seen == {"0": 1, "255": 1, "7": 1}


def test_colours_are_read_by_their_names(tmp_path):
    text = 'colours = { "#000000" = "background", "#FF0000" = "rim", "#0000ff" = "cup" }'
    colours = np.array([(0, 0, 0), RED, BLUE], np.uint8)[MASK]

    assert np.array_equal(read(tmp_path, colours, text).mask, MASK)
    colours[0, 0] = (254, 0, 0)
    assert read(tmp_path, colours, text).problem == (
        "has the colour #fe0000; a mask has #000000, #ff0000, #0000ff"
    )


def test_a_palette_gives_its_colours_where_colours_have_names(tmp_path):
    text = 'colours = { "#000000" = "background", "#ff0000" = "rim", "#0000ff" = "cup" }'
    picture = Image.fromarray(np.array([3, 4, 5], np.uint8)[MASK]).convert("P")
    picture.putpalette([9] * 9 + [0, 0, 0, *RED, *BLUE])
    picture.save(tmp_path / "a.png")

    how = coding(tmp_path, text).masks
    assert np.array_equal(decode(tmp_path / "a.png", (), how, label=False).mask, MASK)


def test_transparent_pixels_can_have_a_name(tmp_path):
    text = 'colours = { transparent = "background", "#ff0000" = "rim", "#0000ff" = "cup" }'
    pixels = np.array([(9, 9, 9, 0), (*RED, 255), (*BLUE, 255)], np.uint8)[MASK]

    assert np.array_equal(read(tmp_path, pixels, text).mask, MASK)
    pixels[0, 0, 3] = 100
    assert "the colour half transparent" in read(tmp_path, pixels, text).problem


def test_strokes_on_the_image_label_only_their_exact_colours(tmp_path):
    text = 'weak.colours = { "#ff0000" = "rim", "#0000ff" = "background" }'
    pixels = np.random.default_rng(0).integers(1, 250, (4, 6, 3), dtype=np.uint8)
    pixels[0, :3], pixels[2, 1:3], pixels[3, 0] = RED, BLUE, (200, 0, 0)

    found = read(tmp_path, pixels, text, label=True)
    assert found.problem == ""
    assert (found.mask[0, :3] == 1).all()
    assert (found.mask[2, 1:3] == 0).all()
    assert (found.mask == 255).sum() == 24 - 5


def test_strokes_on_transparency_label_only_what_is_opaque(tmp_path):
    text = 'weak.colours = { "#ff0000" = "rim" }'
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[0] = (*RED, 255)
    pixels[0, 2, 3] = 128  # the soft edge

    assert read(tmp_path, pixels, text, label=True).mask.tolist() == [[1, 1, 255], [255] * 3]


def test_a_label_without_any_of_the_colours_tells_which_were_drawn(tmp_path):
    image = np.random.default_rng(0).integers(1, 250, (3, 4, 6), dtype=np.uint8)
    pixels = image.transpose(1, 2, 0).copy()
    pixels[0, :3] = GREEN

    found = read(tmp_path, pixels, 'weak.colours = { "#ff0000" = "rim" }', label=True, image=image)
    assert found.problem == "has no pixel of exactly the colours #ff0000"
    assert found.seen == {"#00ff00": 3}


def test_undrawn_pixels_may_have_any_value_in_labels(tmp_path):
    text = 'weak.values = { 0 = "unlabelled", 1 = "background", 2 = "rim" }'

    assert read(tmp_path, MASK, text, label=True).mask.tolist() == [[255, 255, 0], [0, 1, 1]]
    assert np.array_equal(read(tmp_path, MASK, text).mask, MASK)  # masks are not meant


def test_colours_of_16_bits_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 9, (4, 6, 3), np.uint16))

    with pytest.raises(UnreadableError, match="more than 8 bits"):
        decode(tmp_path / "a.npy", (), coding(tmp_path, "").masks, label=False)


@pytest.mark.parametrize(
    ("text", "groups", "names"),
    [
        (
            'values = { 0 = "background", 1 = ["rim", "cup"] }',
            (0, 1, 1),
            ["background", "rim or cup"],
        ),
        ('values = { 0 = "background", 9 = "disc" }', (0, 1, 1), ["background", "rim or cup"]),
        (
            'values = { 0 = ["background", "rim"], 1 = "cup" }',
            (0, 0, 2),
            ["background or rim", "cup"],
        ),
        ('annotates = ["cup"]', (0, 0, 2), ["background or rim", "cup"]),
        ('annotates = ["disc"]', (0, 1, 1), ["background", "rim or cup"]),
        ('annotates = ["disc", "cup"]', (), ["background", "rim", "cup"]),
        ('annotates = ["rim"]', (0, 1, 0), ["background or cup", "rim"]),
    ],
)
def test_classes_that_are_not_told_apart_form_groups(tmp_path, text, groups, names):
    found = coding(tmp_path, text)

    for each in (found.masks, found.labels):
        assert each.groups == groups
        assert [*each.names.values()] == [*names, "unlabelled"]


def test_a_group_is_read_as_its_first_class(tmp_path):
    disc = np.array([[0, 1]], np.uint8)

    assert read(tmp_path, disc, 'values = { 0 = "background", 1 = "disc" }').mask.tolist() == [
        [0, 1]
    ]
    cup = 'annotates = ["cup"]\nvalues = { 0 = "background", 1 = "cup" }'
    assert read(tmp_path, disc, cup).mask.tolist() == [[0, 2]]


def test_a_class_that_a_site_does_not_annotate_is_no_value_of_its_masks(tmp_path):
    problem = read(tmp_path, MASK, 'annotates = ["cup"]').problem

    assert problem == "has the value 1; a mask has 0 background or rim, 2 cup"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('values = { 0 = "background", 1 = "vessel" }', 'no class or region "vessel"'),
        ('annotates = ["cups"]', 'did you mean "cup"?'),
        ('values = { 0 = "background", 1 = "rim" }', "no value or colour stands for cup"),
        ('values = { 0 = "background", 1 = "disc", 2 = "cup" }', "1 and 2 overlap: cup"),
        (
            'annotates = ["cup"]\nvalues = { 0 = "background", 1 = "disc" }',
            "1 stands for background or rim, cup, which `annotates` tells apart",
        ),
        ('weak.colours = { "#ff0000" = "vein" }', "colours #ff0000: the task fundus has no class"),
    ],
)
def test_what_cannot_be_meant_is_explained(tmp_path, text, words):
    (found,) = complaints(tmp_path, text)

    assert words in found


def test_files_are_not_blamed_for_mistakes_in_site_toml(tmp_path):
    found, _ = coding_of(said(tmp_path, 'values = { 0 = "background", 255 = "ring" }'), FUNDUS)
    path = write_picture(tmp_path / "a.png", MASK * 100)

    assert decode(path, (), found.masks, label=False).problem == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("values = 3", "values must be a table, such as values = {"),
        ('values = { low = "rim" }', 'values has "low"; values are whole numbers'),
        ("values = { 0 = 1 }", "values must give 0 a name or a list of names"),
        ('colours = { red = "rim" }', 'colours has "red"; colours are like "#ff0000"'),
        ('annotates = "cup"', "annotates must be a list of classes or regions, got 'cup'"),
        ("annotates = []", "annotates must be a list"),
        ("weak = 3", "weak must be a table with values or colours"),
        ('weak.value = { 0 = "rim" }', 'no key "weak.value"'),
    ],
)
def test_tables_of_another_form_are_explained(tmp_path, text, words):
    (tmp_path / "site.toml").write_text(text)
    assert tomllib.loads(text)

    about, wrong = read_site_toml(tmp_path / "site.toml")
    assert about == SiteToml()
    assert len(wrong) == 1
    assert words in wrong[0]
