import pytest

from polyclinic.report import write_report
from polyclinic.report.diagnostics import diagnosed
from polyclinic.report.figures.relations import relations
from polyclinic.report.reading import read_runs
from polyclinic.runs import DIAGNOSED, RoundTable
from tests.report.invented import SITES, generator, write_run
from tests.report.reading_pages import texts


def add_tables(run, rounds=20, sites=SITES[:4], name="affinity"):
    for number in range(1, rounds + 1):
        rng = generator("table", number)
        values = tuple(
            tuple(
                1.0 if i == j else 0.9 - 0.03 * number * abs(i - j) / 4 + 0.01 * rng.normal()
                for j in range(len(sites))
            )
            for i in range(len(sites))
        )
        run.append(
            tables=[RoundTable(round=number, name=name, rows=sites, columns=sites, values=values)]
        )


@pytest.fixture
def run(tmp_path):
    run = write_run(tmp_path, "FedLPPA")
    add_tables(run)
    return run


def test_the_last_table_is_a_heat_map_and_all_of_them_are_curves(run):
    (relation,) = relations(read_runs([run.path]))
    told = (relation.method, relation.name, relation.when)
    assert told == ("FedLPPA", "affinity", "after round 20")
    words = texts(relation.figure)
    assert {"affinity, after round 20", "affinity of each pair of sites, by round"} <= set(words)
    assert set(SITES[:4]) <= set(words)
    assert "alpha – beta" in words
    assert words.count("1.00") >= 4


def test_methods_without_tables_have_no_picture(tmp_path, run):
    plain = write_run(tmp_path, "FedAvg")
    assert [each.method for each in relations(read_runs([plain.path, run.path]))] == ["FedLPPA"]


def test_every_name_has_a_picture_of_its_own(run):
    add_tables(run, rounds=1, name="distance")
    found = relations(read_runs([run.path]))
    told = [("affinity", "after round 20"), ("distance", "after round 1")]
    assert [(each.name, each.when) for each in found] == told
    assert [len(each.figure.figure.axes) for each in found] == [2, 1]  # one round makes no curves


def test_tables_from_before_and_after_the_rounds_are_of_no_round(run):
    table = run.tables()[-1]
    last = table.model_copy(update={"round": 21, "name": "Dice", "final": True})
    run.append(tables=[table.model_copy(update={"round": 0, "name": "mixing"}), last])
    told = [each.when for each in relations(read_runs([run.path]))]
    assert told[1:] == ["before the first round", "at the end"]


def test_many_sites_are_drawn_without_a_legend(tmp_path):
    sites = tuple(f"site{number}" for number in range(8))
    run = write_run(tmp_path, "A", sites=sites, pictures=False, cases=3)
    add_tables(run, rounds=3, sites=sites)
    (relation,) = relations(read_runs([run.path]))
    assert not any(word and " – " in word for word in texts(relation.figure))


def test_tables_of_other_sites_are_left_out_of_the_curves(run):
    add_tables(run, rounds=1, sites=SITES[:3])
    (relation,) = relations(read_runs([run.path]))
    assert "delta" not in texts(relation.figure)


@pytest.mark.slow
def test_the_page_has_the_section_only_where_there_is_something_to_show(tmp_path, run):
    page = write_report([run.path], tmp_path / "with").read_text("utf-8")
    assert 'id="relations"' in page
    assert 'href="#relations"' in page
    plain = write_run(tmp_path, "FedAvg")
    page = write_report([plain.path], tmp_path / "without").read_text("utf-8")
    assert "relations" not in page


def test_of_hundreds_of_sites_those_of_the_page_are_drawn_without_numbers(tmp_path):
    sites = tuple(f"site{number:03}" for number in range(200))
    run = write_run(tmp_path, "A", sites=sites, pictures=False, cases=1, rounds=1)
    add_tables(run, rounds=2, sites=sites)
    (relation,) = relations(read_runs([run.path]))
    words = texts(relation.figure)
    assert [word for word in words if word and word.startswith("site")].count("site029") == 2
    assert "site030" not in words
    assert "1.00" not in words
    assert relation.figure.figure.get_figwidth() < 20
    assert sum(len(panel.lines) for panel in relation.figure.figure.axes) == 30 * 29 / 2


def test_diagnostics_have_a_column_for_each_site_of_the_page_and_few_words(tmp_path):
    sites = tuple(f"site{number}" for number in range(34))
    run = write_run(tmp_path, "A", sites=sites, pictures=False, cases=1, rounds=1)
    values = tuple((0.0, float(number)) for number in range(34))
    run.append(
        tables=[
            RoundTable(
                round=1, name=DIAGNOSED, rows=sites, columns=("area", "other"), values=values
            )
        ]
    )
    (found,) = diagnosed(read_runs([run.path]))
    assert found.sites == sites[:30]
    assert [(name, len(shown), shown[7]) for name, _, shown in found.rows] == [
        ("area", 30, "0"),
        ("other", 30, "7"),
    ]
    (warning,) = found.warnings
    assert warning.endswith("; likewise at 33 other sites")
