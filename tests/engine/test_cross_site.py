"""Every site's model at every site, as an option of a local study."""

import csv

import numpy as np
import pytest

from polyclinic.engine.flower.engine import refuse_impossible
from polyclinic.runs import RunError


@pytest.fixture
def done(federation):
    return federation(sites=2).run(
        "fedbn",
        "evaluation.cross_site=true",
        "federation.rounds=1",
        "evaluation.pictures=true",
        name="cross",
    )


def test_the_matrix_has_every_model_at_every_site(done):
    rows = list(csv.DictReader((done.folder.path / "cross_site.csv").read_text().splitlines()))
    pairs = {(row["model"], row["site"]) for row in rows}
    assert pairs == {(a, b) for a in ("fjord", "grove") for b in ("fjord", "grove")}
    (table,) = [table for table in done.folder.tables() if "each site's model" in table.name]
    assert table.rows == table.columns == ("fjord", "grove")
    assert table.final, "it is of the models in use, not of a round"
    for model, line in zip(table.rows, table.values, strict=True):
        for site, value in zip(table.columns, line, strict=True):
            wanted = (model, site, "dice")
            values = [r["value"] for r in rows if (r["model"], r["site"], r["metric"]) == wanted]
            assert value == pytest.approx(np.mean([float(each) for each in values]))


def test_one_case_of_each_site_is_drawn_as_every_model_sees_it(done):
    for site in ("fjord", "grove"):
        drawn = [p for p in done.folder.attention_pictures(site) if p.shows == "models"]
        assert [p.name for p in drawn] == ["fjord", "grove"]
        assert len({p.case for p in drawn}) == 1
        own, middle = (
            next(p.path for p in drawn if p.name == site),
            next(p.path for p in done.folder.pictures(site) if p.rank == "middle"),
        )
        assert own.read_bytes() == middle.read_bytes()


def test_its_diagonal_is_what_the_run_scored(done):
    rows = csv.DictReader((done.folder.path / "cross_site.csv").read_text().splitlines())
    own = {
        (row["site"], row["case"], row["region"], row["metric"]): float(row["value"])
        for row in rows
        if row["model"] == row["site"]
    }
    scores = {(s.site, s.case, s.region, s.metric): s.value for s in done.folder.scores("test")}
    assert own == scores


def test_the_weights_are_the_same_without_it(federation, done):
    plain = federation(sites=2).run("fedbn", "federation.rounds=1", name="plain")
    for name in ("fjord", "grove"):
        first, second = done.site(name), plain.site(name)
        assert all((first[key] == second[key]).all() for key in first)
    assert not (plain.folder.path / "cross_site.csv").exists()


def test_across_hospitals_sites_that_share_all_models_have_none_to_compare(federation):
    study = federation(sites=2).study("fedsm", "evaluation.cross_site=true")
    with pytest.raises(RunError, match="FedSM a site predicts with the models of all sites"):
        refuse_impossible(study)
    refuse_impossible(
        federation(sites=2).study("fedsm", "evaluation.cross_site=true", "method.uses=personal")
    )
