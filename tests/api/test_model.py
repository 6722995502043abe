import numpy as np
import pytest
from PIL import Image

import polyclinic as pc
from polyclinic.data.synthetic import draw_site
from tests.api.small import SMALL, Pulled, small_run
from tests.cli.commands import polyclinic as polyclinic
from tests.data.folders import write_site
from tests.data.volumes import (
    ORIENTATIONS,
    as_stored,
    draw_volume,
    reoriented,
    write_nifti,
    write_volume_site,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Runs in which sites end with different models."""
    folder = tmp_path_factory.mktemp("models")
    trained = {"iterations": 40, "batch": 4}  # enough to find something
    network = {"name": "unet", "width": 4}
    return small_run(folder, method=["local", Pulled(mu=0.1)], training=trained, network=network)


@pytest.fixture(scope="module")
def drawn(results):
    """The cases of the first site as they were drawn for the runs."""
    return draw_site("octa", results.sites[0], resolution=32, seed=0, size=0.1)


@pytest.mark.parametrize("method", ["Local", pytest.param("Pulled", marks=pytest.mark.slow)])
def test_a_model_predicts_what_its_run_was_scored_by(results, drawn, method):
    model = results.model(method, site=results.sites[0], seed=0)
    scored = {
        row.case: row.value
        for row in results.rows()
        if (row.method, row.site, row.metric) == (method, results.sites[0], "dice")
    }
    images = dict(zip(drawn.names, zip(drawn.images, drawn.masks, strict=True), strict=True))
    for case, value in scored.items():
        image, mask = images[case]
        assert pc.metrics.dice(model.predict(image) == 1, mask == 1) == pytest.approx(value)
    assert scored
    assert any(value > 0 for value in scored.values())


def test_every_site_has_a_model_of_its_own(results, drawn):
    first, second = (
        results.model("Local", site=site).probabilities(drawn.images[0])
        for site in results.sites[:2]
    )
    assert (first != second).any()


def test_an_array_a_picture_and_a_path_of_any_size_give_a_mask_of_that_size(results, tmp_path):
    model = results.model("Pulled", site=results.sites[0])
    pixels = np.random.default_rng(0).integers(0, 256, (50, 77), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "image.png")
    mask = model.predict(pixels)
    assert (mask.shape, mask.dtype) == ((50, 77), np.uint8)
    assert set(np.unique(mask)) <= {0, 1}
    for same in (pixels[:, :, None], pixels[None], picture, tmp_path / "image.png"):
        assert (model.predict(same) == mask).all()
    colours = np.repeat(pixels[:, :, None], 3, axis=2)
    assert (model.predict(colours) == mask).all()


def test_predicting_changes_nothing(results, drawn):
    model = results.model("Local", site=results.sites[0])
    first = model.predict(drawn.images[0])
    model.predict(drawn.images[1])
    assert (model.predict(drawn.images[0]) == first).all()
    assert (results.model("Local", site=results.sites[0]).predict(drawn.images[0]) == first).all()


def test_what_there_are_several_of_must_be_said(results):
    with pytest.raises(ValueError, match="say which method: there are Local, Pulled"):
        results.model()
    with pytest.raises(ValueError, match="say which site"):
        results.model("Local")
    with pytest.raises(ValueError, match=r"no site 'nowhere' in these runs"):
        results.model("Local", site="nowhere")
    with pytest.raises(ValueError, match=r"no seed 7 in these runs; there are 0"):
        results.model("Local", site=results.sites[0], seed=7)


def test_a_method_of_a_notebook_is_needed_again_to_open_its_models(results):
    folder = results.paths[0].parents[1]
    with pytest.raises(pc.ConfigError, match=r"Pulled.*there is no such method"):
        pc.load_run(folder).model("Pulled", site=results.sites[0])
    model = pc.load_run(folder, code=[Pulled]).model("Pulled", site=results.sites[0])
    assert model.method == Pulled(mu=0.1)
    assert repr(model) == f"<Model of {results.sites[0]} by Pulled for octa>"


def test_a_model_prepares_images_as_its_site_did(tmp_path):
    for site in ("north", "south"):
        write_site(tmp_path / "clinics" / site)
    (tmp_path / "clinics" / "north" / "site.toml").write_text('fit = "pad"\n')
    settings = {**SMALL, "data": {"source": tmp_path / "clinics"}}
    study = pc.Study(**{**settings, "task": {"name": "fundus", "resolution": 32}}, method="fedavg")
    results = pc.run(study, runs=tmp_path / "runs")
    fits = {site: results.model(site=site).task.fit for site in results.sites}
    assert fits == {"north": "pad", "south": "stretch"}


def test_a_site_that_the_study_does_not_name_prepares_images_its_own_way(tmp_path):
    for site in ("north", "south"):
        write_site(tmp_path / "clinics" / site)
    (tmp_path / "clinics" / "north" / "site.toml").write_text('fit = "pad"\n')
    settings = {**SMALL, "data": {"source": tmp_path / "clinics"}}
    named = [{"name": "south", "labels": "point", "fit": "crop"}]
    task = {"name": "fundus", "resolution": 32}
    study = pc.Study(**{**settings, "task": task, "site": named}, method="fedavg")
    results = pc.run(study, runs=tmp_path / "runs")
    fits = {site: results.model(site=site).task.fit for site in results.sites}
    assert fits == {"north": "pad", "south": "crop"}
    (tmp_path / "clinics").rename(tmp_path / "elsewhere")
    assert results.model(site="south").task.fit == "crop"


def test_a_volume_is_cut_as_its_site_cuts_volumes(tmp_path):
    write_volume_site(tmp_path / "clinics" / "north")
    settings = {**SMALL, "data": {"source": tmp_path / "clinics"}}
    task, network = {"name": "prostate", "resolution": 32}, {"name": "unet", "width": 4}
    more = {"task": task, "network": network, "training": {"iterations": 40, "batch": 4}}
    model = pc.run(pc.Study(**{**settings, **more}, method="local"), runs=tmp_path / "runs").model()
    volume = as_stored(draw_volume(7, slices=5)[0])
    mask = model.predict(write_nifti(tmp_path / "a.nii", volume))
    assert mask.shape == volume.shape
    assert 0.02 < mask.mean() < 0.9
    turned, affine = reoriented(volume, np.eye(4), ORIENTATIONS[29])
    there, _ = reoriented(mask, np.eye(4), ORIENTATIONS[29])
    assert (model.predict(write_nifti(tmp_path / "b.nii", turned, affine)) == there).all()


@pytest.mark.slow
def test_an_exported_package_predicts_the_same(results, drawn, tmp_path, polyclinic):
    folder = next(path for path in results.paths if path.parts[-2] == "local")
    site, file = results.sites[0], tmp_path / "model.polyclinic"
    code, _, err = polyclinic("export", folder, "--site", site, "--to", file)
    assert code == 0, err
    there, here = pc.load_model(file), results.model("Local", site=site)
    large = np.asarray(Image.fromarray(drawn.images[0, 0]).resize((75, 50)))
    for image in (drawn.images[0], large):
        assert np.mean(there.predict(image) == here.predict(image)) > 0.999
