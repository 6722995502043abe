import io

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.cli import display
from polyclinic.cli.terminal_tables import plain_console
from polyclinic.config import load_study
from polyclinic.engine.loop import Notice, RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.sites import Scored
from polyclinic.runs import RoundLine

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
        monkeypatch.setattr(display, "CONSOLE", console)
        with display.watching(study) as watch:
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
