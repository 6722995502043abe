import pytest

from tests.cli.commands import polyclinic as polyclinic

pytestmark = pytest.mark.usefixtures("forgotten")

MINE = '''
from dataclasses import dataclass
from polyclinic.federation.method import Method

@dataclass(frozen=True)
class FedMine(Method):
    """FedAvg by another name."""

@dataclass(frozen=True)
class Logits(Method):
    """Predicts no probabilities."""

    def predict(self, site, images):
        return site.net(images)
'''


@pytest.mark.slow
def test_a_method_of_the_table_is_checked(polyclinic):
    code, out, _ = polyclinic("check-method", "fedbn")
    assert code == 0
    assert "error" not in out
    assert out.splitlines()[-1] == "fedbn keeps the contract"


def test_a_method_of_a_file_is_checked_and_what_it_breaks_is_said(polyclinic, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    assert polyclinic("check-method", f"{file}:FedMine")[0] == 0
    code, out, _ = polyclinic("check-method", f"{file}:Logits")
    assert code == 1
    assert "error  predicting leaves no trace" in out
    assert "they must sum to one over the classes" in out
    assert "breaks the contract in 1 of its points" in out


def test_a_method_that_is_not_there_is_a_mistake(polyclinic, tmp_path):
    code, _, err = polyclinic("check-method", "fedavgg")
    assert code == 2
    assert 'did you mean "fedavg"?' in err
    file = tmp_path / "mine.py"
    code, _, err = polyclinic("check-method", f"{file}:FedMine")
    assert code == 2
    assert "there is no file" in err
    file.write_text(MINE)
    code, _, err = polyclinic("check-method", f"{file}:FedMind")
    assert code == 2
    assert 'did you mean "FedMine"?' in err
