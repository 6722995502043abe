import pytest
import torch

from polyclinic.methods.fednova import WORK, FedNova, normalized, work_of
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
    works = (3.0, 7.0, 20.0)
    server = toy_server(weighting=weighting)
    before = server.weights["conv.weight"].double()
    replies = toy_replies(1, work=works)
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


def test_momentum_counts_where_the_optimizer_has_it(federation):
    small = federation(rounds=1)
    sgd = small.run("fednova", "training.optimizer=sgd", "training.momentum=0.5", LAST)
    adam = small.run("fednova", LAST)
    works = [
        {line.numbers[WORK] for line in done.folder.rounds() if line.stage == "fit"}
        for done in (sgd, adam)
    ]
    assert works == [{2.5}, {2.0}]
