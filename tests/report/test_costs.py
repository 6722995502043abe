import pytest

from polyclinic.report.costs import StageCost, method_costs
from polyclinic.report.reading import read_runs
from polyclinic.runs import RoundLine
from tests.report.invented import write_run


def add(run, number, site, **changes):
    run.append([RoundLine(round=number, stage="fit", site=site, **changes)])


@pytest.fixture
def cost(tmp_path):
    """Two rounds at two sites, with a stage before and one after."""
    run = write_run(tmp_path, "A", rounds=2, sites=("alpha", "beta"))
    (run.path / "rounds.jsonl").unlink()
    add(run, 0, "alpha", up=7, seconds=1.0, images=10)
    for number in (1, 2):
        add(run, number, "alpha", down=100, up=10, seconds=2.0, images=40, extras=("control/a",))
        add(
            run,
            number,
            "beta",
            down=300,
            up=30,
            seconds=3.0,
            images=60,
            extras=("control/b",),
            parts={"encoder": 20, "head": 10},
            numbers={"epsilon": 1.5 * number},
        )
    add(run, 2, "alpha", missed="it was away")
    add(run, 3, "beta", down=1000, seconds=1.0, images=0)
    return method_costs(read_runs([run.path]))[0]


def test_bytes_and_seconds_of_a_round_leave_out_what_came_before_and_after(cost):
    assert cost.whole.down_per_round == 400
    assert cost.whole.up_per_round == 40
    assert cost.whole.seconds_per_round == 5.0


def test_a_round_in_which_the_machine_slept_does_not_count_for_the_others(tmp_path):
    run = write_run(tmp_path, "FedAvg", rounds=3, sites=("alpha",))
    before = method_costs(read_runs([run.path]))[0].whole.seconds_per_round
    slept = run.rounds()[-1].model_copy(update={"seconds": 3600.0})
    run.append([slept])
    assert method_costs(read_runs([run.path]))[0].whole.seconds_per_round < before + 60


def test_the_total_counts_everything(cost):
    assert cost.whole.total_bytes == 7 + 2 * 440 + 1000
    assert cost.whole.images_per_second == pytest.approx(210 / 12)


def test_every_site_has_its_own_costs(cost):
    alpha, beta = cost.sites
    assert (alpha.name, alpha.down_per_round, alpha.total_bytes) == ("alpha", 100, 227)
    assert (beta.name, beta.up_per_round, beta.seconds_per_round) == ("beta", 30, 3.0)


def test_extras_are_listed_by_name_once(cost):
    assert cost.extras == ("control/a", "control/b")


def test_many_extras_of_one_group_become_one_entry(tmp_path):
    run = write_run(tmp_path, "A", rounds=1, sites=("alpha",))
    add(run, 1, "alpha", extras=("prompts", *(f"disclosed/query.{i}" for i in range(40))))
    assert method_costs(read_runs([run.path]))[0].extras == ("prompts", "disclosed/… (40 arrays)")


def test_what_was_sent_is_divided_by_part(cost):
    assert cost.parts == {"encoder": 40, "head": 20}


def test_every_stage_has_its_own_bytes_in_the_order_of_a_run(tmp_path):
    for seed in (0, 1):
        run = write_run(tmp_path, "A", rounds=2, seed=seed, sites=("alpha", "beta"))
        (run.path / "rounds.jsonl").unlink()
        for number, stage in (
            (1, "enhance"),
            (1, "fit"),
            (2, "enhance"),
            (2, "fit"),
            (3, "disclose"),
        ):
            size = {"enhance": 10, "fit": 100, "disclose": 1000 + 400 * seed}[stage]
            for site in ("alpha", "beta"):
                line = {"stage": stage, "site": site, "down": size, "up": 2 * size}
                run.append([RoundLine(round=number, **line)])
    cost = method_costs(read_runs([tmp_path / "demo"]))[0]
    assert cost.stages == (
        StageCost("enhance", exchanges=2, down=20, up=40, total_bytes=120),
        StageCost("fit", exchanges=2, down=200, up=400, total_bytes=1200),
        StageCost("disclose", exchanges=1, down=2400, up=4800, total_bytes=7200),
    )
    assert sum(stage.total_bytes for stage in cost.stages) == cost.whole.total_bytes


def test_a_stage_that_one_run_has_not_come_to_is_not_averaged_with_nothing(tmp_path):
    for seed in (0, 1):
        run = write_run(tmp_path, "A", rounds=1, seed=seed, sites=("alpha",))
        (run.path / "rounds.jsonl").unlink()
        add(run, 1, "alpha", down=100)
    run.append([RoundLine(round=2, stage="disclose", site="alpha", up=50)])
    cost = method_costs(read_runs([tmp_path / "demo"]))[0]
    assert cost.stages[1] == StageCost("disclose", exchanges=1, down=0, up=50, total_bytes=50)


def test_missed_visits_and_spent_privacy_are_told_by_site(cost):
    alpha, beta = cost.sites
    assert (alpha.missed, alpha.epsilon) == (1, None)
    assert (beta.missed, beta.epsilon) == (0, 3.0)


def test_a_run_without_rounds_has_no_costs(tmp_path):
    run = write_run(tmp_path, "A", stop=1)
    (run.path / "rounds.jsonl").unlink()
    assert method_costs(read_runs([run.path])) == []


def test_costs_are_means_over_seeds(tmp_path):
    for seed in (0, 1):
        run = write_run(tmp_path, "A", rounds=1, seed=seed, sites=("alpha",))
        (run.path / "rounds.jsonl").unlink()
        add(run, 1, "alpha", down=100 + 50 * seed, seconds=1.0 + seed)
    cost = method_costs(read_runs([tmp_path / "demo"]))[0]
    assert cost.whole.down_per_round == 125
    assert cost.whole.seconds_per_round == 1.5
    assert cost.run_seconds == pytest.approx(184.7)


def test_work_on_pooled_images_counts_and_nothing_travels_there(tmp_path):
    run = write_run(tmp_path, "Centralized", rounds=1, sites=("alpha",))
    (run.path / "rounds.jsonl").unlink()
    add(run, 1, "pooled", seconds=3.0, down=70, up=70)
    add(run, 2, "alpha", seconds=1.0, down=50, up=0)
    whole = method_costs(read_runs([run.path]))[0].whole
    assert (whole.seconds_per_round, whole.total_bytes) == (3.0, 50)
