"""A model out of a run predicts what the run scored, bit for bit."""

import hashlib
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load as load_weights

from polyclinic.api.running import do_runs
from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.data.cases import with_masks
from polyclinic.engine.run import assignment_of
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.states import read_state
from polyclinic.exporting.choosing import origins
from polyclinic.exporting.packaging import packaged
from polyclinic.exporting.trained import cases_of
from polyclinic.methods import METHODS
from polyclinic.networks import NETWORKS
from polyclinic.predict import load
from polyclinic.predict.folder import Options, predict_all
from polyclinic.predict.inputs import inputs_in
from polyclinic.runs import RunError
from tests.federations import NEEDS
from tests.small_unet import TABLES

LEARNING = (
    "training.iterations=60",
    "training.learning_rate=0.02",
    "federation.rounds=1",
    "network.width=4",
    "data.size=0.2",  # of what is read again; the runs of tests have no more
)


def as_in_the_run(run, data):
    """The classes that the run predicted for a site's test cases when it was scored."""
    name = data.name
    runner = SiteRunner(assignment_of(run, run.folder.about().sites), torch.device("cpu"))
    info = next(each for each in runner.assignment.sites if each.name == name)
    state, _ = read_state(run.folder.weights_path(name))
    scored = runner.score(info, data, Scoring(2, "test", ("dice",)), None, state)
    written = [row for row in run.folder.scores("test") if row[2] == name and row[5] == "dice"]
    assert {row.case: row.value for row in written} == {row.case: row.value for row in scored.rows}
    return scored.cases, scored.predicted


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from tests.federations import Federation

    small = Federation(tmp_path_factory.mktemp("trained"), sites=2)
    return small.run("fedbn", *LEARNING, 'evaluation.metrics=["dice","hd95"]')


@pytest.fixture(scope="module")
def package(trained):
    return packaged(origins([trained.folder.path], TABLES, sites=["fjord"]))


def test_masks_are_those_that_the_run_scored(trained, package, tmp_path):
    package.write(tmp_path / "fjord.polyclinic")
    model = load(tmp_path / "fjord.polyclinic", threads=1)
    (origin,) = origins([trained.folder.path], TABLES, sites=["fjord"])
    data = next(site for site in cases_of(origin) if site.name == "fjord")
    cases, expected = as_in_the_run(trained.run, data)
    for image, mask in zip(with_masks(cases).images.numpy(), expected, strict=True):
        Image.fromarray(image[0]).save(tmp_path / "image.png")
        assert (model.predict(tmp_path / "image.png") == mask).all()
    assert expected.any(), "masks without an object show nothing"


def test_a_package_tells_where_it_comes_from(trained, package):
    facts = package.facts
    (member,) = facts.members
    text = (trained.folder.path / "study.toml").read_bytes()
    assert member.study_hash == hashlib.sha256(text).hexdigest()
    assert (member.site, member.method, member.seed) == ("fjord", "FedBN", 0)
    assert [site.name for site in facts.sites] == ["fjord", "grove"]
    scores = {(score.site, score.metric): score for score in facts.scores}
    assert set(scores) == {(s, m) for s in ("fjord", "grove") for m in ("dice", "hd95")}
    values = [r.value for r in trained.folder.scores("test") if r[2] == "fjord" and r[5] == "dice"]
    assert scores["fjord", "dice"].mean == pytest.approx(np.mean(values))
    assert math.isnan(scores["fjord", "dice"].low), "two patients are too few for an interval"
    assert facts.quality.split == "val"
    assert np.isclose(sum(facts.quality.histogram), 1)
    assert set(facts.quality.limits) == {"size", "image", "flips", "unsure"}


def test_no_folder_of_this_machine_and_no_case_is_in_a_package(trained, package):
    cases = {row.case for row in trained.folder.scores()}
    for name, content in package.contents.items():
        for secret in (str(trained.folder.path.parents[3]), "site-packages", "wt/", *cases):
            assert secret.encode() not in content, name
    told = package.facts.model_dump_json()
    assert str(trained.folder.path.parents[3]) not in told
    assert "data" not in json.loads(told)["settings"]


def test_the_weights_are_the_sites(trained, package):
    weights = load_weights(package.contents["weights.safetensors"])
    expected = trained.site("fjord")
    assert weights.keys() == expected.keys()
    assert all((weights[name] == expected[name].numpy()).all() for name in weights)


def test_a_model_that_is_not_there_is_named_with_those_that_are(trained):
    with pytest.raises(RunError, match=r'no model of "fjort" .*fjord, grove, server.*fjord'):
        origins([trained.folder.path], TABLES, sites=["fjort"])


@pytest.mark.slow
def test_an_ensemble_averages_its_members(trained, tmp_path):
    found = origins([trained.folder.path], TABLES)
    packaged(found).write(tmp_path / "both.polyclinic")
    model = load(tmp_path / "both.polyclinic", threads=1)
    assert [member.site for member in model.facts.members] == ["fjord", "grove"]
    assert "The whole ensemble was scored at each site" in model.card
    data = {site.name: site for site in cases_of(found[0])}
    (told,) = [s for s in model.facts.scores if (s.site, s.metric) == ("grove", "dice")]
    values = []
    for image, mask in zip(data["grove"].test.images, data["grove"].test.masks, strict=True):
        predicted, true = model.classes(image.numpy()) == 1, mask.numpy() == 1
        values.append(2 * (predicted & true).sum() / max(1, predicted.sum() + true.sum()))
    assert told.cases == len(values)
    assert told.mean == pytest.approx(np.mean(values))
    assert "members" in model.facts.quality.limits
    image = np.random.default_rng(0).integers(0, 256, (1, 40, 30)).astype(np.uint8)
    note = model.look(image).note
    assert set(note.measures) == {"size", "image", "flips", "members", "unsure"}


@pytest.mark.slow
def test_the_servers_model_is_refused_where_sites_keep_weights(federation):
    done = federation(sites=2).run("fedbn", "federation.rounds=1")
    (origin,) = origins([done.folder.path], TABLES, server=True)
    with pytest.raises(RunError, match="the server has no whole model: sites keep"):
        packaged([origin])


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_methods_model_predicts_as_in_its_run(federation, method, tmp_path):
    small = federation(sites=2)
    done = small.run(method, *LEARNING, *NEEDS.get(method, ()))
    (origin,) = origins([done.folder.path], TABLES, sites=["grove"])
    packaged([origin]).write(tmp_path / "m.polyclinic")
    model = load(tmp_path / "m.polyclinic", threads=1)
    data = next(site for site in cases_of(origin) if site.name == "grove")
    cases, expected = as_in_the_run(done.run, data)
    for image, mask in zip(cases.images.numpy(), expected, strict=True):
        assert (model.classes(image) == mask).all()


@pytest.mark.slow
@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_every_networks_model_predicts_as_in_its_run(federation, network, tmp_path):
    learning = (*LEARNING, f"network.name={network}", "training.iterations=10")
    done = federation(sites=2).run("fedavg", *learning)
    (origin,) = origins([done.folder.path], TABLES, server=True)
    packaged([origin]).write(tmp_path / "m.polyclinic")
    model = load(tmp_path / "m.polyclinic", threads=1)
    assert model.facts.scores, "all sites use the server's model"
    took_part = {site.name for site in done.folder.about().sites}
    for data in (site for site in cases_of(origin) if site.name in took_part):
        cases, expected = as_in_the_run(done.run, data)
        for image, mask in zip(cases.images.numpy(), expected, strict=True):
            assert (model.classes(image) == mask).all()


@pytest.mark.slow
def test_real_files_get_the_masks_that_the_run_of_a_whole_unet_scored(real, tmp_path):
    file = tmp_path / "real.toml"
    file.write_text('task = { name = "octa", resolution = 256 }\nmethod = "fedavg"\n')
    changes = [f"data.source={real / 'faz'}", 'data.only=["rose"]', "federation.rounds=1"]
    changes += ["training.iterations=20", "evaluation.every=0", "evaluation.choose=last"]
    study = load_study(file, [*changes, "seeds=[0]", "evaluation.pictures=false"], BUILT_IN)
    assert (study.network.name, study.network.settings["width"]) == ("unet", 16)
    done = do_runs(study, tmp_path / "runs", resume=False, fresh=False)
    (origin,) = origins(done, BUILT_IN, sites=["rose"])
    packaged([origin]).write(tmp_path / "rose.polyclinic")
    (data,) = cases_of(origin)
    cases, expected = as_in_the_run(origin.run, data)
    found, _ = inputs_in([real / "faz" / "rose" / "test" / "images"])
    predict_all(load(tmp_path / "rose.polyclinic"), found, tmp_path / "out", Options())
    for name, mask in zip(cases.names, expected, strict=True):
        written = tmp_path / "out" / "masks" / f"{name.removeprefix('test-')}.png"
        assert (np.asarray(Image.open(written)) == mask).all()
    assert len(expected) == 9
    assert expected.any()


@pytest.mark.slow
def test_tiles_are_in_the_graph(federation, tmp_path):
    done = federation(sites=2).run("fedbn", *LEARNING, "task.tile=16")
    (origin,) = origins([done.folder.path], TABLES, sites=["fjord"])
    packaged([origin]).write(tmp_path / "m.polyclinic")
    model = load(tmp_path / "m.polyclinic", threads=1)
    data = next(site for site in cases_of(origin) if site.name == "fjord")
    cases, expected = as_in_the_run(done.run, data)
    for image, mask in zip(cases.images.numpy(), expected, strict=True):
        assert (model.classes(image) == mask).all()
