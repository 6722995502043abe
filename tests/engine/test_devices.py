import pytest
import torch

from polyclinic.engine.devices import device_of, threads_of
from polyclinic.runs import RunError
from tests.federations import run_locally

ABSENT = [
    *(name for name in ("cuda", "mps", "xpu") if not getattr(torch, name).is_available()),
    "cuda:99",
]


@pytest.mark.parametrize("name", ABSENT)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(RunError) as told:
        device_of(name)
    assert str(told.value).startswith(f'engine.device = "{name}": ')
    assert "allowed: auto, cpu" in str(told.value)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch was built with CUDA")
def test_a_torch_without_cuda_is_named_as_the_reason():
    with pytest.raises(RunError, match=f"torch {torch.__version__.split('+')[0]}.* without CUDA"):
        device_of("cuda")


def test_the_cpu_is_always_there_and_auto_is_one_of_those_present():
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_study_for_an_absent_device_stops_before_anything_is_read_or_written(federation):
    small = federation()
    study = small.study("fedavg", "engine.device=cuda:99", "data.source=nowhere")
    with pytest.raises(RunError, match=r"engine\.device"):
        run_locally(study, small.folder / "runs", watch=lambda *_: None)
    assert not (small.folder / "runs").exists()


@pytest.mark.parametrize(
    ("told", "workers", "variable", "expected"),
    [
        (3, 1, "2", 3),  # what the study says goes first
        (0, 1, "2", 2),
        (0, 4, "2", 2),  # the variable is for each process, as everywhere else
        (0, 1, "5,3", 5),  # a list is for nested loops, of which there are none
        (0, 1, None, 8),
        (0, 4, None, 2),
        (0, 99, None, 1),
        (0, 1, "", 8),
        (0, 1, "0", 8),  # OpenMP itself ignores what is no number above 0
        (0, 1, "many", 8),
    ],
)
def test_threads_are_the_studys_else_the_environments_else_all_cores(
    told, workers, variable, expected
):
    environment = {} if variable is None else {"OMP_NUM_THREADS": variable}
    assert threads_of(told, workers, cores=8, environment=environment) == expected


def test_a_run_uses_and_records_the_threads_of_the_environment(federation, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    done = federation(rounds=1).run("fedavg", "engine.threads=0", name="threads")
    assert done.folder.about().threads == 3
