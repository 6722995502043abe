import shutil
from dataclasses import replace

import numpy as np
import pytest

from polyclinic.report.overview import same_settings, warnings
from polyclinic.report.reading import read_runs
from polyclinic.runs import RunError, RunFolder, Score
from tests.report.invented import SITES, write_run


def test_seeds_of_a_method_are_read_together_in_their_order(tmp_path):
    for seed in (2, 0, 1):
        write_run(tmp_path, "FedAvg", seed=seed, stop=1)
    comparison = read_runs([tmp_path / "demo"])
    assert [method.title for method in comparison.methods] == ["FedAvg"]
    assert [run.about.seed for run in comparison.runs] == [0, 1, 2]


def test_methods_stand_in_the_order_of_their_start_or_of_the_paths(study):
    assert [each.title for each in read_runs([study]).methods] == ["FedAvg", "FedRep"]
    paths = [study / "fedrep", study / "fedavg"]
    assert [each.title for each in read_runs(paths).methods] == ["FedRep", "FedAvg"]


def test_a_label_of_two_studies_names_them(tmp_path):
    write_run(tmp_path, "FedAvg", study="one", stop=1)
    write_run(tmp_path, "FedAvg", study="two", stop=1)
    write_run(tmp_path, "Local", study="two", stop=1, started="2027")
    comparison = read_runs([tmp_path / "one", tmp_path / "two"])
    labels = [method.title for method in comparison.methods]
    assert labels == ["FedAvg (one)", "FedAvg (two)", "Local"]
    assert comparison.studies == ("one", "two")


def test_the_same_seed_twice_is_refused(tmp_path):
    run = write_run(tmp_path, "FedAvg", stop=1)
    shutil.copytree(run.path, tmp_path / "copy" / "demo" / "fedavg" / "seed-0")
    with pytest.raises(RunError, match="are both FedAvg with seed 0; leave one out"):
        read_runs([run.path, tmp_path / "copy" / "demo"])


def test_runs_of_different_tasks_are_refused(tmp_path):
    write_run(tmp_path, "FedAvg", study="one", stop=1)
    write_run(tmp_path, "FedAvg", study="two", stop=1, regions=("faz",))
    with pytest.raises(RunError, match=r"only runs of one task.*is about fundus.*\(octa\)"):
        read_runs([tmp_path / "one", tmp_path / "two"])


def test_all_broken_run_folders_are_named_at_once(tmp_path):
    for title in ("A", "B", "C"):
        write_run(tmp_path, title, stop=1)
    (tmp_path / "demo/a/seed-0/about.json").write_text("{")
    (tmp_path / "demo/c/seed-0/study.toml").unlink()
    with pytest.raises(RunError) as caught:
        read_runs([tmp_path / "demo"])
    message = str(caught.value)
    assert "a/seed-0/about.json is broken" in message
    assert "c/seed-0 is not a complete run folder: it has no study.toml" in message
    assert "b/seed-0" not in message


def test_a_case_scored_twice_is_refused_by_file(tmp_path):
    run = write_run(tmp_path, "A")
    run.append(scores=[Score(20, "test", "alpha", "case-00", "disc", "dice", 0.5)])
    with pytest.raises(RunError, match=r"scores\.csv: case case-00 of site alpha has two scores"):
        read_runs([tmp_path / "demo"])


def test_test_scores_of_an_unfinished_run_do_not_count(tmp_path):
    run = write_run(tmp_path, "A")
    (run.path / "finished.json").unlink()
    comparison = read_runs([tmp_path / "demo"])
    assert comparison.metrics == ()
    assert comparison.runs[0].tested == {}


def test_sites_are_all_sites_in_the_order_of_the_first_run(tmp_path):
    write_run(tmp_path, "A", sites=("beta", "alpha"), stop=1, started="2026-01-01")
    write_run(tmp_path, "B", sites=SITES[:3], stop=1, started="2026-01-02")
    assert read_runs([tmp_path / "demo"]).sites == ("beta", "alpha", "gamma")


def test_a_case_counts_with_the_mean_of_its_regions(study):
    run = read_runs([study]).runs[0]
    both = run.case_values("dice", ("disc", "cup"), "alpha")
    single = [run.case_values("dice", (region,), "alpha") for region in ("disc", "cup")]
    assert both == pytest.approx(np.mean(single, axis=0))
    assert run.case_values("dice", ("disc",), "nowhere").size == 0


def test_validation_is_the_mean_over_cases_and_regions(study):
    run = read_runs([study]).runs[0]
    rows = RunFolder(run.folder.path).scores("val")
    expected = np.mean([row.value for row in rows if (row.site, row.round) == ("beta", 10)])
    assert run.validated["beta"][10] == pytest.approx(expected)
    assert list(run.validated["beta"]) == [5, 10, 15, 20]


def test_what_comes_after_the_last_round_is_no_round(tmp_path):
    run = write_run(tmp_path, "A", rounds=3)
    run.append([line.model_copy(update={"round": 4}) for line in run.rounds()[:4]])
    read = read_runs([run.path]).runs[0]
    assert read.done_rounds == 3
    assert len(read.rounds) == 16
    assert len(read.round_lines) == 12


def test_settings_that_differ_between_methods_are_named(tmp_path):
    write_run(tmp_path, "A", stop=1)
    write_run(tmp_path, "B", stop=1, batch=4)
    comparison = read_runs([tmp_path / "demo"])
    assert list(warnings(comparison)) == ["The methods were run with different training.batch."]


def test_settings_that_differ_between_seeds_are_named_and_kept_apart(tmp_path):
    write_run(tmp_path, "A", seed=0, stop=1)
    write_run(tmp_path, "A", seed=1, stop=1, batch=4)
    write_run(tmp_path, "A", seed=2, stop=1)
    comparison = read_runs([tmp_path / "demo"])
    assert list(warnings(comparison)) == ["The runs of A differ in training.batch."]
    groups = same_settings(comparison.methods[0])
    assert [[run.about.seed for run in group] for group in groups] == [[0, 2], [1]]


def test_runs_that_differ_only_in_method_and_seed_need_no_warning(study):
    assert list(warnings(read_runs([study]))) == []


def test_metrics_stand_in_the_order_that_the_study_wants_them_in(tmp_path):
    write_run(tmp_path, "A", metrics=("dice", "hd95"), cases=2, rounds=1)
    found = read_runs([tmp_path / "demo"])
    assert found.metrics == ("dice", "hd95")
    (method,) = found.methods
    settings = {**method.runs[0].settings, "evaluation": {"metrics": ["hd95", "miou"]}}
    wanted = replace(method, runs=(replace(method.runs[0], settings=settings),))
    assert replace(found, methods=(wanted,)).metrics == ("hd95", "dice")
