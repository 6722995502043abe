import math
from dataclasses import replace

import numpy as np
import pytest

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.chance import cautions, ranked
from polyclinic.report.reading import read_runs
from polyclinic.report.score_tables import comparison_table
from polyclinic.runs import AboutMetric, Finished, RunFolder, Score
from tests.report.invented import write_run


def write_scores(root, title, values, *, seed=0, metric="dice", region="disc", patients=1):
    """A finished run whose only test scores are these: site → values of its cases.

    `patients` is how many cases a patient has.
    """
    run = write_run(root, title, seed=seed, sites=tuple(values), regions=("disc",), stop=1, cases=2)
    run.append(
        scores=(
            Score(1, "test", site, f"c{index}", region, metric, value, 1 + index // patients)
            for site, cases in values.items()
            for index, value in enumerate(cases)
        )
    )
    run.finish(Finished(chosen_round=1, seconds=1))
    return run


def table_of(root, metric="dice"):
    return comparison_table(read_runs([root / "demo"]), metric)


def column(table, name, region=None):
    index = next(
        index
        for index, each in enumerate(table.columns)
        if each.name == name and region in (None, each.region)
    )
    return {row.title: row.cells[index] for row in table.rows}


def test_with_one_seed_the_numbers_are_those_computed_by_hand(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5, 0.7], "beta": [0.9, 0.9, 0.9, 0.9]})
    table = table_of(tmp_path)
    assert [each.name for each in table.columns] == ["alpha", "beta", "Avg", "Std", "Images"]
    alpha, beta, average, deviation, images = table.rows[0].cells
    assert (alpha.value, alpha.spread) == pytest.approx((0.6, 0.1))
    assert (beta.value, beta.spread) == pytest.approx((0.9, 0.0))
    assert average.value == pytest.approx(0.75)
    assert deviation.value == pytest.approx(0.15)
    assert images.value == pytest.approx((0.5 + 0.7 + 4 * 0.9) / 6)
    assert images.spread == pytest.approx(np.std([0.5, 0.7, 0.9, 0.9, 0.9, 0.9]))
    assert math.isnan(average.spread)
    assert table.over == "cases"


def test_of_many_sites_a_table_shows_some_and_the_means_over_all(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5], "beta": [0.9]})
    table = table_of(tmp_path)
    shown = table.of_sites(["beta"])
    assert [each.name for each in shown.columns] == ["beta", "Avg", "Std", "Images"]
    assert [row.cells for row in shown.rows] == [row.cells[1:] for row in table.rows]


def test_with_several_seeds_every_spread_is_over_seeds(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5, 0.7], "beta": [0.9]}, seed=0)
    write_scores(tmp_path, "A", {"alpha": [0.6, 1.0], "beta": [0.7]}, seed=1)
    table = table_of(tmp_path)
    alpha, beta, average, deviation, images = table.rows[0].cells
    assert table.over == "seeds"
    root = math.sqrt(2)  # two values with a divisor of one
    assert (alpha.value, alpha.spread) == pytest.approx((0.7, 0.1 * root))
    assert (beta.value, beta.spread) == pytest.approx((0.8, 0.1 * root))
    assert (average.value, average.spread) == pytest.approx((0.75, 0.0))
    assert (deviation.value, deviation.spread) == pytest.approx((0.1, 0.05 * root))
    means = [2.1 / 3, 2.3 / 3]
    assert (images.value, images.spread) == pytest.approx((np.mean(means), np.std(means, ddof=1)))


def test_a_method_with_one_seed_among_others_with_several_has_no_spread(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5]}, seed=0)
    write_scores(tmp_path, "A", {"alpha": [0.7]}, seed=1)
    write_scores(tmp_path, "B", {"alpha": [0.5, 0.9]}, seed=0)
    alpha = column(table_of(tmp_path), "alpha")
    assert alpha["A"].spread == pytest.approx(0.1 * math.sqrt(2))
    assert math.isnan(alpha["B"].spread)


def test_several_regions_come_one_after_the_other_and_then_together(study):
    table = comparison_table(read_runs([study]), "dice")
    assert table.groups == [("disc", 7), ("cup", 7), (OVERALL, 3)]
    for row in range(2):
        means = [
            column(table, "Avg", region)[table.rows[row].title].value
            for region in ("disc", "cup", OVERALL)
        ]
        assert means[2] == pytest.approx((means[0] + means[1]) / 2)


def marks(root, metric, values):
    for title, value in values.items():
        write_scores(root, title, {"alpha": [value]}, metric=metric)
    return {title: cell.mark for title, cell in column(table_of(root, metric), "alpha").items()}


def test_the_highest_dice_is_best(tmp_path):
    assert marks(tmp_path, "dice", {"A": 0.5, "B": 0.7, "C": 0.6, "D": 0.1}) == {
        "A": "", "B": "best", "C": "second", "D": "",
    }  # fmt: skip


def test_the_lowest_distance_is_best(tmp_path):
    assert marks(tmp_path, "hd95", {"A": 5, "B": 7, "C": 1}) == {
        "A": "second", "B": "", "C": "best",
    }  # fmt: skip


def test_methods_that_print_alike_are_marked_alike(tmp_path):
    values = {"A": 0.70001, "B": 0.69999, "C": 0.61, "D": 0.61, "E": 0.5}
    assert marks(tmp_path, "dice", values) == {
        "A": "best", "B": "best", "C": "second", "D": "second", "E": "",
    }  # fmt: skip


def test_a_single_method_is_not_marked(tmp_path):
    assert marks(tmp_path, "dice", {"A": 0.5}) == {"A": ""}


def test_a_metric_of_another_version_is_shown_and_not_marked(tmp_path):
    assert marks(tmp_path, "boundary", {"A": 0.5, "B": 0.7}) == {"A": "", "B": ""}


def test_a_metric_that_only_the_run_describes_has_its_title_arrow_unit_and_marks(tmp_path):
    told = AboutMetric(title="VolDiff", summary="by volume", better="lower", unit="ml")
    for title, value in {"A": 0.5, "B": 0.7}.items():
        run = write_scores(tmp_path, title, {"alpha": [value]}, metric="voldiff")
        about = run.about().model_copy(update={"metrics": {"voldiff": told}})
        (run.path / "about.json").write_text(about.model_dump_json())
    table = table_of(tmp_path, "voldiff")
    assert (table.measure.title_with_unit, table.measure.arrow) == ("VolDiff (ml)", "↓")
    assert table.measure.text(0.5) == "0.50"
    assert [cell.mark for cell in column(table, "alpha").values()] == ["best", "second"]


def test_the_smaller_deviation_over_sites_is_best_whatever_the_metric(tmp_path):
    write_scores(tmp_path, "Even", {"alpha": [0.5], "beta": [0.5]})
    write_scores(tmp_path, "Uneven", {"alpha": [0.6], "beta": [0.9]})
    deviation = column(table_of(tmp_path), "Std")
    assert {title: cell.mark for title, cell in deviation.items()} == {
        "Even": "best",
        "Uneven": "second",
    }


def test_an_unfinished_method_has_no_numbers_and_takes_no_mark(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5]})
    write_scores(tmp_path, "B", {"alpha": [0.4]})
    (write_scores(tmp_path, "C", {"alpha": [0.9]}).path / "finished.json").unlink()
    table = table_of(tmp_path)
    alpha = column(table, "alpha")
    assert (alpha["A"].mark, alpha["B"].mark, alpha["C"].mark) == ("best", "second", "")
    assert math.isnan(alpha["C"].value)
    assert [row.note for row in table.rows] == ["", "", "unfinished"]


def test_a_method_with_a_seed_missing_says_so(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5]}, seed=0)
    unfinished = write_scores(tmp_path, "A", {"alpha": [0.9]}, seed=1)
    (unfinished.path / "finished.json").unlink()
    table = table_of(tmp_path)
    assert table.rows[0].note == "1 of 2 seeds"
    assert column(table, "alpha")["A"].value == 0.5


def test_a_site_that_only_some_runs_have_is_left_empty_in_the_others(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5], "beta": [0.6]})
    write_scores(tmp_path, "B", {"alpha": [0.4]})
    beta = column(table_of(tmp_path), "beta")
    assert math.isnan(beta["B"].value)
    assert beta["A"].mark == ""


def test_run_folders_are_not_changed_by_reading(study):
    run = RunFolder(next(study.glob("*/seed-0")))
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    comparison_table(read_runs([study]), "dice")
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_methods_are_ranked_by_the_mean_of_seeds_case_by_case(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5, 0.7]}, seed=0)
    write_scores(tmp_path, "A", {"alpha": [0.7, 0.9]}, seed=1)
    write_scores(tmp_path, "B", {"alpha": [0.9, 0.8]})
    found = ranked(read_runs([tmp_path / "demo"]), "dice")
    assert [(each.title, round(each.score, 6)) for each in found] == [("B", 0.85), ("A", 0.7)]


def on_full_masks(run):
    about = run.about()
    masked = tuple(replace(site, kind="mask") for site in about.sites)
    run.write_about(about.model_copy(update={"sites": masked}))


def test_full_masks_among_weak_labels_are_a_ceiling_and_rank_with_nobody(tmp_path):
    for title, value in (("A", 0.5), ("B", 0.6), ("Full", 0.9)):
        run = write_scores(tmp_path, title, {"alpha": [value], "beta": [value]})
    on_full_masks(run)
    table = table_of(tmp_path)
    assert [(row.title, row.note) for row in table.rows] == [
        ("A", ""), ("B", ""), ("Full", "ceiling"),
    ]  # fmt: skip
    found = {title: cell.mark for title, cell in column(table, "Avg").items()}
    assert found == {"A": "second", "B": "best", "Full": ""}
    assert [each.title for each in ranked(read_runs([tmp_path / "demo"]), "dice")] == ["B", "A"]


def test_full_masks_rank_where_there_is_but_one_method_with_weak_labels(tmp_path):
    for title, value in (("A", 0.5), ("Full", 0.9)):
        run = write_scores(tmp_path, title, {"alpha": [value], "beta": [value]})
    on_full_masks(run)
    found = {title: cell.mark for title, cell in column(table_of(tmp_path), "Avg").items()}
    assert found == {"A": "second", "Full": "best"}


def test_one_method_alone_and_metrics_without_a_direction_are_not_ranked(tmp_path):
    write_scores(tmp_path, "A", {"alpha": [0.5]}, metric="odd")
    assert ranked(read_runs([tmp_path / "demo"]), "odd") == []
    write_scores(tmp_path, "B", {"alpha": [0.5]}, metric="odd")
    assert ranked(read_runs([tmp_path / "demo"]), "odd") == []


def test_folds_are_averaged_and_their_spread_is_that_of_the_folds(tmp_path):
    for fold, seed, value in ((0, 0, 0.4), (0, 1, 0.6), (1, 0, 0.7), (1, 1, 0.9)):
        run = write_scores(tmp_path / f"{fold}", "A", {"alpha": [value]}, seed=seed)
        run.write_about(run.about().model_copy(update={"fold": fold}))
    paths = [tmp_path / "0" / "demo", tmp_path / "1" / "demo"]
    table = comparison_table(read_runs(paths), "dice")
    cell = column(table, "alpha")["A"]
    assert table.over == "folds"
    assert (cell.value, cell.spread) == pytest.approx((0.65, 0.3 / math.sqrt(2)))


def test_what_is_within_noise_of_the_best_is_marked_column_by_column(tmp_path):
    rng = np.random.default_rng(0)
    easy, hard = rng.normal(0.8, 0.02, 30), rng.normal(0.6, 0.02, 30)
    write_scores(tmp_path, "Best", {"alpha": easy, "beta": hard})
    noisy = easy - 0.004 + 0.05 * (-1.0) ** np.arange(30)
    write_scores(tmp_path, "Near", {"alpha": noisy, "beta": hard - 0.1})
    write_scores(tmp_path, "Far", {"alpha": easy - 0.1, "beta": hard - 0.2})
    table = table_of(tmp_path)
    near = {
        name: {title for title, cell in column(table, name).items() if cell.near}
        for name in ("alpha", "beta", "Avg", "Std", "Images")
    }
    assert near == {"alpha": {"Near"}, "beta": set(), "Avg": set(), "Std": set(), "Images": set()}


def test_cases_of_one_patient_count_together(tmp_path):
    rng = np.random.default_rng(1)
    whole = np.repeat(rng.normal(0.05, 0.1, 6), 20)  # six patients of twenty alike cases
    write_scores(tmp_path, "A", {"alpha": 0.5 + whole}, patients=20)
    write_scores(tmp_path, "B", {"alpha": 0.5 + 0 * whole}, patients=20)
    (_, second) = ranked(read_runs([tmp_path / "demo"]), "dice")
    assert second.chance in [number / 32 for number in range(1, 33)]  # 2⁶ signs, two-sided
    assert column(table_of(tmp_path), "alpha")[second.title].near
    for run in (tmp_path / "demo").glob("*/seed-0"):
        lines = (run / "scores.csv").read_text().splitlines()
        old = [line.rsplit(",", 2)[0] for line in lines]  # as versions without patients wrote it
        (run / "scores.csv").write_text("\n".join(old) + "\n")
    comparison = read_runs([tmp_path / "demo"])
    assert ranked(comparison, "dice")[1].chance < second.chance
    assert any("each case counts as a patient" in caution for caution in cautions(comparison))


def test_a_hospital_that_gives_means_only_is_named_and_nothing_is_tested(tmp_path):
    for title, value in (("A", 0.8), ("B", 0.7)):
        run = write_run(tmp_path, title, sites=("alpha",), regions=("disc",), stop=1)
        run.append(scores=[Score(1, "test", "alpha", "test mean", "disc", "dice", value)])
        run.finish(Finished(chosen_round=1, seconds=1))
    comparison = read_runs([tmp_path / "demo"])
    assert ranked(comparison, "dice") == []
    assert not any(cell.near for row in table_of(tmp_path).rows for cell in row.cells)
    assert any("alpha gave means only" in caution for caution in cautions(comparison))
