import numpy as np
import pytest
import torch
from PIL import Image

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.errors import DataError
from polyclinic.data.load import load_federation
from polyclinic.data.synthetic import federation
from polyclinic.data.tasks import TASKS
from polyclinic.weak import KINDS, Kind
from tests.data.folders import write_labels, write_listing, write_picture, write_site

FUNDUS = TASKS["fundus"].with_resolution(32)


@pytest.fixture
def source(tmp_path):
    for name in ("alpha", "beta"):
        write_site(tmp_path / "sites" / name, 10)
    return tmp_path / "sites"


def load(source, *sites, task=FUNDUS, splits_folder=None, **data):
    settings = DataSettings(source=str(source), **data)
    return load_federation(task, settings, sites, splits_folder=splits_folder)


def mistakes(*arguments, **settings):
    with pytest.raises(DataError) as caught:
        load(*arguments, **settings)
    return caught.value.mistakes


def test_all_sites_are_read_with_their_splits(source):
    alpha, beta = load(source)

    assert (alpha.name, beta.name) == ("alpha", "beta")
    assert (len(alpha.train), len(alpha.val), len(alpha.test)) == (7, 1, 2)
    assert alpha.kind == "mask"
    assert alpha.train.images.shape == (7, 3, 32, 32)
    assert alpha.train.images.dtype == torch.uint8
    assert (alpha.train.spacing == 1).all()


def test_tensors_are_exactly_the_files(source):
    train = load(source)[0].train
    for number, name in enumerate(train.names):
        image = np.asarray(Image.open(source / "alpha" / "images" / f"{name}.png"))
        mask = np.asarray(Image.open(source / "alpha" / "masks" / f"{name}.png"))
        assert np.array_equal(train.images[number].permute(1, 2, 0), image)
        assert np.array_equal(train.masks[number], mask)
        assert np.array_equal(train.labels[number], mask)
        assert (train.offset[number] == image.min()).all()
        assert (train.scale[number] == image.max() - image.min()).all()


def test_loading_twice_gives_the_same(source):
    first, second = load(source)[1], load(source)[1]

    assert first.train.names == second.train.names
    assert first.train.images.equal(second.train.images)


def test_listed_sites_come_in_their_order_under_their_names(source, tmp_path):
    write_site(tmp_path / "elsewhere", 10)
    sites = load(
        source,
        SiteSettings(name="beta"),
        SiteSettings(name="gamma", folder=tmp_path / "elsewhere"),
    )

    assert [site.name for site in sites] == ["beta", "gamma"]


def test_a_site_is_found_by_the_name_it_gives_itself(source):
    (source / "alpha" / "site.toml").write_text('name = "Clinic A"')

    assert load(source, SiteSettings(name="Clinic A"))[0].name == "Clinic A"
    assert load(source, SiteSettings(name="alpha"))[0].name == "alpha"


def test_unknown_sites_are_all_named_with_the_nearest(source):
    found = mistakes(source, SiteSettings(name="alhpa"), SiteSettings(name="zzz"))

    assert 'no site "alhpa" in' in found[0]
    assert 'there are alpha, beta; did you mean "alpha"?' in found[0]
    assert 'no site "zzz"' in found[1]


def test_two_sites_of_one_name_are_refused(source):
    for name in ("alpha", "beta"):
        (source / name / "site.toml").write_text('name = "same"')

    assert mistakes(source) == ("site same: 2 sites have this name",)


def test_the_mistakes_of_all_sites_come_at_once_and_no_split_is_written(source):
    (source / "alpha" / "masks" / "00.png").unlink()
    write_picture(source / "alpha" / "masks" / "01.png", np.zeros((8, 8), np.uint8))
    write_picture(source / "beta" / "masks" / "02.png", np.full((32, 32), 5, np.uint8))
    (source / "beta" / "images" / "03.png").write_text("broken")
    (source / "gamma").mkdir()

    found = mistakes(source)
    assert len(found) == 5
    assert "site alpha, images/00.png: has no mask and no label" in found
    assert "site alpha, masks/01.png: is 8×8 pixels, its image 32×32" in found
    assert any("site beta, masks/02.png: has the value 5" in line for line in found)
    assert any("site beta, images/03.png: cannot be read" in line for line in found)
    assert any("site gamma: no images" in line for line in found)
    assert not list(source.rglob("splits.csv"))


def test_a_site_of_another_task_is_refused(source):
    (source / "alpha" / "site.toml").write_text('task = "octa"')

    assert mistakes(source) == ("site alpha: is for the task octa, the study for fundus",)


def test_images_are_brought_to_the_resolution_and_the_spacing_with_them(tmp_path):
    folder = write_site(tmp_path / "alpha", 5, side=64)
    (folder / "site.toml").write_text("spacing = [0.5, 0.25]")

    train = load(tmp_path)[0].train
    assert train.images.shape[2:] == (32, 32)
    assert train.spacing.unique(dim=0).tolist() == [[1.0, 0.5]]
    assert set(train.masks.unique().tolist()) == {0, 1, 2}


def test_label_files_are_what_training_sees_and_masks_what_scoring_sees(source):
    write_labels(source / "alpha", "point")

    (site,) = load(source, SiteSettings(name="alpha", labels="point"))
    assert site.kind == "point"
    assert (site.train.labels[:, :, ::2] == 255).all()
    assert site.train.labels[:, :, 1::2].equal(site.train.masks[:, :, 1::2])
    assert not (site.train.masks == 255).any()


def test_site_toml_names_the_kind_where_the_study_does_not(source):
    write_labels(source / "alpha", "point")
    (source / "alpha" / "site.toml").write_text('labels = "point"')

    assert [site.kind for site in load(source)] == ["point", "mask"]
    assert load(source, SiteSettings(name="alpha"))[0].kind == "point"
    assert load(source, SiteSettings(name="alpha", labels="mask"))[0].kind == "mask"


def test_weak_labels_only_for_training_leave_the_others_unlabelled(tmp_path):
    folder = write_site(tmp_path / "sites" / "alpha", 8, part="train")
    write_labels(folder / "train", "point", place="weak")
    write_site(folder, 2, part="test")

    (site,) = load(tmp_path / "sites", SiteSettings(name="alpha", labels="point"))
    assert (site.test.labels == 255).all()
    assert not (site.test.masks == 255).any()
    assert not (site.val.labels == 255).all()


def test_missing_labels_of_a_kind_are_listed(tmp_path):
    folder = write_site(tmp_path / "sites" / "alpha", 4)
    write_listing(
        folder, [("00", "", "train"), ("01", "", "train"), ("02", "", "val"), ("03", "", "test")]
    )
    write_labels(folder, "point", only=1)

    assert mistakes(tmp_path / "sites", SiteSettings(name="alpha", labels="point")) == (
        "site alpha: no point label for 01",
    )


def test_an_unavailable_kind_says_what_there_is(source):
    write_labels(source / "alpha", "scribble")

    (found,) = mistakes(source, SiteSettings(name="alpha", labels="scrible"))
    assert 'no labels of kind "scrible": it has mask, scribble' in found
    assert 'did you mean "scribble"?' in found


def test_labels_are_made_from_masks_where_there_are_no_files(source, monkeypatch):
    def dots(mask, rng, style):
        return np.where(rng.random(mask.shape) < 0.5, mask, 255).astype(np.uint8)

    monkeypatch.setitem(KINDS, "dots", Kind(dots, "every other pixel", "much"))
    listed = SiteSettings(name="alpha", labels="dots")

    (first,), (again,) = load(source, listed), load(source, listed)
    labelled = first.train.labels != 255
    assert 0.4 < labelled.float().mean() < 0.6
    assert first.train.labels[labelled].equal(first.train.masks[labelled])
    assert first.train.labels.equal(again.train.labels)
    assert not first.train.labels[0].equal(first.train.labels[1])


def test_labels_cannot_be_made_without_a_mask(source):
    folder = source / "alpha"
    rows = [(f"{n:02d}", "", "val" if n == 8 else "test" if n == 9 else "train") for n in range(10)]
    write_listing(folder, rows)
    write_labels(folder, "point", only=3)
    (folder / "masks" / "02.png").unlink()

    assert mistakes(source, SiteSettings(name="alpha", labels="block")) == (
        "site alpha: no mask to make a block label from for 02",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_made_at_the_resolution_that_training_sees(tmp_path, kind):
    write_site(tmp_path / "alpha", 5, side=96)
    (site,) = load(tmp_path, SiteSettings(name="alpha", labels=kind))

    assert site.kind == kind
    assert site.train.labels.shape == site.train.masks.shape
    for label, mask in zip(site.train.labels, site.train.masks, strict=True):
        assert set(mask.unique().tolist()) <= set(label.unique().tolist())


def test_drawn_sites_train_on_weak_labels_too():
    sites = federation("fundus")
    listed = [
        SiteSettings(name=site.name, labels=kind) for site, kind in zip(sites, KINDS, strict=False)
    ]

    loaded = load_federation(FUNDUS, DataSettings(size=0.05), listed)
    assert [site.kind for site in loaded] == [site.labels for site in listed]
    for site in loaded:
        assert not site.train.labels.equal(site.train.masks)


def test_a_site_without_masks_trains_on_its_labels(source):
    write_labels(source / "alpha", "point")
    for file in (source / "alpha" / "masks").iterdir():
        file.unlink()

    (site,) = load(source, SiteSettings(name="alpha", labels="point"))
    assert (site.test.masks == 255).all()
    assert mistakes(source, SiteSettings(name="alpha")) == (
        'site alpha: no mask for 00, 01, 02, 03, 04 and 5 more, though it trains on "mask"',
    )


def test_a_test_case_without_a_mask_cannot_be_scored(tmp_path):
    folder = write_site(tmp_path / "sites" / "alpha", 4)
    write_listing(
        folder, [("00", "", "train"), ("01", "", "train"), ("02", "", "val"), ("03", "", "test")]
    )
    write_labels(folder, "point")
    for name in ("00", "03"):
        (folder / "masks" / f"{name}.png").unlink()

    assert mistakes(tmp_path / "sites", SiteSettings(name="alpha", labels="point")) == (
        "site alpha: no mask to score 03 with",
    )


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (np.full((32, 32), 3, np.uint8), "has the value 3; a label has 0 background, 1 rim, 2 cup"),
        (np.full((32, 32), 254, np.uint8), "has the value 254"),
        (np.zeros((16, 32), np.uint8), "is 16×32 pixels, its image 32×32"),
        (np.full((32, 32), 255, np.uint8), "labels no pixel: all are 255"),
        (np.zeros((32, 32, 3), np.uint8) + np.array([0, 1, 2], np.uint8), "has colours"),
    ],
)
def test_a_bad_label_is_refused_before_training_with_site_and_file(source, label, reason):
    write_labels(source / "alpha", "scribble")
    write_picture(source / "alpha" / "labels" / "scribble" / "03.png", label)

    (found,) = mistakes(source, SiteSettings(name="alpha", labels="scribble"))
    assert found.startswith("site alpha, labels/scribble/03.png: ")
    assert reason in found


def labelled_in_a_corner(tmp_path):
    folder = write_site(tmp_path / "sites" / "alpha", 5, side=96)
    write_labels(folder, "point")
    corner = np.full((96, 96), 255, np.uint8)
    corner[0, 0] = 1
    for file in (folder / "labels" / "point").iterdir():
        write_picture(file, corner)
    return folder


def test_a_point_of_one_pixel_is_there_in_a_smaller_square(tmp_path):
    labelled_in_a_corner(tmp_path)
    (site,) = load(tmp_path / "sites", SiteSettings(name="alpha", labels="point"))

    assert ((site.train.labels == 1).sum((1, 2)) == 1).all()


def test_a_label_that_lies_in_what_is_cropped_is_a_mistake(tmp_path):
    folder = labelled_in_a_corner(tmp_path)
    image = np.zeros((96, 96), np.uint8)
    image[20:76, 20:76] = np.arange(56, dtype=np.uint8) + 100
    write_picture(folder / "images" / "02.png", image)
    site = SiteSettings(name="alpha", labels="point", fit="crop")

    assert mistakes(tmp_path / "sites", site) == (
        "site alpha, labels/point/02.png: no labelled pixel is left at 32²",
    )


def test_the_k_th_fold_tests_other_cases(source):
    tested = [set(load(source, folds=5, fold=fold)[0].test.names) for fold in range(5)]

    assert set.union(*tested) == {f"{n:02d}" for n in range(10)}
    assert sum(map(len, tested)) == 10


def test_float_images_stay_float(tmp_path):
    for number in range(5):
        file = tmp_path / "alpha" / "images" / f"{number}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, np.random.default_rng(number).normal(size=(32, 32)))
        write_picture(tmp_path / "alpha" / "masks" / f"{number}.png", np.eye(32, dtype=np.uint8))

    train = load(tmp_path, task=TASKS["octa"].with_resolution(32))[0].train
    assert train.images.dtype == torch.float32
    assert train.images.shape == (3, 1, 32, 32)


def test_a_missing_source_is_an_error(tmp_path):
    assert "there is no folder" in mistakes(tmp_path / "nowhere")[0]


@pytest.mark.parametrize("name", TASKS)
def test_synthetic_federations_have_all_their_sites(name):
    task = TASKS[name].with_resolution(32)
    sites = load_federation(task, DataSettings(size=0.05))

    assert [site.name for site in sites] == [site.name for site in federation(name)]
    for site in sites:
        assert min(len(site.train), len(site.val), len(site.test)) >= 1
        assert site.train.images.shape[1:] == (task.channels, 32, 32)
        assert site.train.labels.equal(site.train.masks)


def test_drawn_and_read_sites_can_be_mixed(source):
    drawn = federation("fundus")[0].name
    sites = [SiteSettings(name=drawn), SiteSettings(name="real", folder=source / "alpha")]

    loaded = load_federation(FUNDUS, DataSettings(size=0.05), sites)
    assert [site.name for site in loaded] == [drawn, "real"]


@pytest.mark.parametrize(("given", "role"), [("kept", "val"), ("recut", "test")])
def test_a_synthetic_patient_has_the_folds_role_once(given, role):
    site = [SiteSettings(name=federation("fundus")[0].name)]
    data = DataSettings(size=0.1, folds=3, given=given)
    folds = [
        load_federation(FUNDUS, data.model_copy(update={"fold": fold}), site)[0]
        for fold in range(3)
    ]
    (whole,) = load_federation(FUNDUS, DataSettings(size=0.1), site)
    names = [name for part in (whole.train, whole.val, whole.test) for name in part.names]
    once = [name for site in folds for name in getattr(site, role).names]
    kept = set(whole.test.names) if given == "kept" else set()
    assert sorted(once) == sorted(set(names) - kept)
    assert all(kept <= set(site.test.names) for site in folds)


def test_patients_are_cut_in_the_order_of_their_names_where_the_study_says_so():
    site = [SiteSettings(name=federation("fundus")[0].name)]
    data = DataSettings(size=0.2, given="recut", cut="in_order")
    (found,) = load_federation(FUNDUS, data, site)
    train, val, test = (sorted(part.names) for part in (found.train, found.val, found.test))
    assert train[-1] < val[0] <= val[-1] < test[0]


def test_too_few_synthetic_patients_for_the_folds_are_a_mistake():
    with pytest.raises(DataError, match="cannot be divided into 90 folds"):
        load_federation(FUNDUS, DataSettings(size=0.05, folds=90))


def write_views(folder, seen=np.s_[4:]):
    """Views of all cases, in which only some rows were seen."""
    for file in sorted((folder / "images").iterdir()):
        view = np.zeros((32, 32), np.uint8)
        view[seen] = 255
        write_picture(folder / "views" / file.name, view)


def test_what_a_view_leaves_out_is_neither_label_nor_scored(tmp_path):
    folder = write_site(tmp_path / "data" / "alpha")
    write_views(folder, np.s_[16:])
    (plain,) = load(write_site(tmp_path / "plain" / "alpha").parent)
    (site,) = load(folder.parent)

    assert site.train.views[:, 16:].all()
    assert not site.train.views[:, :16].any()
    assert (site.train.labels[:, :16] == 255).all()
    assert not site.train.masks[:, :16].any()
    assert site.train.labels[:, 16:].equal(plain.train.labels[:, 16:])
    assert site.train.masks[:, 16:].equal(plain.train.masks[:, 16:])
    assert site.train.images.equal(plain.train.images)


def test_labels_made_from_masks_stay_in_view(tmp_path):
    folder = write_site(tmp_path / "data" / "alpha")
    write_views(folder)
    (site,) = load(folder.parent, SiteSettings(name="alpha", labels="scribble"))

    assert (site.train.labels[:, :4] == 255).all()
    assert (site.train.labels[:, 4:] != 255).flatten(1).any(1).all()


def test_views_that_do_not_fit_are_named(tmp_path):
    folder = write_site(tmp_path / "data" / "alpha")
    write_views(folder)
    write_picture(folder / "views" / "00.png", np.zeros((32, 32), np.uint8))
    write_picture(folder / "views" / "01.png", np.ones((16, 32), np.uint8))
    write_picture(folder / "views" / "77.png", np.ones((32, 32), np.uint8))
    (folder / "views" / "02.png").write_text("broken")

    found = [line.partition("views/")[2] for line in mistakes(folder.parent)]
    assert found[:3] == [
        "77.png: there is no image 77 to it",
        "00.png: shows nothing: every pixel is 0",
        "01.png: is 16×32 pixels, its image 32×32",
    ]
    assert found[3].startswith("02.png: cannot be read")
    assert len(found) == 4


def test_a_site_may_prepare_its_images_otherwise(tmp_path):
    folder = tmp_path / "data"
    for name in ("alpha", "beta"):
        write_site(folder / name, side=40)
    (folder / "beta" / "site.toml").write_text('fit = "pad"\nnormalisation = "channelwise"\n')
    alpha, beta = load(folder)
    assert alpha.train.scale[0].unique().numel() == 1
    assert beta.train.scale[0].unique().numel() == 3

    own = SiteSettings(name="alpha", normalisation="window", window=(0.0, 100.0))
    (alpha,) = load(folder, own)
    assert alpha.train.offset.unique().tolist() == [0]
    assert alpha.train.scale.unique().tolist() == [100]


def test_what_a_site_cannot_do_with_its_images_is_told(tmp_path):
    folder = write_site(tmp_path / "data" / "alpha")
    (folder / "site.toml").write_text('fit = "padd"\nwindow = [0, 1]\n')
    first, second = mistakes(folder.parent)

    assert first.startswith('site alpha, site.toml: fit = "padd": must be one of the allowed')
    assert "did you mean pad?" in first
    assert 'window = [0, 1]: has no effect with normalisation = "minmax"' in second


def test_a_site_refuses_a_study_that_means_something_else_by_its_task(tmp_path):
    folder = write_site(tmp_path / "data" / "alpha")
    (folder / "site.toml").write_text('task = "fundus"\n')
    other = FUNDUS.changed(classes=("background", "edge", "cup"), regions={"cup": (2,)})

    first, second = mistakes(folder.parent, task=other)
    assert "knows another task fundus: its classes are background, rim, cup, not" in first
    assert "its regions are disc (1, 2), cup (2), not cup (2)" in second
    assert load(folder.parent, task=FUNDUS.changed(normalisation="standard", fit="crop"))


def test_a_site_may_name_a_file_that_says_what_its_task_is(tmp_path):
    folder = write_site(tmp_path / "data" / "alpha")
    (folder / "site.toml").write_text('task = "eye.task.toml"\n')
    (folder / "eye.task.toml").write_text('channels = 3\nclasses = ["background", "rim", "cup"]\n')
    eye = FUNDUS.changed(name="eye", regions={"rim": (1,), "cup": (2,)})

    assert load(folder.parent, task=eye)
    assert mistakes(folder.parent) == ("site alpha: is for the task eye, the study for fundus",)
    (folder / "eye.task.toml").write_text("channels = 3\n")
    assert "eye.task.toml: classes: is required" in mistakes(folder.parent, task=eye)[0]


def test_synthetic_sites_cannot_be_drawn_with_other_channels():
    with pytest.raises(DataError, match=r"is drawn with 1 channels and 2 classes, but the task"):
        load_federation(TASKS["octa"].changed(channels=3, resolution=32), DataSettings(size=0.1))
