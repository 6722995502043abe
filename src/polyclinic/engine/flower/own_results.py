"""What a site keeps of a run for itself: a run folder like any other, with its own scores."""

from collections.abc import Iterable

import torch

from polyclinic.config import to_toml
from polyclinic.engine.run import Run
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState, keep_model
from polyclinic.engine.study import about
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.runs import Finished, RunFolder, Score, SiteInfo


def keep_results(
    run: Run,
    runner: SiteRunner,
    site: SiteInfo,
    state: SiteState,
    number: int,
    rows: Iterable[ScoreRow],
) -> None:
    """Write the site's model and test scores, the settings, what was run and the run's end."""
    folder = run.folder
    keep_model(folder, site.name, run.choice.title, state, runner.assignment)
    folder.write_settings(to_toml(run.study))
    folder.write_about(about(run, runner, torch.get_num_threads(), site))
    folder.forget_after(number)
    folder.append(scores=[Score(number, "test", site.name, *row) for row in rows])
    folder.finish(Finished(chosen_round=number, seconds=0.0))


def keep_trained(folder: RunFolder, site: str, number: int, rows: Iterable[ScoreRow]) -> None:
    """Add the scores of the model as the site trained it, in place of any from before."""
    others = [row for row in folder.scores(model=None) if row.model != "trained"]
    found = [Score(number, "test", site, *row, model="trained") for row in rows]
    folder.rewrite_scores([*others, *found])
