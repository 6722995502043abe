from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.methods.metafed import SKILLED, distillation_loss, personal_weight
from tests.federations import equal

LAST = "evaluation.choose=last"
BARE = ("method.alone=0.0", "method.personal=0.0", LAST)


def test_one_site_is_local_training(federation):
    small = federation(sites=1, rounds=3)
    ring = small.run("metafed", "method.skilled_above=1.1", *BARE)
    local = small.run("local", LAST)
    (site,) = local.folder.about().sites
    assert equal(ring.site(site.name), local.site(site.name))


def test_skilled_sites_without_distillation_train_locally(federation):
    small = federation(rounds=3)
    settings = ("method.skilled_above=-1.0", "method.distillation=0.0", *BARE)
    ring, local = small.run("metafed", *settings), small.run("local", LAST)
    for site in local.folder.about().sites:
        assert equal(ring.site(site.name), local.site(site.name))


def test_unskilled_sites_hand_one_model_on(federation):
    small = federation(sites=2, rounds=1)
    ring = small.run("metafed", "method.skilled_above=1.1", *BARE)
    first, second = ring.folder.about().sites
    alone = small.run("local", LAST)
    assert equal(ring.site(first.name), alone.site(first.name))
    assert not equal(ring.site(second.name), alone.site(second.name))
    server = {n.removeprefix("weights/"): t for n, t in ring.tensors("server").items()}
    assert equal(ring.site(second.name), server)


def test_each_site_starts_from_its_neighbours_newest_model(federation, monkeypatch):
    from polyclinic.methods.metafed import MetaFed

    seen = []
    train = MetaFed.train

    def watched(self, site):
        start = site.weights.copy()
        train(self, site)
        seen.append((start, site.weights.copy()))

    monkeypatch.setattr(MetaFed, "train", watched)
    federation(sites=3, rounds=2).run("metafed", "method.skilled_above=1.1", *BARE)
    assert len(seen) == 6
    for (_, left), (start, _) in pairwise(seen):
        assert torch.equal(left.flat, start.flat)


def test_private_norms_are_not_handed_on(federation):
    small = federation(sites=2, rounds=1)
    settings = ("method.skilled_above=1.1", "method.private_norms=true", *BARE)
    ring = small.run("metafed", *settings)
    names = [site.name for site in ring.folder.about().sites]
    shared = small.run("metafed", "method.skilled_above=1.1", *BARE)
    assert not equal(ring.site(names[1]), shared.site(names[1]))


def test_a_skilled_site_stays_skilled(federation):
    done = federation(rounds=2).run("metafed", "method.skilled_above=-1.0", LAST)
    for site in done.folder.about().sites:
        assert done.memory(site.name)[SKILLED] == 1


@given(st.floats(0, 5), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_personal_weight_lies_between_zero_and_the_setting(weight, theirs, own, useful):
    assert 0 <= personal_weight(weight, theirs, own, useful) <= weight


def test_a_worse_model_below_use_teaches_nothing():
    assert personal_weight(1.0, theirs=0.3, own=0.4, useful_above=0.5) == 0
    assert personal_weight(1.0, theirs=0.9, own=0.5, useful_above=0.5) == 1


def test_distillation_has_a_gradient_and_vanishes_at_the_teacher(federation):
    small = federation()
    study = small.study("metafed")
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    info, stage = runner.assignment.sites[0], runner.assignment.stage("fit")
    site = runner._site(info, data[0], stage, Message(runner.initial), None, 1)
    (batch,) = site.batches("main", 1)
    same = site.twin(site.weights)
    other = site.twin({n: t + 0.1 for n, t in site.weights.items()})
    site.net.eval()
    plain = distillation_loss(site, batch, same, 0.0)
    assert torch.equal(distillation_loss(site, batch, same, 5.0), plain)
    gradients = []
    for teacher in (same, other):
        site.net.zero_grad()
        distillation_loss(site, batch, teacher, 1.0).backward()
        gradients.append(next(site.net.encoder.parameters()).grad.clone())
    assert not torch.equal(*gradients)


def test_it_needs_validation_cases(federation, monkeypatch):
    from dataclasses import replace

    small = federation(sites=1)
    data = small.data
    monkeypatch.setattr(
        small, "data", lambda study: [replace(s, val=s.val.select([])) for s in data(study)]
    )
    with pytest.raises(ValueError, match="MetaFed needs validation cases at site"):
        small.run("metafed", LAST)
