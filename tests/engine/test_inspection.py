"""What a run keeps for the figures of the report, and that it changes nothing."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

from polyclinic.engine.local import assign
from polyclinic.engine.pictures import CASES, DRAWN, PIXELS, embedded, image_features
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.federation.method import Method
from polyclinic.methods import METHODS
from polyclinic.runs import SIZES, read_embeddings
from tests.federations import equal

NAME = "virtual-classes"
PICTURES = "evaluation.pictures=true"


@dataclass(frozen=True)
class Looking(Method):
    """FedAvg that says where it looks: at the bright half of an image, and at its upper half."""

    def attention_maps(self, site, images):
        upper = torch.zeros(len(images), 4, 4)
        upper[:, :2] = 1
        return {"bright": images.mean(1), "upper half": upper}


@dataclass(frozen=True)
class Remembering(METHODS["ditto"]):
    """Ditto, whose model in use is not the network's own."""


def an_opened_site(federation, **changes):
    small = federation(task="fundus", **changes)
    study = small.study(NAME)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    return runner.opened(runner.assignment.sites[0], data[0], None), data[0].test


def test_a_run_keeps_embeddings_of_the_same_pixels_before_and_after(federation):
    done = federation(task="fundus", rounds=2).run(NAME, PICTURES)
    for site in done.folder.about().sites:
        before, after = read_embeddings(done.folder.embeddings_path(site.name))
        assert (before.moment, after.moment) == ("before", "after")
        assert np.array_equal(before.classes, after.classes)
        assert before.values.shape == after.values.shape == (len(before.classes), 2)
        assert len(before.classes) <= PIXELS
        assert set(before.classes) == {0, 1, 2}
        assert not np.allclose(before.values, after.values)


def test_embeddings_are_what_the_head_sees_at_pixels_of_the_classes_named(federation):
    site, cases = an_opened_site(federation)
    found = embedded("before", site, cases)
    chosen = cases.select(range(min(CASES, len(cases))))
    offset, scale = (each[:, :, None, None] for each in (chosen.offset, chosen.scale))
    images = (chosen.images.float() - offset) / scale
    with torch.no_grad():
        maps = site.net.eval().embed(images).double().movedim(1, 3)
    for number in range(3):
        there = maps[chosen.masks == number]
        those = torch.from_numpy(found.values[found.classes == number])
        distance = torch.cdist(those, there).amin(1)
        assert distance.max() < 1e-5


def test_every_class_has_its_share_of_the_pixels(federation):
    site, cases = an_opened_site(federation)
    _, counts = np.unique(embedded("before", site, cases).classes, return_counts=True)
    assert counts.max() <= PIXELS // 3
    assert counts.min() > 0


def test_a_site_without_cases_has_no_embeddings(federation):
    site, cases = an_opened_site(federation)
    nothing = embedded("before", site, cases.select([]))
    assert len(nothing.classes) == len(nothing.values) == 0


def test_looking_inside_changes_no_weight_and_no_score(federation):
    small = federation(rounds=2)
    with_it, without = small.run(NAME, PICTURES), small.run(NAME)
    for owner in ("server", *(site.name for site in without.folder.about().sites)):
        assert equal(with_it.tensors(owner), without.tensors(owner))
    assert with_it.folder.scores() == without.folder.scores()
    assert not (without.folder.path / "embeddings").exists()


def test_embeddings_are_those_of_the_model_in_use(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "remembering", Remembering)
    small = federation(rounds=2)
    done = small.run("remembering", PICTURES)
    data = small.data(done.run.study)
    runner = SiteRunner(assign(done.run, data), torch.device("cpu"))
    for info, its in zip(runner.assignment.sites, data, strict=True):
        _, kept = read_embeddings(done.folder.embeddings_path(info.name))
        site = runner.opened(info, its, SiteState(done.site(info.name), done.memory(info.name)))
        idle = embedded("after", site, its.test)
        with runner.assignment.method.in_use(site):
            used = embedded("after", site, its.test)
        np.testing.assert_allclose(kept.values, used.values, rtol=1e-4, atol=1e-5)
        assert not np.allclose(kept.values, idle.values, rtol=1e-4, atol=1e-5)


def test_methods_without_maps_draw_none(federation):
    done = federation(rounds=1).run("fedavg", PICTURES)
    assert not (done.folder.path / "attention").exists()


def test_features_of_images_are_the_mean_of_the_encoders_coarsest_map(federation):
    site, cases = an_opened_site(federation)
    found = image_features("before", site, cases)
    offset, scale = (each[:, :, None, None] for each in (cases.offset, cases.scale))
    with torch.no_grad():
        maps = site.net.eval().encoder((cases.images.float() - offset) / scale)[-1]
    assert found.values == pytest.approx(maps.mean((2, 3)).double().numpy(), abs=1e-5)


def test_every_run_keeps_features_of_its_images_and_the_time_of_one(federation):
    done = federation(rounds=1).run("fedavg", PICTURES)
    for site in done.folder.about().sites:
        before, after = read_embeddings(done.folder.features_path(site.name))
        assert before.values.shape == after.values.shape
        assert len(after.values) == site.test
        assert done.folder.end().predicting[site.name] > 0


def test_every_method_draws_the_same_cases_by_the_size_of_what_is_true(federation):
    small = federation(task="fundus", rounds=1)
    drawn = []
    for method in ("fedavg", "local"):
        done = small.run(method, PICTURES)
        sites = done.folder.about().sites
        pictures = [p for site in sites for p in done.folder.pictures(site.name)]
        drawn.append([(p.site, p.rank, p.case) for p in pictures if p.rank in SIZES])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 3 * len(sites)
    data = {site.name: site.test for site in small.data(done.run.study)}
    for site in sites:
        cases = data[site.name]
        sizes = sorted(int(size) for size in (cases.masks > 0).flatten(1).sum(1))
        places = {rank: cases.names.index(case) for s, rank, case in drawn[0] if s == site.name}
        found = {rank: int((cases.masks[place] > 0).sum()) for rank, place in places.items()}
        last = len(sizes) - 1
        expected = [sizes[round(share * last)] for share in (0.25, 0.5, 0.75)]
        assert [found[rank] for rank in SIZES] == expected


def test_virtual_classes_are_drawn_as_a_map(federation):
    done = federation(task="fundus", rounds=1).run(NAME, PICTURES)
    site = done.folder.about().sites[0]
    pictures = done.folder.attention_pictures(site.name)
    assert "virtual classes" in {picture.name for picture in pictures}
    assert {picture.shows for picture in pictures} == {"classes"}


def test_what_prompts_add_is_drawn_as_their_context(federation):
    done = federation(task="fundus", rounds=1).run("fedlppa", PICTURES)
    site = done.folder.about().sites[0]
    assert {each.shows for each in done.folder.attention_pictures(site.name)} == {"context"}


def test_other_metrics_and_test_cases_are_watched_without_changing_anything(federation):
    small = federation(rounds=2)
    plain = small.run("fedavg", "evaluation.every=1")
    watched = small.run(
        "fedavg",
        "evaluation.every=1",
        'evaluation.validation=["iou"]',
        'evaluation.watch=["dice"]',
        'evaluation.metrics=["dice"]',
    )
    for site in plain.folder.about().sites:
        assert equal(plain.site(site.name), watched.site(site.name))
    found = {(score.split, score.metric, score.round) for score in watched.folder.scores()}
    chosen = watched.folder.end().chosen_round
    assert found == {
        *((split, "dice", number) for split in ("val", "watch") for number in (1, 2)),
        *(("val", "iou", number) for number in (1, 2)),
        ("test", "dice", chosen),
    }
    assert plain.folder.end().chosen_round == chosen


def test_maps_of_attention_are_drawn_over_the_first_cases(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "looking", Looking)
    done = federation(rounds=1).run("looking", PICTURES)
    sites = done.folder.about().sites
    for site in sites:
        pictures = done.folder.attention_pictures(site.name)
        others = {f"upper half, {other.name}" for other in sites if other != site}
        assert {picture.name for picture in pictures} == {"bright", "upper half", *others}
        assert len(pictures) == (2 + len(others)) * min(DRAWN, site.test)
        upper = next(picture for picture in pictures if picture.name == "upper half")
        with Image.open(upper.path) as image:
            pixels = np.asarray(image).astype(float)
        yellow = pixels[:, :, 0] - pixels[:, :, 2]
        assert yellow[:64].mean() > yellow[-64:].mean() + 100


@pytest.mark.parametrize("method", ["fedicra", "fedlppa"])
def test_networks_of_other_methods_say_what_their_head_sees(federation, method):
    small = federation(rounds=1, kinds=("scribble",))
    study = small.study(method)
    (run,) = runs_of(study, small.folder / "runs")
    net = SiteRunner(assign(run, small.data(study)), torch.device("cpu")).net.eval()
    images = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(net.head(net.embed(images)), net(images))


@pytest.mark.parametrize("method", ["fedlppa", "fedicra", "ditto"])
def test_methods_with_settings_and_models_of_their_own_are_looked_at_without_harm(
    federation, method
):
    quick = () if method == "ditto" else ("method.mixing.first_passes=1",)
    done = federation(rounds=1, sites=2, kinds=("scribble",)).run(method, PICTURES, *quick)
    assert done.folder.finished
