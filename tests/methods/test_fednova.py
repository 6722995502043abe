import pytest
import torch

from polyclinic.config import TrainingSettings
from polyclinic.methods.fednova import FedNova, normalized, work_of
from tests.federations import equal
from tests.methods.toy import STATISTIC, stacked, toy_replies, toy_server

LAST = "evaluation.choose=last"


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_equal_steps_are_fedavg_bit_by_bit(federation, weighting):
    small = federation(rounds=3)
    settings = (f"federation.weighting={weighting}", LAST)
    fednova, fedavg = small.run("fednova", *settings), small.run("fedavg", *settings)
    assert equal(fednova.tensors("server"), fedavg.tensors("server"))


def test_different_steps_are_not(federation):
    small = federation(rounds=2, **{"training.iterations": "null"})
    small.base.remove("training.iterations=null")
    small.base.remove("training.iterations=2")
    settings = ("training.epochs=1", "training.batch=2", LAST)
    fednova, fedavg = small.run("fednova", *settings), small.run("fedavg", *settings)
    steps = {line.numbers["steps"] for line in fednova.folder.rounds() if line.stage == "fit"}
    assert len(steps) > 1
    server, mean = fednova.tensors("server"), fedavg.tensors("server")
    assert not torch.equal(server["weights/head.weight"], mean["weights/head.weight"])


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_server_follows_the_published_formula(weighting):
    works = (3.0, 7.0, 20.0)  # without momentum, steps
    server = toy_server(weighting=weighting)
    before = server.weights["conv.weight"].double()
    replies = toy_replies(1, steps=works)
    shares = torch.tensor(server.row(replies), dtype=torch.float64)
    tau = torch.tensor(works, dtype=torch.float64)
    changes = (stacked(replies) - before) / tau[:, None]
    expected = before + (shares * tau).sum() * (shares[:, None] * changes).sum(0)
    FedNova().combine(server, replies)
    torch.testing.assert_close(server.weights["conv.weight"].double(), expected)
    mean = (shares[:, None] * stacked(replies, STATISTIC)).sum(0)
    torch.testing.assert_close(server.weights[STATISTIC].double(), mean)


def test_the_shares_and_the_rest_sum_to_one():
    row, rest = normalized([0.2, 0.3, 0.5], [1.0, 10.0, 4.0])
    assert sum(row) + rest == pytest.approx(1)
    assert normalized([0.2, 0.3, 0.5], [7.0, 7.0, 7.0]) == ([0.2, 0.3, 0.5], 0.0)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_work_is_the_way_along_a_constant_gradient(momentum):
    point = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([point], lr=1.0, momentum=momentum)
    for _ in range(6):
        point.grad = torch.full((1,), -1.0)
        optimizer.step()
    assert work_of(6, momentum) == pytest.approx(float(point.detach()), rel=1e-5)


SGD = {"optimizer": "sgd", "momentum": 0.5}


@pytest.mark.parametrize(("settings", "works"), [(SGD, (1.0, 2.5, 4.25)), ({}, (1.0, 2.0, 3.0))])
def test_momentum_counts_where_the_optimizer_has_it(settings, works):
    server, replies = toy_server(), toy_replies(1, steps=(1.0, 2.0, 3.0))
    server.training = TrainingSettings(**settings)
    before = server.weights["conv.weight"].double()
    row, rest = normalized([1 / 3] * 3, list(works))
    expected = rest * before + (torch.tensor(row)[:, None] * stacked(replies)).sum(0)
    FedNova().combine(server, replies)
    torch.testing.assert_close(server.weights["conv.weight"].double(), expected)


def test_a_site_that_did_nothing_counts_for_nothing():
    assert normalized([0.5, 0.5], [0.0, 4.0]) == ([0.0, 0.25], 0.75)
    assert normalized([0.5, 0.5], [0.0, 0.0]) == ([0.0, 0.0], 1.0)
