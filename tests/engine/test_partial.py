"""Studies with sites that annotate different classes."""

from dataclasses import replace
from itertools import chain

import pytest
import torch

from polyclinic.engine.local import load_data
from polyclinic.engine.tensors import load_tensors
from polyclinic.report import write_report
from polyclinic.report.pictures import site_examples
from polyclinic.report.reading import read_runs
from polyclinic.runs import RunError, RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.engine.partial_sites import SITES, dice, run, sites, study, taken_for_full
from tests.federations import NEEDS, equal, run_locally

TINY = ("network.width=2", "training.iterations=1", "training.batch=4", "federation.rounds=1")
TERMS = {
    "fedgkd": ("method.teacher=vote", "federation.rounds=2"),
    "fedlppa": ("method.weak.crf=0.1", "method.mixing.first_passes=1"),
    "fedicra": ("method.mixing.first_passes=1",),
}


@pytest.fixture(scope="module")
def federation_of_two(tmp_path_factory):
    """The run of a study file that says of each site what it annotates."""
    folder = tmp_path_factory.mktemp("partial")
    only = ", ".join(f'"{name}"' for name in SITES)
    blocks = (f'[[site]]\nname = "{n}"\nannotates = ["{r}"]\n' for n, r in SITES.items())
    extra = f"[data]\nsize = 0.1\nonly = [{only}]\n" + "".join(blocks)
    chosen = study(folder / "partial.toml", "fedavg", *TINY, resolution=32, extra=extra)
    (done,) = run_locally(chosen, folder / "runs", watch=lambda *_: None)
    return done


def test_scores_count_only_regions_that_are_known(federation_of_two):
    found = {(row.site, row.region) for row in federation_of_two.folder.scores()}

    assert found == {*SITES.items()}


def test_the_report_says_which_site_annotates_what(federation_of_two, tmp_path):
    page = write_report([federation_of_two.folder.path], tmp_path).read_text()

    assert "background · rim or cup" in page
    assert "background or rim · cup" in page
    assert "amber and birch do not annotate all classes" in page


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("centralized", "mask"),
        ("fedgkd", "mask"),
        ("virtual-classes", "mask"),
        ("fedicra", "scribble"),
        ("fedlppa", "scribble"),
        pytest.param("feddp", "mask", marks=pytest.mark.slow),
        pytest.param("fedlc", "mask", marks=pytest.mark.slow),
        pytest.param("fedsoup", "mask", marks=pytest.mark.slow),
        pytest.param("fedsm", "mask", marks=pytest.mark.slow),
    ],
)
def test_methods_with_terms_of_their_own_work(tmp_path, method, kind):
    needed = chain(NEEDS.get(method, ()), TERMS.get(method, ()))
    width = [each for each in TINY if method != "feddp" or "width" not in each]
    chosen = study(tmp_path / "s.toml", method, *width, *needed, resolution=32)

    done = run(chosen, sites(32, 0.1, partial=True, kind=kind), tmp_path)
    assert {(row.site, row.region) for row in done.folder.scores()} == {*SITES.items()}


def test_hospitals_with_partial_masks_get_the_same_bits_as_one_machine(tmp_path):
    hospitals = Hospitals(tmp_path, sites=2, task="fundus")
    for name, region in SITES.items():
        file = tmp_path / "data" / name / "site.toml"
        file.write_text(f'annotates = ["{region}"]\n')
    chosen = hospitals.study("fedavg", "federation.rounds=1", "evaluation.every=1")
    with pytest.raises(ValueError, match="a mask has 0 background, 1 rim or cup"):
        hospitals.run_locally(chosen)
    for name in SITES:
        (tmp_path / "data" / name / "site.toml").unlink()
    own = [f'site.{name}.annotates=["{region}"]' for name, region in SITES.items()]
    chosen = hospitals.study("fedavg", "federation.rounds=1", "evaluation.every=1", *own)

    here = hospitals.run_locally(chosen)
    hospitals.run_with(InProcessLink.of(hospitals.services()), chosen)
    there = hospitals.run_folder(chosen)
    ours, theirs = (
        load_tensors(folder / "weights" / "server.safetensors")[0] for folder in (there, here)
    )
    assert equal(ours, theirs)
    ours, theirs = (RunFolder(folder) for folder in (there, here))
    assert ours.about().sites == theirs.about().sites
    assert [site.annotates for site in ours.about().sites] == [
        "background · rim or cup",
        "background or rim · cup",
    ]
    # Scores leave a hospital with three digits.
    values = [
        [(s.site, s.region, round(s.value, 3)) for s in each.scores()] for each in (ours, theirs)
    ]
    assert values[0] == values[1]


def test_sites_without_masks_are_drawn_without_scores(tmp_path):
    data = sites(32, 0.1, partial=False)
    blind = replace(
        data[0], test=replace(data[0].test, masks=torch.full_like(data[0].test.masks, 255))
    )
    chosen = study(tmp_path / "s.toml", "fedavg", *TINY, "evaluation.pictures=true", resolution=32)
    done = run(chosen, [blind, data[1]], tmp_path)

    assert {row.site for row in done.folder.scores() if row.split == "test"} == {data[1].name}
    pictures = done.folder.pictures(data[0].name)
    assert [each.rank for each in pictures] == ["unscored"] * min(3, len(blind.test))
    first, _ = site_examples(read_runs([done.folder.path]))
    assert first.unscored
    assert [each.case for _, (each,) in first.rows] == [each.case for each in pictures]
    assert {each.caption for _, (each,) in first.rows} == {""}


def test_a_study_whose_masks_show_nothing_that_is_scored_is_told_so(tmp_path):
    extra = '[data]\nsize = 0.1\nonly = ["amber"]\n[[site]]\nname = "amber"\nannotates = ["rim"]\n'
    chosen = study(tmp_path / "s.toml", "fedavg", *TINY, resolution=32, extra=extra)

    with pytest.raises(RunError, match=r"split is fine, but its . validation cases have no mask"):
        load_data(chosen, None, splits_folder=None)


@pytest.mark.slow
def test_two_sites_with_complementary_classes_end_with_a_model_that_segments_both(tmp_path):
    settings = (
        *("network.width=4", "federation.rounds=20", "evaluation.choose=last"),
        *("evaluation.every=20", 'evaluation.metrics=["dice"]'),
    )
    chosen = study(tmp_path / "s.toml", "fedavg", *settings, resolution=48)
    full, partial = (sites(48, 1.0, partial=each) for each in (False, True))
    naive = [taken_for_full(site) for site in partial]

    found = {
        name: dice(run(chosen, data, tmp_path / name), full)
        for name, data in {"all": full, "marginal": partial, "naive": naive}.items()
    }
    assert min(found["marginal"].values()) > 0.7
    assert found["marginal"]["disc"] > found["naive"]["disc"] + 0.05
