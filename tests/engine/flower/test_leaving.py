"""What leaves beside weights: scores as means, and what a report makes of them."""

import pytest

from polyclinic.engine.flower.leaving import leaving_scores
from polyclinic.engine.process import prepare_process
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.report import write_report
from polyclinic.runs import DIAGNOSED, RunFolder
from tests.engine.flower.hospitals import WEAK, Hospitals, score_more
from tests.engine.flower.in_process import InProcessLink


def test_a_report_works_from_means_and_says_so(tmp_path):
    hospitals = Hospitals(tmp_path, sites=2)
    for name in hospitals.names:
        score_more(tmp_path / "data" / name, 1)
    services = hospitals.services('scores = "mean"\n')
    prepare_process(1)
    study = hospitals.study("fedavg", "federation.rounds=1", "evaluation.every=1")
    hospitals.run_with(InProcessLink.of(services), study)
    folder = RunFolder(hospitals.run_folder(study))
    tested = {score.site: score for score in folder.scores("test")}
    assert {score.case for score in tested.values()} == {"test mean"}
    for service in services:
        own = RunFolder(hospitals.run_folder(study, f"state/{service.site.name}/runs"))
        values = [score.value for score in own.scores("test")]
        assert len(values) > 1
        assert abs(tested[service.site.name].value - sum(values) / len(values)) < 5.1e-4
    *_, table = [each for each in folder.tables() if each.name == DIAGNOSED]
    assert table.columns == ("spread of dice, faz",)
    page = write_report([folder.path], tmp_path / "report").read_text()
    assert f"{' and '.join(sorted(hospitals.names))} gave only means over test cases" in page


@pytest.mark.parametrize("form", ["cases", "mean"])
def test_of_sites_that_cannot_be_scored_notes_leave_where_those_of_cases_may(tmp_path, form):
    hospitals = Hospitals(tmp_path, sites=2)
    for name, kind in zip(hospitals.names, WEAK["fedicra"], strict=False):
        (tmp_path / "data" / name / "labels").mkdir()
        (tmp_path / "data" / name / "masks").rename(tmp_path / "data" / name / "labels" / kind)
    services = hospitals.services(f'scores = "{form}"\n')
    prepare_process(1)
    study = hospitals.study("fedicra", "federation.rounds=1", "evaluation.choose=last")
    hospitals.run_with(InProcessLink.of(services), study)
    there, here = RunFolder(hospitals.run_folder(study)), RunFolder(hospitals.run_locally(study))
    assert not there.scores("test")
    local = [each for each in here.tables() if each.name == DIAGNOSED]
    assert "gates saturated" in local[-1].columns
    found = [each for each in there.tables() if each.name == DIAGNOSED]
    assert found == (local if form == "cases" else [])


@pytest.mark.parametrize(("cases", "spreads"), [(1, 0), (2, 0), (3, 1)])
def test_a_spread_leaves_only_where_mean_and_spread_do_not_tell_each_case(cases, spreads):
    rows = [ScoreRow(f"case {n}", "faz", "dice", 0.1 * n, n) for n in range(cases)]
    left = leaving_scores("mean", "val", rows, None, {})
    assert len(left.rows) == 1
    assert len(left.spreads) == spreads
