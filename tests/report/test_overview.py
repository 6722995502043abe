import pytest

from polyclinic.report.overview import (
    choice_sentence,
    empty_masks,
    facts,
    method_lines,
    winners,
)
from polyclinic.report.reading import read_runs
from polyclinic.report.score_tables import comparison_table
from polyclinic.runs import Finished, Score
from tests.report.invented import write_run


def test_the_facts_name_task_network_rounds_and_seeds(study):
    found = dict(facts(read_runs([study])))
    assert found["Task"] == "fundus: disc and cup"
    assert found["Network"] == "unet, 1\u2009813\u2009764 parameters"
    assert found["Rounds"] == "20"
    assert found["Device"] == "cpu, 2 threads"
    assert found["Started"] == "2026-03-04 10:00"


def test_an_unfinished_run_says_how_far_it_came(tmp_path):
    write_run(tmp_path, "A", stop=7)
    line = method_lines(read_runs([tmp_path / "demo"]))[0]
    assert line.state == "unfinished: round 7 of 20"
    assert not line.complete
    assert (line.chosen, line.time, line.empty) == ("–", "–", "–")


def test_one_unfinished_seed_is_named(tmp_path):
    write_run(tmp_path, "A", seed=0)
    write_run(tmp_path, "A", seed=1, stop=3)
    line = method_lines(read_runs([tmp_path / "demo"]))[0]
    assert line.state == "unfinished: seed 1 at round 3 of 20"
    assert line.seeds == "0 and 1"
    assert line.chosen == "20"


def test_the_winner_is_the_best_average_over_sites(study):
    tables = [comparison_table(read_runs([study]), metric) for metric in ("dice", "hd95")]
    dice, distance = winners(tables)
    averages = {row.title: row.cells[-3].value for row in tables[0].rows}
    assert dice.titles == max(averages, key=averages.get)
    assert dice.value == f"{100 * max(averages.values()):.2f} %"
    assert distance.value == f"{min(row.cells[-3].value for row in tables[1].rows):.2f} px"


def test_a_single_method_wins_nothing(tmp_path):
    write_run(tmp_path, "A")
    assert winners([comparison_table(read_runs([tmp_path / "demo"]), "dice")]) == []


def with_choice(run, choice):
    path = run.path / "study.toml"
    path.write_text(path.read_text().replace('choose = "best"', f'choose = "{choice}"'))


def test_the_page_says_which_weights_were_scored(tmp_path):
    best = write_run(tmp_path, "A", stop=1)
    last = write_run(tmp_path, "B", stop=1)
    with_choice(last, "last")
    ends = ". Test cases never choose a model."
    assert "best validation score are scored" in choice_sentence(read_runs([best.path]))
    assert "of the last round are scored" in choice_sentence(read_runs([last.path]))
    assert "chosen round" in choice_sentence(read_runs([best.path, last.path]))
    assert choice_sentence(read_runs([best.path])).endswith(ends)


def score_one(run, case, **values):
    run.append(
        scores=(
            Score(1, "test", "alpha", case, "disc", metric, value)
            for metric, value in values.items()
        )
    )


def test_cases_with_one_empty_mask_are_counted(tmp_path):
    run = write_run(tmp_path, "A", stop=1, sites=("alpha",), regions=("disc",))
    score_one(run, "missed", dice=0.0, hd=90.5, hd95=90.5, assd=90.5)
    score_one(run, "elsewhere", dice=0.0, hd=50.0, hd95=49.0, assd=40.0)
    score_one(run, "found", dice=0.9, hd=3.0, hd95=2.0, assd=1.0)
    score_one(run, "both empty", dice=1.0, hd=0.0, hd95=0.0, assd=0.0)
    run.finish(Finished(chosen_round=1, seconds=1))
    assert empty_masks(read_runs([run.path]).runs) == (1, 4)


@pytest.mark.parametrize("metrics", [("dice", "iou"), ("dice", "hd"), ("hd", "assd")])
def test_without_the_metrics_that_tell_empty_masks_stay_unknown(tmp_path, metrics):
    run = write_run(tmp_path, "A", metrics=metrics, pictures=False)
    assert empty_masks(read_runs([run.path]).runs) is None
