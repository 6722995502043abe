"""Terms for weak labels are the study's: they work with any method, and a row may have its own."""

import re
from pathlib import Path

import pytest
import torch

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study, to_toml
from polyclinic.federation.method import Method
from polyclinic.losses import crf_energy
from polyclinic.methods import METHODS
from polyclinic.networks.parts import norms
from tests.federations import a_site, equal

LAST = "evaluation.choose=last"
KINDS = ("point", "scribble", "box-block")
CRF = "training.weak.crf=0.1"
OFF = {
    "fedicra": ("method.adaptive_aggregation=false", "method.site_gate=none"),
    "fedlppa": (
        "method.fusion=false",
        "method.second_decoder=none",
        "method.learned_aggregation=false",
    ),
}


@pytest.mark.parametrize(("name", "tree"), [("fedicra", "0.1"), ("fedlppa", "0.0")])
def test_fedavg_with_a_term_is_each_method_with_all_but_that_term_off(federation, name, tree):
    small = federation(sites=2, rounds=2, kinds=KINDS)
    terms = (CRF, "training.weak.tree=0.0", LAST)
    alone = small.run(name, *OFF[name], *terms)
    fedavg = small.run("fedavg", *terms)
    assert equal(alone.tensors("server"), fedavg.tensors("server"))
    assert not equal(fedavg.tensors("server"), small.run("fedavg", LAST).tensors("server"))


QUICK = ("fedprox", "fedper", "centralized")
LATER = {"moon": 2, "fedgkd": 2, "consensus": 3}  # rounds until the loss is one of its own
SLOW = [name for name in METHODS if name not in (*QUICK, "fedicra", "fedlppa")]


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_terms_act_with_every_method_whatever_its_loss(federation, name):
    small = federation(sites=2, rounds=LATER.get(name, 1), kinds=KINDS)
    with_it, without = small.run(name, CRF, LAST), small.run(name, LAST)
    for site in without.folder.about().sites:
        assert not equal(with_it.tensors(site.name), without.tensors(site.name))


@pytest.mark.parametrize(
    "name", ["fedprox", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]
)
@pytest.mark.parametrize("term", ["tree", "box_tightness"])
def test_trees_and_tight_boxes_act_too(federation, name, term):
    small = federation(sites=2, rounds=LATER.get(name, 1), kinds=("box-block",))
    with_it, without = (
        small.run(name, f"training.weak.{term}={weight}", LAST) for weight in (0.1, 0.0)
    )
    for site in without.folder.about().sites:
        assert not equal(with_it.tensors(site.name), without.tensors(site.name))


def test_sites_with_full_masks_have_no_terms(federation):
    small = federation(sites=2, rounds=1)
    terms = (CRF, "training.weak.tree=0.1", "training.weak.box_tightness=0.1")
    with_them, without = small.run("fedavg", *terms, LAST), small.run("fedavg", LAST)
    assert equal(with_them.tensors("server"), without.tensors("server"))


def test_a_term_adds_its_weighted_value_to_the_loss(federation):
    method, site, batch = a_site(federation, "fedavg", "training.weak.crf=0.3")
    site.net.eval()
    logits = site.net(batch.images)
    energy = crf_energy(site.training.weak, logits.softmax(1), batch.images)
    expected = site.supervised(logits, batch.labels) + 0.3 * energy
    torch.testing.assert_close(method.loss(site, batch), expected)


def rows(tmp_path, text):
    file = tmp_path / "study.toml"
    file.write_text(f'task = "octa"\n{text}')
    return load_study(file, [], BUILT_IN)


def test_what_a_row_sets_stands_before_the_study_and_that_before_the_method(tmp_path):
    study = rows(
        tmp_path,
        "[training.weak]\ncrf = 0.03\n"
        '[[method]]\nname = "fedavg"\n'
        '[[method]]\nname = "fedavg"\ntitle = "control"\nweak = { crf = 0 }\n'
        '[[method]]\nname = "fedicra"\n'
        '[[method]]\nname = "fedlppa"\nweak = { least_share = 0 }\n',
    )
    plain, control, fedicra, fedlppa = (each.weak for each in study.method)
    assert plain is None
    assert not control.on
    assert (fedicra.crf, fedicra.tree) == (0.03, 0.1)
    assert (fedlppa.crf, fedlppa.pseudo_labels, fedlppa.least_share) == (0.03, 0.5, 0)
    file = tmp_path / "again.toml"
    file.write_text(to_toml(study))
    assert load_study(file, [], BUILT_IN) == study


def test_rows_that_differ_in_their_terms_alone_are_told_apart(tmp_path):
    entries = '[[method]]\nname = "fedavg"\n[[method]]\nname = "fedavg"\nweak = { crf = 0.1 }\n'
    titles = [each.title for each in rows(tmp_path, entries).method]
    assert titles == ["FedAvg (weak.crf=0.0)", "FedAvg (weak.crf=0.1)"]


def test_pseudo_labels_give_any_method_a_second_decoder_of_its_own_start(federation):
    method, site, batch = a_site(federation, "fedavg", "training.weak.pseudo_labels=0.5")
    main, second = site.net.head.weight, site.net.second.head.weight
    assert main.shape == second.shape
    assert not torch.equal(main, second)
    site.net.train()
    method.loss(site, batch).backward()
    assert all(parameter.grad is not None for parameter in site.net.parameters())


@pytest.mark.parametrize("name", ["fedbn", "fedrep"])
def test_what_is_private_of_the_first_decoder_is_private_of_the_second(federation, name):
    method, site, _ = a_site(federation, name, "training.weak.pseudo_labels=0.5")
    private = {each for each in site.weights if each not in method.shares(site.net)}
    first = {each for each in private if not each.startswith("second.")}
    decoders = {each for each in first if each.startswith(("decoder.", "head."))}
    assert decoders
    assert private == first | {f"second.{each}" for each in decoders}
    if name == "fedbn":
        assert private == norms(site.net)


@pytest.mark.parametrize(("name", "title"), [("fedicra", "FedICRA"), ("moon", "MOON")])
def test_where_a_second_decoder_would_not_learn_pseudo_labels_are_refused(federation, name, title):
    with pytest.raises(ValueError, match=rf"{title} .* second decoder .* pseudo_labels = 0"):
        a_site(federation, name, "training.weak.pseudo_labels=0.5")


def test_the_page_names_all_methods_that_refuse_pseudo_labels():
    page = (Path(__file__).parents[2] / "docs" / "weak-labels.md").read_text()
    said = page.partition("`pseudo_labels` are refused")[2].partition("FedLPPA has")[0]
    own = {n for n, m in METHODS.items() if m.one_branch or m.adapt is not Method.adapt}
    assert set(re.findall(r"`([a-z-]+)`", said)) == own - {"fedlppa"}
