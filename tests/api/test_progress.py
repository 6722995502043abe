import io
from types import SimpleNamespace

import pytest

from polyclinic.api import progress
from polyclinic.api.console import plain_console
from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.loop import Notice, RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.sites import Scored
from polyclinic.runs import Finished, RoundLine

STUDY = """
name = "shown"
task = "octa"
method = "fedavg"
[federation]
rounds = 2
[engine]
name = "{engine}"
"""
EVENTS = (
    RoundLine(round=1, stage="fit", site="north", loss=0.25, seconds=2.0, images=40, up=1_500_000),
    RoundLine(round=1, stage="fit", site="south", missed="it did not answer"),
    RoundLine(round=1, stage="fit", site="south", missed="it refused: a [/bold] of :smile: [red]"),
    Scored(1, "val", "south", (), missed="no [/b] such [link=file:x]file[/link]"),
    Notice("round-00002.safetensors is damaged"),
    RoundDone(1, 0.5),
    Scored(2, "test", "north", ()),
)


@pytest.fixture
def shown(tmp_path, monkeypatch):
    def show(engine, terminal):
        file = tmp_path / "study.toml"
        file.write_text(STUDY.format(engine=engine))
        study = load_study(file, [], BUILT_IN)
        (run,) = runs_of(study, tmp_path)
        out = io.StringIO()
        console = plain_console(file=out, force_terminal=terminal, width=160, legacy_windows=False)
        monkeypatch.setattr(progress, "CONSOLE", console)
        with progress.watching(study, tmp_path) as watch:
            for event in EVENTS:
                watch(run, event)
        return out.getvalue()

    return show


@pytest.mark.parametrize("terminal", [False, True])
def test_across_hospitals_every_site_shows_what_it_did(shown, terminal):
    text = shown("flower", terminal)
    assert "north" in text
    assert "round 1, fit  loss 0.250  2.0 s  1.50 MB sent" in text
    assert "south is left out: it did not answer" in text
    assert "it refused: a [/bold] of :smile: [red]" in text
    assert "no [/b] such [link=file:x]file[/link]" in text
    assert "warning: round-00002.safetensors is damaged" in text
    assert "validation Dice 0.500" in text


def test_on_one_machine_a_round_is_one_line(shown):
    round_lines = [line for line in shown("local", False).splitlines() if "round 1/2" in line]
    assert len(round_lines) == 1
    assert "loss 0.250" in round_lines[0]
    assert "20 images/s" in round_lines[0]
    assert "MB sent" not in shown("local", False)


def left_after_a_round(tmp_path, monkeypatch, *, fresh=False):
    """What is said of the time left after one round of ten seconds, when runs were begun before.

    Three runs of four rounds and a closing one: the first is finished, the second has one round.
    """
    file = tmp_path / "study.toml"
    file.write_text('name = "resumed"\ntask = "octa"\nmethod = "fedavg"\nseeds = [0, 1, 2]\n')
    study = load_study(file, ["federation.rounds=4"], BUILT_IN)
    finished, begun, _ = runs_of(study, tmp_path)
    for run in (finished, begun):
        run.folder.path.mkdir(parents=True)
        run.folder.append([RoundLine(round=1, stage="fit", site="north")])
    finished.folder.finish(Finished(chosen_round=4, seconds=1.0))
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    out = io.StringIO()
    monkeypatch.setattr(progress, "CONSOLE", plain_console(file=out, width=160))
    with progress.watching(study, tmp_path, fresh=fresh) as watch:
        clock.now = 70.0  # a minute of which went by before the round
        run, number = (finished, 1) if fresh else (begun, 2)
        watch(run, RoundLine(round=number, stage="fit", site="north", seconds=10.0))
        watch(run, RoundDone(number, None))
    return out.getvalue().rpartition("  ")[2].strip()


def test_time_left_counts_only_rounds_that_are_still_to_be_done(tmp_path, monkeypatch):
    # 3 of the second, 5 of the last
    assert left_after_a_round(tmp_path, monkeypatch) == "1:20 left"


def test_time_left_counts_all_rounds_where_earlier_runs_are_removed(tmp_path, monkeypatch):
    assert left_after_a_round(tmp_path, monkeypatch, fresh=True) == "2:20 left"


def test_whoever_waits_for_drawn_images_is_told(tmp_path, monkeypatch):
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(engine="local") + '[training]\npretrain = "synthetic"\n')
    out = io.StringIO()
    monkeypatch.setattr(progress, "CONSOLE", plain_console(file=out, width=160))
    with progress.watching(load_study(file, [], BUILT_IN), tmp_path):
        assert "first learns from drawn images, for 600 steps" in out.getvalue()


def test_a_notebook_shows_a_line_for_each_run_in_place(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(engine="local"))
    study = load_study(file, [], BUILT_IN)
    (run,) = runs_of(study, tmp_path)
    shown = []
    cell = progress._Cell(progress._Pace(study, tmp_path, fresh=False), shown.append)
    for event in (*EVENTS, RoundDone(2, 0.75)):
        cell(run, event)
    *remarks, line = shown[-1].splitlines()
    assert len(remarks) == 4
    assert "warning: round-00002.safetensors is damaged" in shown[-1]
    assert line.startswith("FedAvg seed 0  round 2/2")
    assert "validation Dice 0.750" in line


def test_outside_a_notebook_there_is_no_cell_to_write_under():
    assert progress._notebook() is None


def test_a_row_that_was_added_is_told_before_anything_runs(tmp_path, monkeypatch):
    file = tmp_path / "study.toml"
    file.write_text(
        'task = "octa"\nmethod = ["fedavg", "feddyn"]\n[federation]\nweighting = "paper"\n'
    )
    out = io.StringIO()
    monkeypatch.setattr(progress, "CONSOLE", plain_console(file=out, width=300))
    with progress.watching(load_study(file, [], BUILT_IN), tmp_path):
        assert out.getvalue().startswith("FedAvg, uniform stands beside FedAvg because sites count")


def test_a_terminal_says_that_images_are_read_until_the_first_run_begins(shown):
    text = shown("local", terminal=True)
    assert "reading images" in text
    assert "reading images" not in text.split("it did not answer")[-1]
    assert "reading images" not in shown("local", terminal=False)
