"""The paragraph for a paper says what was done, and nothing that was not."""

import pytest

from polyclinic.report.methods_text import methods_paragraph
from polyclinic.report.reading import read_runs
from polyclinic.runs import Finished, Score
from tests.report.invented import SITES, write_run


def paragraph(root, **training):
    """Of the runs in a folder, with these settings of training."""
    for study in root.rglob("study.toml"):
        lines = "".join(f"{key} = {value}\n" for key, value in training.items())
        study.write_text(study.read_text().replace("[training]\n", f"[training]\n{lines}"))
    return methods_paragraph(read_runs([root / "demo"]))


def scored(root, title, *, sites=SITES[:2], cases=12, patients=True, names="c{}"):
    """A finished run with Dice of these cases, each of a patient of its own."""
    run = write_run(root, title, sites=tuple(sites), regions=("disc",), stop=1, cases=cases)
    run.append(
        scores=(
            Score(
                1,
                "test",
                site,
                names.format(n),
                "disc",
                "dice",
                0.5 + n / 40,
                n + 1 if patients else 0,
            )
            for site in sites
            for n in range(cases)
        )
    )
    run.finish(Finished(chosen_round=1, seconds=1))
    return run


@pytest.mark.parametrize(
    ("training", "told"),
    [
        ({"iterations": 10}, "20 rounds of 10 iterations at every site"),
        ({"epochs": 1}, "20 rounds of 1 epoch at every site"),
        ({"epochs": 3}, "20 rounds of 3 epochs at every site"),
        ({}, "20 rounds at every site"),
    ],
)
def test_how_long_a_round_is_is_told_in_the_unit_of_the_study(tmp_path, training, told):
    write_run(tmp_path, "A")
    assert told in paragraph(tmp_path, **training)


def test_of_one_method_neither_intervals_nor_tests_are_claimed(tmp_path):
    scored(tmp_path, "A")
    text = paragraph(tmp_path)
    assert "nterval" not in text
    assert "sign flips" not in text
    scored(tmp_path, "B")
    text = paragraph(tmp_path)
    assert "Intervals are bootstrap intervals over patients within sites; methods were" in text
    assert "sign flips of patients' paired differences, corrected by Holm." in text


def test_where_only_means_were_received_nothing_was_tested(tmp_path):
    for title in ("A", "B"):
        scored(tmp_path, title, cases=1, patients=False, names="test mean")
    text = paragraph(tmp_path)
    assert "alpha and beta gave means only, so that there are no intervals and no tests." in text
    assert "sign flips" not in text


def test_too_few_patients_have_tests_but_no_intervals(tmp_path):
    for title in ("A", "B"):
        scored(tmp_path, title, cases=4)
    text = paragraph(tmp_path)
    assert "There were too few patients for intervals; methods were compared" in text


def test_cases_are_not_called_patients_where_nobody_knows(tmp_path):
    for title in ("A", "B"):
        scored(tmp_path, title, patients=False)
    text = paragraph(tmp_path)
    assert "bootstrap intervals over cases within sites" in text
    assert "sign flips of cases' paired differences" in text


def test_the_test_over_sites_is_told_where_there_is_one(tmp_path):
    for title in ("A", "B"):
        scored(tmp_path, title, sites=SITES)
    assert "and by signed ranks of sites' means, corrected by Holm" in paragraph(tmp_path)


def test_folds_are_told(tmp_path):
    for fold in range(2):
        run = scored(tmp_path / f"{fold}", "A", names=f"{fold}-{{}}")
        run.write_about(run.about().model_copy(update={"fold": fold}))
    text = methods_paragraph(read_runs([tmp_path / "0" / "demo", tmp_path / "1" / "demo"]))
    assert "Cases were cut into 2 folds by patients, each of which was the test set in turn" in text
