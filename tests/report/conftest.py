import pytest

from polyclinic.report import write_report
from tests.report.invented import write_run
from tests.report.reading_pages import Page


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Two methods at four sites, finished."""
    root = tmp_path_factory.mktemp("runs")
    write_run(root, "FedAvg", started="2026-03-04T10:00:00+00:00")
    write_run(root, "FedRep", started="2026-03-04T10:05:00+00:00")
    return root / "demo"


@pytest.fixture(scope="session")
def report(study, tmp_path_factory):
    """The path of the report of that study."""
    return write_report([study], tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def page(report):
    """The report of that study, parsed."""
    return Page(report.read_text("utf-8"))
