import pytest

from polyclinic.api.progress import clock, shown_plan
from polyclinic.engine.planning import image_seconds, plan_of
from polyclinic.engine.run import runs_of
from polyclinic.runs import Finished, RoundLine, SiteInfo
from tests.federations import run_locally


@pytest.fixture
def study(federation):
    small = federation(rounds=1)
    sites = '[[site]]\nname = "fjord"\n[[site]]\nname = "grove"\n'
    small.extra += f'[data]\nsize = 0.1\nonly = ["fjord", "grove"]\n{sites}'
    return small.study("fedavg", "seeds=[0, 1]", "sweep.training.iterations=[2, 6]")


def planned(study, root, **how):
    return plan_of(study, root, root / "splits", **{"fresh": False, **how})


def test_a_new_study_is_timed_by_a_few_steps_and_nothing_is_left_of_them(study, tmp_path):
    plan = planned(study, tmp_path)
    assert [each.state for each in plan.runs] == ["to do"] * 4
    assert "training steps" in plan.measured
    short, long = plan.runs[0], plan.runs[1]
    assert short.seconds > 0
    assert long.seconds == pytest.approx(3 * short.seconds)
    assert plan.seconds * plan.jobs == pytest.approx(8 * short.seconds)
    assert not list(tmp_path.glob("small/*"))


def test_finished_runs_time_the_others(study, tmp_path):
    runs = runs_of(study, tmp_path)
    seeds = study.model_copy(update={"seeds": (0,), "swept": study.swept[:1]})
    run_locally(seeds, tmp_path, watch=lambda *_: None)
    folder = runs[0].folder
    folder.finish(Finished(chosen_round=1, seconds=10.0))
    runs[1].folder.path.mkdir(parents=True)
    runs[1].folder.append([RoundLine(round=1, stage="fit", site="fjord")])
    plan = planned(study, tmp_path)
    assert [each.state for each in plan.runs] == ["done", "1 of 1 rounds done", "to do", "to do"]
    assert [each.seconds for each in plan.runs] == pytest.approx([0, 30, 10, 30])
    assert plan.measured == "as long as those that are done took (1)"
    assert planned(study, tmp_path, fresh=True).runs[0].seconds == pytest.approx(10)
    *lines, last = shown_plan(plan)
    assert lines[0].split("  ")[-1] == "done"
    assert lines[2].endswith("to do  about 0:10")
    assert last.startswith("runs: 4, 1 done, 3 to do; ")


def test_with_epochs_a_round_is_passes_over_all_images(study, tmp_path):
    from polyclinic.engine.planning import _Pace

    sites = [SiteInfo("a", 0, "mask", train=7), SiteInfo("b", 1, "mask", train=3)]
    epochs = study.training.model_copy(update={"iterations": None, "epochs": 2})
    assert _Pace(0.5, sites).of_round(study.model_copy(update={"training": epochs})) == 10


def test_what_a_method_does_before_the_first_round_does_not_count_for_every_round():
    def line(number, seconds, images=10):
        return RoundLine(round=number, stage="fit", site="a", seconds=seconds, images=images)

    once = [line(0, 100.0), line(0, 90.0), line(1, 0.0, images=0)]
    assert image_seconds([*once, line(1, 4.0), line(1, 2.0), line(2, 1.0)]) == 0.2
    assert image_seconds(once) == 0.0


def test_hours_are_told_as_such():
    assert [clock(seconds) for seconds in (5, 80, 7384)] == ["0:05", "1:20", "2:03:04"]
