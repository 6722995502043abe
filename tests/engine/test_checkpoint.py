import math

import pytest
import torch

from polyclinic.config import FederationSettings
from polyclinic.engine.checkpoint import Checkpoint, Progress
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights


def a_server(value=0.0):
    weights = Weights.pack({"z": torch.full((2, 1, 3, 3), value), "a": torch.full((4,), value)})
    return Server((), weights, FederationSettings(), seed=0, memory={"m": torch.tensor(value)})


@pytest.mark.parametrize("progress", [Progress(3), Progress(3, 2, 0.1 + 0.2, 12.5)])
def test_progress_comes_back_from_its_texts_exactly(progress):
    assert Progress.from_texts(progress.to_texts()) == progress


def test_before_a_validation_no_round_is_the_best():
    assert Progress.from_texts(Progress(0).to_texts()).best_score == -math.inf


def test_a_server_is_brought_back_to_its_last_finished_round(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    assert not checkpoint.exists
    checkpoint.save(a_server(1.0), Progress(1))
    checkpoint.save(a_server(2.0), Progress(2))
    assert checkpoint.exists
    server = a_server()
    assert checkpoint.load(server) == Progress(2)
    assert server.round == 2
    assert list(server.weights) == ["z", "a"]  # in the server's order, not in the file's
    assert server.weights.flat.eq(2.0).all()
    assert server.memory == {"m": torch.tensor(2.0)}


def test_the_best_round_is_kept_beside_the_last(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    for number, best in ((1, 1), (2, 2), (3, 2)):
        checkpoint.save(a_server(float(number)), Progress(number, best, 0.5))
    server = a_server()
    assert checkpoint.load_round(server, 2) == Progress(2, 2, 0.5)
    assert server.weights.flat.eq(2.0).all()
    assert checkpoint.load(server).round == 3
    assert server.weights.flat.eq(3.0).all()


def test_loading_does_not_tie_the_server_to_the_file(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save(a_server(1.0), Progress(1))
    server = a_server()
    checkpoint.load(server)
    server.weights.flat.zero_()
    checkpoint.load(server)
    assert server.weights.flat.eq(1.0).all()
