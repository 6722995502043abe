import pytest

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.errors import DataError
from polyclinic.data.load import load_federation
from polyclinic.data.sources import listed_sites, sources_of
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_site

FUNDUS = TASKS["fundus"]


@pytest.fixture
def source(tmp_path):
    for name in ("alpha", "beta", "gamma"):
        write_site(tmp_path / "sites" / name, 1)
    (tmp_path / "sites" / "beta" / "site.toml").write_text('name = "Clinic B"')
    return tmp_path / "sites"


def names(source, *sites, **data):
    settings = DataSettings(source=str(source), **data)
    return [site.name for site in listed_sites(FUNDUS, settings, sites)]


def test_all_sites_take_part_under_their_own_names(source):
    assert names(source) == ["alpha", "Clinic B", "gamma"]


@pytest.mark.parametrize("name", ["Clinic B", "beta"])
def test_a_site_with_settings_of_its_own_drops_no_other(source, name):
    own = SiteSettings(name=name, labels="point")

    assert names(source, own) == [name, "alpha", "gamma"]
    found = sources_of(FUNDUS, DataSettings(source=str(source)), [own])
    assert [each.kind for each in found] == ["point"]


def test_a_site_from_elsewhere_comes_besides(source, tmp_path):
    assert names(source, SiteSettings(name="delta", folder=tmp_path)) == [
        "delta",
        "alpha",
        "Clinic B",
        "gamma",
    ]


def test_a_site_from_elsewhere_takes_the_place_of_one_with_its_name(source, tmp_path):
    assert names(source, SiteSettings(name="alpha", folder=tmp_path)) == [
        "alpha",
        "Clinic B",
        "gamma",
    ]


def test_without_a_source_only_the_named_take_part(tmp_path):
    assert names("none", SiteSettings(name="delta", folder=tmp_path)) == ["delta"]


def test_a_study_chooses_which_synthetic_federation_it_means():
    usual, few = (
        load_federation(FUNDUS.with_resolution(16), DataSettings(federation=form))
        for form in ("disagreeing", "agreeing")
    )
    assert [site.name for site in usual] == [site.name for site in few]
    assert [len(site.train) for site in usual] == [16, 20, 44, 44, 20]
    assert [len(site.train) for site in few] == [4] * 5


def test_synthetic_sites_join_a_named_one():
    own = SiteSettings(name="cedar", labels="point")

    assert names("synthetic", own) == ["cedar", "amber", "birch", "dune", "ember"]


@pytest.mark.parametrize("only", [("alpha", "Clinic B"), ("beta", "alpha")])
def test_a_study_can_say_which_take_part(source, only):
    assert names(source, only=only) == ["alpha", "Clinic B"]
    assert names(source, SiteSettings(name="beta"), only=only) == ["beta", "alpha"]


def test_unknown_and_contradicting_names_are_all_told(source):
    with pytest.raises(DataError) as caught:
        names(source, SiteSettings(name="gamma"), only=("alhpa", "beta"))

    first, second = caught.value.mistakes
    assert first.startswith('data.only: no site "alhpa" in')
    assert first.endswith('did you mean "alpha"?')
    assert second == "[[site]] gamma is not in data.only; add it there or drop it"


def test_a_site_without_a_folder_needs_a_source():
    with pytest.raises(DataError, match=r"no site .delta. in no data\.source; give it a folder"):
        sources_of(FUNDUS, DataSettings(source="none"), [SiteSettings(name="delta")])
