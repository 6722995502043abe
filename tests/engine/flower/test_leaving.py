"""What leaves beside weights: scores as means, and what a report makes of them."""

from polyclinic.engine.process import prepare_process
from polyclinic.report import write_report
from polyclinic.runs import DIAGNOSED, RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink


def test_a_report_works_from_means_and_says_so(tmp_path):
    hospitals = Hospitals(tmp_path, sites=2)
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
