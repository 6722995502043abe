import pytest

from polyclinic.data.errors import Findings
from polyclinic.data.site_files import CaseRow, SiteToml, read_cases, read_site_toml
from tests.data.folders import write_listing


def read(folder):
    mistakes = Findings("alpha", folder)
    return read_cases(folder / "cases.csv", mistakes), mistakes.lines


def test_rows_are_read_by_case(tmp_path):
    write_listing(tmp_path, [("07", "anna", "train"), ("08", "ben", "test")])

    rows, mistakes = read(tmp_path)
    assert rows == {"07": CaseRow("07", "anna", "train"), "08": CaseRow("08", "ben", "test")}
    assert mistakes == []


def test_without_patient_column_every_case_is_its_own_patient(tmp_path):
    write_listing(tmp_path, [("07",)], header="case")

    assert read(tmp_path)[0] == {"07": CaseRow("07", "07", None)}


def test_spreadsheets_marks_and_blanks_do_no_harm(tmp_path):
    text = "\ufeffcase, patient ,split\r\n 07 , anna,train\r\n"
    (tmp_path / "cases.csv").write_text(text, encoding="utf-8", newline="")

    assert read(tmp_path)[0] == {"07": CaseRow("07", "anna", "train")}


def test_no_file_is_no_mistake(tmp_path):
    assert read(tmp_path) == (None, [])


def test_wrong_columns_are_named(tmp_path):
    write_listing(tmp_path, [("1", "a")], header="case,pateint")

    assert read(tmp_path)[1] == [
        "site alpha, cases.csv: columns are case, patient, split; "
        'found case, pateint; did you mean "patient"?'
    ]


def test_an_empty_file_has_wrong_columns(tmp_path):
    (tmp_path / "cases.csv").write_text("")

    assert "found nothing" in read(tmp_path)[1][0]


def test_repeated_cases_and_unknown_splits_are_all_named(tmp_path):
    write_listing(tmp_path, [("1", "a", "train"), ("1", "a", "train"), ("2", "b", "tset")])

    assert read(tmp_path)[1] == [
        "site alpha, cases.csv: case 1 stands in it twice",
        'site alpha, cases.csv: case 2 has split "tset", not train, val or test; '
        'did you mean "test"?',
    ]


def test_another_encoding_is_explained(tmp_path):
    (tmp_path / "cases.csv").write_bytes("case,patient\n1,Jürgen\n".encode("latin-1"))

    rows, mistakes = read(tmp_path)
    assert rows is None
    assert "save it as CSV in UTF-8" in mistakes[0]


def test_a_site_describes_itself(tmp_path):
    file = tmp_path / "site.toml"
    file.write_text('name = "alpha"\ntask = "octa"\nlabels = "point"\nspacing = [0.5, 0.25]\n')

    assert read_site_toml(file) == (SiteToml("alpha", "octa", "point", (0.5, 0.25)), [])


def test_one_spacing_is_for_both_axes(tmp_path):
    (tmp_path / "site.toml").write_text("spacing = 2\n")

    assert read_site_toml(tmp_path / "site.toml")[0].spacing == (2.0, 2.0)


def test_no_description_says_nothing(tmp_path):
    assert read_site_toml(tmp_path / "site.toml") == (SiteToml(), [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('nmae = "a"', 'no key "nmae"'),
        ("name = 3", "name must be a word in quotes, got 3"),
        ('name = "a/b"', "cannot be a file's name"),
        ("spacing = 0", "spacing must be one or two numbers above 0"),
        ("spacing = [1, 2, 3]", "spacing must be"),
        ('spacing = "1"', "spacing must be"),
        ("spacing = true", "spacing must be"),
        ("name = ", "cannot be read"),
    ],
)
def test_a_wrong_description_is_explained(tmp_path, text, words):
    (tmp_path / "site.toml").write_text(text)

    about, wrong = read_site_toml(tmp_path / "site.toml")
    assert about == SiteToml()
    assert len(wrong) == 1
    assert words in wrong[0]
