import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from polyclinic.data.cases import with_masks
from polyclinic.data.tasks import TASKS
from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of, site_info
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.engine.unseen import finished_run, rest, try_models, tune
from polyclinic.evaluation.scoring import score_cases
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, part
from polyclinic.runs import (
    DECODER,
    ENSEMBLE,
    REESTIMATED,
    SHARED,
    TUNED,
    RunError,
    RunFolder,
    read_guests,
)
from tests.federations import perform, small_data
from tests.small_unet import TABLES

LAST = "evaluation.choose=last"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def stranger():
    """A site that is no site of the small federations."""
    return small_data("octa", 4)[3]


def tried(done, stranger, **settings):
    return try_models(finished_run(done.folder, TABLES), stranger, CPU, iterations=2, **settings)


def by_model(rows):
    models = dict.fromkeys(row.model for row in rows)
    return {each: [row[2:] for row in rows if row.model == each] for each in models}


def runner_of(done, small):
    return SiteRunner(assign(done.run, small.data(done.run.study)), CPU)


NO_ENHANCEMENT = "method.enhancement.share=0.0"
ALIKE = [SHARED, REESTIMATED]  # where nothing is private
REST = ("fedbn", "ditto")


@pytest.mark.parametrize(
    ("method", "settings", "ways"),
    [
        *((each, (), ALIKE) for each in ("ditto", "fedavg", "centralized")),
        *((each, (), [TUNED]) for each in ("pflfe", "local")),
        ("feddp", (), [TUNED]),
        ("fedlppa", ("method.mixing.first_passes=2",), ALIKE),
        pytest.param("pflfe", (NO_ENHANCEMENT,), [TUNED], marks=pytest.mark.slow),
        ("fc-pflfe", (NO_ENHANCEMENT,), [TUNED]),
    ],
)
def test_every_site_s_model_their_ensemble_and_what_the_site_can_make_are_scored(
    federation, stranger, method, settings, ways
):
    done = federation(sites=2, rounds=1).run(method, *settings, LAST)
    rows = tried(done, stranger)
    sites = [site.name for site in done.folder.about().sites]
    assert list(by_model(rows)) == [*sites, ENSEMBLE, *ways, DECODER]
    cases = set(with_masks(stranger.test).names)
    metrics = set(done.run.study.evaluation.metrics)
    for each in by_model(rows).values():
        assert {case for case, *_ in each} == cases
        assert {metric for *_, metric, _, _ in each} == metrics
    file = done.folder.path / f"unseen-{stranger.name}.csv"
    with file.open() as opened:
        assert len(list(csv.DictReader(opened))) == len(rows)


def test_a_site_that_did_take_part_finds_its_own_scores_again(federation):
    small = federation()
    for method in ("fedbn", "ditto"):
        done = small.run(method, LAST)
        known = small.data(done.run.study)[1]
        found = by_model(tried(done, known))[known.name]
        scores = [
            (score.case, score.region, score.metric, score.value, score.patient)
            for score in done.folder.scores("test")
            if score.site == known.name
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, scores))


def test_the_ensemble_is_the_class_of_the_mean_probability(federation, stranger):
    small = federation()
    done = small.run("fedbn", LAST)
    runner = runner_of(done, small)
    cases = with_masks(stranger.test)
    total = 0
    for info in runner.assignment.sites:
        site = runner.opened(info, stranger, SiteState(done.site(info.name), {}))
        site.net.eval()
        offset, scale = (each.view(-1, 1, 1, 1) for each in (cases.offset, cases.scale))
        with torch.no_grad():
            total = total + site.net((cases.images.float() - offset) / scale).softmax(1)
    expected = score_cases(
        total.argmax(1).numpy().astype(np.uint8),
        cases.masks.numpy(),
        cases.names,
        runner.assignment.task.regions,
        cases.spacing.numpy(),
        ["dice"],
    )
    found = [row for row in by_model(tried(done, stranger))[ENSEMBLE] if row[2] == "dice"]
    assert [row[3] for row in found] == pytest.approx([row.value for row in expected], abs=1e-3)


def a_guest(done, small, stranger):
    runner = runner_of(done, small)
    guest = site_info(stranger, TASKS["octa"])
    site = runner.opened(guest, stranger, None)
    server = {
        name.removeprefix("weights/"): tensor
        for name, tensor in done.tensors("server").items()
        if name.startswith("weights/")
    }
    site.message = Message(Weights.pack(server))
    return site, server


def test_tuning_trains_what_it_is_told_and_leaves_all_else_bit_by_bit(federation, stranger):
    small = federation()
    site, _ = a_guest(small.run("pflfe", LAST), small, stranger)
    first = site.weights.copy()
    decoder = part(site.net, "decoder") | part(site.net, "head")
    tune(site, decoder, 3)
    for name in part(site.net, "encoder"):
        assert torch.equal(site.weights[name], first[name])
    assert all(not torch.equal(site.weights[name], first[name]) for name in decoder)
    assert [fit.steps for fit in site.fits] == [3]


def test_tuning_takes_as_long_as_a_site_of_the_run_did_unless_told(federation, stranger):
    small = federation(sites=2, rounds=3)
    site, _ = a_guest(small.run("pflfe", LAST), small, stranger)
    tune(site, part(site.net, "decoder"))
    assert [fit.steps for fit in site.fits] == [3 * 2]


def trained_there(monkeypatch, done, stranger):
    """What a site trains for each row: the weights before, after and which of them."""
    found = []

    def watched(site, names, iterations):
        before = site.weights.copy()
        tune(site, names, iterations)
        found.append((before, site.weights.copy(), names))

    monkeypatch.setattr("polyclinic.engine.unseen.tune", watched)
    tried(done, stranger)
    return found


@pytest.mark.parametrize(
    "method", ["fedavg", "fedrep", *(pytest.param(m, marks=pytest.mark.slow) for m in REST)]
)
def test_for_every_method_the_decoder_is_tuned_behind_a_frozen_encoder(
    federation, stranger, monkeypatch, method
):
    small = federation()
    done = small.run(method, LAST)
    site, server = a_guest(done, small, stranger)
    before, after, _ = trained_there(monkeypatch, done, stranger)[-1]
    encoder = part(site.net, "encoder")
    assert all(torch.equal(before[name], after[name]) for name in encoder)
    rest = everything(site.net) - encoder
    assert all(not torch.equal(before[name], after[name]) for name in rest)
    models = [done.site(info.name) for info in done.folder.about().sites]
    for name in before:  # the shared weights, and the mean of those that are not
        mean = sum(each[name].double() for each in models) / len(models)
        assert torch.equal(before[name], server.get(name, mean.float()))


def test_the_shared_model_is_every_site_s_where_nothing_is_private(federation, stranger):
    models = by_model(tried(federation().run("fedavg", LAST), stranger))
    assert models[SHARED] == next(iter(models.values()))
    assert models[REESTIMATED] != models[SHARED]


def test_where_only_statistics_are_private_they_are_found_at_the_site(federation, stranger):
    small = federation()
    done = small.run("fedavg", "federation.statistics=private", LAST)
    models = by_model(tried(done, stranger))
    assert SHARED not in models
    assert TUNED not in models
    assert REESTIMATED in models


def test_a_left_out_site_takes_no_part_and_is_scored_at_the_end(federation):
    """The scores are those of `polyclinic unseen` with the same models."""
    small = federation(sites=3)
    done = small.run("fedrep", "data.leave_out=grove", LAST)
    (known,) = (site for site in small.data(done.run.study) if site.name == "grove")
    assert done.folder.about().left_out == "grove"
    assert "grove" not in {site.name for site in done.folder.about().sites}
    assert {line.site for line in done.folder.rounds()} == {"fjord", "heath"}
    assert not done.folder.weights_path("grove").exists()
    written = read_guests(done.folder, unseen=True)
    assert {row.site for row in written} == {"grove"}
    assert repr(try_models(finished_run(done.folder, TABLES), known, CPU)) == repr(written)


def test_a_run_stopped_while_it_scores_the_left_out_site_goes_on(federation, monkeypatch):
    small = federation(sites=3, rounds=1)
    study = small.study("fedrep", "data.leave_out=grove", LAST)
    (run,) = runs_of(study, small.folder / "runs")
    with monkeypatch.context() as patch:
        patch.setattr("polyclinic.engine.unseen.write_guests", stop)
        with pytest.raises(KeyboardInterrupt):
            list(perform(run, small.data(study)))
    assert not run.folder.finished
    list(perform(run, small.data(study)))
    assert run.folder.finished
    again = read_guests(run.folder, unseen=True)
    assert {(row.model, row.site) for row in again} == {
        (model, "grove") for model in ("fjord", "heath", ENSEMBLE, TUNED, DECODER)
    }


def stop(*_, **__):
    raise KeyboardInterrupt


def test_norms_rest_where_their_statistics_are_shared():
    net = NETWORKS["unet"](channels=1, classes=2, width=2).train()
    rest(net, part(net, "encoder"))
    assert not net.encoder.levels[0].norm1.training
    assert net.decoder.levels[0].combine.norm1.training
    net.train()
    rest(net, everything(net) - {n for n in everything(net) if "running" in n})
    assert net.encoder.levels[0].norm1.training


def test_what_cannot_be_tried_is_said(federation, stranger, tmp_path):
    done = federation().run("fedbn", LAST, name="to be robbed")
    nobody = replace(stranger, test=stranger.test.select([]))
    with pytest.raises(RunError, match="no test cases with masks"):
        tried(done, nobody)
    name = done.folder.about().sites[0].name
    done.folder.weights_path(name).unlink()
    with pytest.raises(RunError, match=f"lacks the models of {name}: across hospitals"):
        finished_run(done.folder, TABLES)
    with pytest.raises(RunError, match="is not finished"):
        finished_run(RunFolder(tmp_path / "nothing"), TABLES)
