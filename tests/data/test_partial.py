"""Sites that do not annotate every class, from their files to what training sees."""

import numpy as np
import pytest
import torch
from PIL import Image

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.box_files import read_boxes
from polyclinic.data.cases import pool
from polyclinic.data.check import check_folder
from polyclinic.data.errors import DataError, UnreadableError
from polyclinic.data.folder import read_site
from polyclinic.data.import_choices import Choices
from polyclinic.data.importing import import_sites
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.data.understanding import understanding
from tests.data.folders import write_labels, write_picture, write_site

FUNDUS = TASKS["fundus"].with_resolution(32)
DISC, CUP = (0, 1, 1), (0, 0, 2)


def drawn(**sites):
    chosen = [
        SiteSettings(name=name, annotates=names, labels=kind)
        for name, (names, kind) in sites.items()
    ]
    return load_federation(FUNDUS, DataSettings(size=0.05), chosen)


@pytest.fixture
def folder(tmp_path):
    """A site that shows the disc alone, as 255."""
    folder = write_site(tmp_path / "sites" / "alpha", 10)
    for file in (folder / "masks").iterdir():
        write_picture(file, np.where(np.asarray(Image.open(file)) > 0, 255, 0).astype(np.uint8))
    (folder / "site.toml").write_text('values = { 0 = "background", 255 = "disc" }')
    return folder


def loaded(folder, **site):
    chosen = [SiteSettings(name=folder.name, **site)] if site else []
    (found,) = load_federation(FUNDUS, DataSettings(source=str(folder.parent)), chosen)
    return found


def test_a_study_can_take_a_part_of_the_annotation():
    amber, birch, cedar = drawn(
        amber=(("disc",), "mask"), birch=(("cup",), "mask"), cedar=((), "mask")
    )

    assert [site.mask_groups for site in (amber, birch, cedar)] == [DISC, CUP, ()]
    assert [site.groups for site in (amber, birch, cedar)] == [(DISC,), (CUP,), ()]
    numbers = [site.train.masks.unique().tolist() for site in (amber, birch, cedar)]
    assert numbers == [[0, 1], [0, 2], [0, 1, 2]]
    assert amber.train.labels.equal(amber.train.masks)
    assert [*amber.known(FUNDUS.regions)] == ["disc"]
    full = drawn(amber=((), "mask"))[0]
    assert torch.equal(amber.train.masks > 0, full.train.masks > 0)


@pytest.mark.parametrize("kind", ["point", "scribble", "block", "box"])
def test_weak_labels_are_made_of_what_is_annotated(kind):
    amber, birch = drawn(amber=(("disc",), kind), birch=(("cup",), kind))

    assert set(amber.train.labels.unique().tolist()) - {255} == {0, 1}
    assert set(birch.train.labels.unique().tolist()) - {255} == {0, 2}
    if kind != "box":
        for site in (amber, birch):
            said = site.train.labels != 255
            assert torch.equal(site.train.labels[said], site.train.masks[said])


def test_files_with_two_values_give_one_group_for_all_they_do_not_tell_apart(folder):
    found = loaded(folder)

    assert (found.groups, found.mask_groups) == ((DISC,), DISC)
    assert found.train.masks.unique().tolist() == [0, 1]


def test_labels_may_tell_more_than_masks(folder):
    for file in (folder / "masks").iterdir():
        label = np.full((32, 32), 255, np.uint8)
        label[15:18, 13:19], label[:2] = 2, 0
        write_picture(folder / "labels" / "scribble" / file.name, label)
    (folder / "site.toml").write_text(
        'values = { 0 = "background", 255 = "disc" }\n'
        'weak.values = { 0 = "background", 1 = "rim", 2 = "cup" }\n'
    )

    found = loaded(folder, labels="scribble")
    assert (found.groups, found.mask_groups) == ((), DISC)
    assert found.train.labels.unique().tolist() == [0, 2, 255]


def test_label_files_must_not_hold_classes_that_are_not_told_apart(folder):
    write_labels(folder, "scribble")
    for file in (folder / "labels" / "scribble").iterdir():
        write_picture(file, np.where(np.asarray(Image.open(file)) == 255, 2, 255).astype(np.uint8))

    with pytest.raises(DataError, match="a label has 0 background, 1 rim or cup, 255 unlabelled"):
        loaded(folder, labels="scribble")


def test_a_study_cannot_take_what_a_site_does_not_tell_apart(folder):
    with pytest.raises(DataError, match="tells apart only background · rim or cup"):
        loaded(folder, annotates=("cup",))
    assert loaded(folder, annotates=("disc",)).mask_groups == DISC


def test_a_study_that_would_leave_only_background_is_refused(folder):
    (folder / "site.toml").unlink()
    for file in (folder / "masks").iterdir():  # the cup as 1, which means rim
        write_picture(file, (np.asarray(Image.open(file)) > 0).astype(np.uint8))

    with pytest.raises(DataError, match="has no pixel of cup, which it annotates in the study"):
        loaded(folder, annotates=("cup",))


def test_names_that_no_class_has_are_told():
    with pytest.raises(DataError, match='annotates: the task fundus has no class or region "cpu"'):
        drawn(amber=(("cpu",), "mask"))


def test_mistakes_in_site_toml_are_told_by_a_study_too(folder):
    (folder / "site.toml").write_text('values = { 0 = "background", 255 = "disk" }')

    with pytest.raises(DataError) as caught:
        loaded(folder)
    assert caught.value.mistakes == (
        'site alpha, site.toml: values 255: the task fundus has no class or region "disk" '
        '(allowed: background, rim, cup, disc); did you mean "disc"?',
    )


def test_boxes_may_be_named_by_a_region_that_is_seen_as_one(tmp_path):
    file = tmp_path / "00.csv"
    file.write_text("class,left,top,width,height\ndisc,4,4,8,8\ncup,5,5,2,2\n1,4,4,8,8\n")

    assert [box.number for box in read_boxes(file, (32, 32), FUNDUS, DISC)] == [1, 1, 1]
    with pytest.raises(UnreadableError, match="box 1 has class"):
        read_boxes(file, (32, 32), FUNDUS)
    file.write_text("class,left,top,width,height\nrim,4,4,8,8\n")
    with pytest.raises(UnreadableError, match=r'class "rim", not cup \(2\)'):
        read_boxes(file, (32, 32), FUNDUS, CUP)


def test_imported_sites_keep_what_their_values_mean(folder, tmp_path):
    (folder / "site.toml").write_text(
        'annotates = ["disc"]\nvalues = { 0 = "background", 255 = "disc" }\n'
        'weak.colours = { "#ff0000" = ["rim", "cup"] }\n'
    )
    with understanding(folder.parent, Choices()) as understood:
        ((copy,), _) = import_sites(understood, tmp_path / "ours", FUNDUS)

    theirs, ours = read_site(folder).toml, read_site(copy).toml
    assert (ours.masks, ours.weak, ours.annotates) == (theirs.masks, theirs.weak, theirs.annotates)
    assert check_folder(copy, FUNDUS).mistakes == ()


def test_pooled_labels_say_by_which_grouping_they_are_meant():
    sites = drawn(amber=(("disc",), "mask"), birch=(("cup",), "scribble"), cedar=((), "mask"))
    pooled = pool(sites)

    assert pooled.groups == (DISC, CUP, (0, 1, 2))
    numbers = [
        pooled.train.labels[[name.startswith(site.name) for name in pooled.train.names]].unique()
        for site in sites
    ]
    assert [each.tolist() for each in numbers] == [[0, 1], [3, 5, 255], [6, 7, 8]]
    assert pooled.train.masks.max() <= 2
    assert pool(drawn(amber=((), "mask"), birch=((), "mask"))).groups == ()
    alike = pool(drawn(amber=(("cup",), "mask"), birch=(("cup",), "mask")))
    assert (alike.groups, alike.train.labels.max().item()) == ((CUP,), 2)
