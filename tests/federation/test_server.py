import pytest
import torch

from polyclinic.config import FederationSettings
from polyclinic.federation.message import Message, models_in
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.runs import SiteInfo

SITES = (SiteInfo("north", 0, "mask", 6), SiteInfo("south", 1, "mask", 2))


def a_server(weighting="samples"):
    weights = Weights.pack({"w": torch.zeros(3)})
    return Server(SITES, weights, FederationSettings(weighting=weighting), seed=0, round=4)


@pytest.mark.parametrize(
    ("weighting", "row"),
    [("samples", [0.75, 0.25]), ("steps", [0.2, 0.8]), ("uniform", [0.5, 0.5])],
)
def test_a_row_gives_each_reply_its_share(weighting, row):
    replies = {
        "north": Message(numbers={"images": 6.0, "steps": 1.0}),
        "south": Message(numbers={"images": 2.0, "steps": 4.0}),
    }
    assert a_server(weighting).row(replies) == pytest.approx(row)
    assert a_server(weighting).present(replies) == 1


def test_an_absent_site_leaves_its_share_of_the_whole_open():
    there = {"south": Message(numbers={"images": 2.0, "steps": 4.0})}
    assert a_server("samples").present(there) == 0.25
    assert a_server("uniform").present(there) == a_server("steps").present(there) == 0.5


def test_shares_are_those_of_the_sites_that_answered():
    replies = {"south": Message(numbers={"images": 2.0, "steps": 4.0})}
    assert a_server().row(replies) == [1.0]


def test_a_table_is_noted_with_its_round_and_its_sites():
    server = a_server()
    server.note("affinity", torch.tensor([[1.0, 0.5], [0.25, 1.0]]))
    (table,) = server.tables
    assert (table.round, table.name) == (4, "affinity")
    assert table.rows == table.columns == ("north", "south")
    assert table.values == ((1.0, 0.5), (0.25, 1.0))


def test_what_is_remembered_of_the_other_sites_is_told_and_a_group_is_forgotten():
    server = a_server()
    names = ("head/north/w", "head/south/w", "headway/south/w", "head/northern/w")
    server.memory = {name: torch.zeros(1) for name in names}
    assert list(server.others("head", SITES[0])) == ["head/northern/w", "head/south/w"]
    server.forget("head")
    assert list(server.memory) == ["headway/south/w"]


def test_models_among_extras_are_found_by_their_owners():
    names = ("head/north/conv/1/w", "head/north/b", "head/south/b", "headway/east/b")
    models = models_in({name: torch.zeros(1) for name in names}, "head")
    assert {owner: list(model) for owner, model in models.items()} == {
        "north": ["conv/1/w", "b"],
        "south": ["b"],
    }


def test_a_running_variance_may_be_the_square_of_the_largest_weight():
    """Activations of a thousand have a variance of a million: FedAvgM comes that far."""
    weights = {"norm.running_var": torch.tensor([1e12]), "norm.running_mean": torch.tensor([1e12])}
    assert Message(extras=weights).absurd() == ["norm.running_mean"]
    weights = {"norm.running_var": torch.tensor([1e13])}
    assert Message(extras=weights).absurd() == ["norm.running_var"]


def test_a_message_names_the_values_that_nobody_should_take():
    extras = {"low": torch.tensor([-2e6]), "high": torch.tensor([1e6]), "none": torch.empty(0)}
    spoilt = {"nan": torch.tensor([float("nan")]), "whole": torch.tensor([9])}
    assert Message(extras=extras).absurd() == ["low"]
    assert Message(
        extras=extras | spoilt, numbers={"inf": float("inf"), "one": 1.0}
    ).not_finite() == [
        "nan",
        "inf",
    ]
