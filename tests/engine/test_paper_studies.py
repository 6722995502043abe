"""The studies of papers: every row suits the network it is given, without any image."""

from pathlib import Path

import pytest
import torch

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.run import assignment_of, runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.runs import SiteInfo

FILES = sorted((Path(__file__).parents[2] / "studies" / "papers").glob("*-small.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_row_of_a_paper_suits_its_network(file, tmp_path):
    study = load_study(file, [], BUILT_IN)
    kinds = [site.labels or "mask" for site in study.site] or ["mask"] * 4
    for run in runs_of(study, tmp_path):
        kind = run.choice.labels
        sites = [SiteInfo(f"site-{n}", n, kind or own, 8) for n, own in enumerate(kinds)]
        runner = SiteRunner(assignment_of(run, sites), torch.device("cpu"))
        assert runner.shared <= runner.everything
        assert run.choice.name in ("local", "centralized") or runner.shared, run.name
