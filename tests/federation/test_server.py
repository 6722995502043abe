import pytest
import torch

from polyclinic.config import FederationSettings
from polyclinic.federation.message import Message
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
