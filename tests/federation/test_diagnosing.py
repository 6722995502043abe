"""Numbers about a method's parts: what they are, where they go, and when they warn."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from polyclinic.engine.loop import Notice
from polyclinic.engine.run import runs_of
from polyclinic.evaluation.diagnostics import DIAGNOSTICS, warnings_about, warnings_of
from polyclinic.federation.diagnosing import diagnose
from polyclinic.methods.fedlppa import PLACE
from polyclinic.report.diagnostics import diagnosed
from polyclinic.report.page import write_report
from polyclinic.report.reading import read_runs
from tests.federations import a_site, perform

LAST = "evaluation.choose=last"
KINDS = ("point", "scribble", "block")


def notes_of(federation, method, *overrides):
    """The numbers of an untrained site, with full predictions of nothing."""
    chosen, site, _ = a_site(federation, method, *overrides)
    cases = site.data.train
    return diagnose(chosen, site, cases, np.zeros(cases.masks.shape, np.uint8)), site, cases


def test_the_area_is_what_was_predicted_over_what_is_true(federation):
    chosen, site, _ = a_site(federation, "fedavg")
    cases = site.data.train
    masks = cases.masks.numpy()
    for predicted, expected in ((masks, 1.0), (np.zeros_like(masks), 0.0)):
        assert diagnose(chosen, site, cases, predicted) == {"area": expected}


def test_a_copied_second_decoder_repeats_the_first_and_one_of_its_own_does_not(federation):
    for start, repeats in (("copy", True), ("own", False)):
        settings = (f"method.second_start={start}", "method.gate=none")
        notes, *_ = notes_of(federation, "fedlppa", *settings)
        assert (notes["decoders differ"] == 0) == repeats
        told = list(warnings_about("here", notes))
        assert any("the second adds nothing" in text for text in told) == repeats


def test_a_pseudo_label_that_loses_the_predicted_object_is_told(federation):
    for second, kept in ((2.0, True), (-9.0, False)):
        chosen, site, _ = a_site(federation, "fedlppa", "method.weak.least_share=0.0")
        with torch.no_grad():
            for head, object_over_background in (
                (site.net.head, 2.0),
                (site.net.second.head, second),
            ):
                head.weight.zero_()
                head.bias.copy_(torch.tensor([0.0, object_over_background]))
        cases = site.data.train
        notes = diagnose(chosen, site, cases, cases.masks.numpy())
        assert notes["pseudo label keeps"] == kept
        told = " ".join(warnings_about("here", notes))
        assert ("the pseudo label keeps only 0%" in told) != kept


def test_swapping_contexts_leaves_everything_as_it_was(federation):
    notes, site, cases = notes_of(federation, "fedlppa", "method.prompts=modulating")
    assert "context swapped" in notes
    assert torch.equal(site.net.prompts.place, torch.eye(3)[0])
    before = site.weights.copy()
    chosen, *_ = a_site(federation, "fedlppa", "method.prompts=modulating")
    diagnose(chosen, site, cases, cases.masks.numpy())
    assert torch.equal(before.flat, site.weights.flat)


def test_a_context_that_is_heard_changes_pixels_when_it_is_swapped(federation):
    chosen, site, _ = a_site(federation, "fedlppa", "method.prompts=modulating")
    cases = site.data.train
    with torch.no_grad():
        layer = site.net.modulation.layer
        layer.weight.zero_()
        layer.bias.zero_()
        layer.weight[layer.out_features // 2 :, -3:] = 50 * torch.tensor([1.0, -1.0, 0.0])
        site.net.head.bias.zero_()
    notes = diagnose(chosen, site, cases, cases.masks.numpy())
    assert notes["context swapped"] > 0.5
    assert not any("contexts" in text for text in warnings_about("here", notes))
    with torch.no_grad():
        layer.weight.zero_()
    for each in site.net.prompts.parameters():
        each.data.fill_(0.5)
    site.load({PLACE: torch.eye(3)[0]})
    assert diagnose(chosen, site, cases, cases.masks.numpy())["context swapped"] < 0.5


@pytest.mark.parametrize("name", ["fedicra", "fedlc"])
def test_gates_are_counted_where_they_saturate(federation, name):
    chosen, site, _ = a_site(federation, name)
    cases = site.data.train
    open_gates = diagnose(chosen, site, cases, cases.masks.numpy())
    assert open_gates["gates saturated"] == 0
    assert "context swapped" in open_gates
    with torch.no_grad():
        for each in site.net.gate.weigh.parameters():
            each.mul_(1e4)
    shut = diagnose(chosen, site, cases, cases.masks.numpy())
    assert shut["gates saturated"] > 0.7
    assert any("hardly learn" in text for text in warnings_about("here", shut))


def test_a_tree_that_erases_objects_is_told(federation):
    kept = {}
    for alike in (1e-6, 1e6):
        chosen, site, _ = a_site(federation, "fedavg", "training.weak.tree=0.1")
        training = site.training.model_copy(
            update={"weak": site.training.weak.changed({"tree_alike": alike})}
        )
        site.training = training

        class Truth(type(chosen)):
            """Predicts the masks."""

            def predict(self, site, images):
                inside = (site.data.train.masks[: len(images)] == 1).float()
                return torch.stack([1 - inside, inside], 1)

        cases = site.data.train
        kept[alike] = diagnose(Truth(), site, cases, cases.masks.numpy())["tree keeps"]
    assert kept[1e-6] > 0.95  # equal neighbours share what they have, however small it is
    assert kept[1e6] < 0.5
    (text,) = warnings_about("here", {"tree keeps": kept[1e6]})
    assert "tree_alike" in text


@pytest.mark.parametrize("name", DIAGNOSTICS)
def test_every_warning_has_words_with_the_value(name):
    known = DIAGNOSTICS[name]
    assert known.summary
    assert (known.bad is None) == (not known.words)
    if known.bad:
        assert any(known.bad(value) for value in (0.0, 1.0, 5.0))
        assert known.words.format(value=0.25) != known.words


def test_sites_without_any_mask_are_diagnosed_on_training_images(federation, tmp_path):
    small = federation(rounds=1, kinds=KINDS)
    study = small.study("fedlppa", LAST)
    (run,) = runs_of(study, tmp_path)
    events = list(perform(run, [maskless(site) for site in small.data(study)]))
    assert not run.folder.scores("test")
    *_, table = [each for each in run.folder.tables() if each.name == "diagnostics"]
    assert table.final
    assert table.rows == tuple(site.name for site in run.folder.about().sites)
    found = {"decoders differ", "pseudo label keeps", "context swapped", "W mean"}
    assert found <= set(table.columns)
    assert not {"area", "pseudo label Dice"} & set(table.columns), "these need masks"
    told = [event.text for event in events if isinstance(event, Notice)]
    assert any("W stayed within 0.01 of 1" in text for text in told)


def maskless(site):
    """A site that knows its weak labels alone."""
    splits = ("train", "val", "test")
    cases = {each: getattr(site, each) for each in splits}
    unknown = {n: replace(c, masks=torch.full_like(c.masks, 255)) for n, c in cases.items()}
    return replace(site, **unknown)


def test_what_is_bad_at_several_sites_is_said_once():
    sites = {"a": {"area": 1.0, "W mean": 1.0}, "b": {"area": 3.0, "W mean": 0.999}, "c": {}}
    area, mixture = warnings_of(sites)
    assert area == "b: the foreground predicted has 3.00 times the true area"
    assert mixture.startswith("a: W stayed within 0.01 of 1 (mean 1.0000)")
    assert mixture.endswith("; likewise at b")
    (many,) = warnings_of({str(number): {"area": 3.0} for number in range(20)})
    assert many.endswith("; likewise at 19 other sites")


def test_numbers_are_in_the_run_folder_for_every_validation_and_in_the_report(federation, tmp_path):
    done = federation(rounds=2, kinds=KINDS).run("fedicra", LAST)
    tables = [table for table in done.folder.tables() if table.name == "diagnostics"]
    assert [table.round for table in tables] == [1, 2, 2]  # the last with the test cases
    names = {"area", "gates saturated", "gates over images", "context swapped"}
    assert {*names, "W mean", "W deviation"} <= set(tables[-1].columns)
    assert tables[-1].rows == tuple(site.name for site in done.folder.about().sites)
    notices = [event.text for event in done.events if isinstance(event, Notice)]
    assert any("W stayed within 0.01 of 1" in text for text in notices)
    page = write_report([done.folder.path], tmp_path).read_text()
    assert "Inside the methods" in page
    assert "W stayed within 0.01 of 1" in page
    (found,) = diagnosed(read_runs([done.folder.path]))
    assert set(found.warnings) == set(notices)
