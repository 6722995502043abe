"""Methods stay small: one training loop for all of them, and nothing hidden beside it."""

import ast
import re
from pathlib import Path

import pytest

import polyclinic
from polyclinic import methods

SOURCE = Path(polyclinic.__file__).parent
FILES = sorted(Path(methods.__file__).parent.glob("*.py"))
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "own-method.md"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_method_fits_in_200_lines_and_loops_over_no_batches(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 200
    loops = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.For | ast.comprehension)
    ]
    assert not [ast.unparse(each) for each in loops if "batch" in ast.unparse(each.iter)]
    assert not [ast.unparse(each) for each in loops if "batch" in ast.unparse(each.target)]


def test_the_source_goes_backward_in_one_place():
    found = [
        file for file in SOURCE.rglob("*.py") for _ in re.findall(r"\.backward\(", file.read_text())
    ]
    assert [file.relative_to(SOURCE).as_posix() for file in found] == ["federation/site.py"]


def test_fedavg_has_at_most_ten_lines():
    text = (SOURCE / "methods" / "fedavg.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 10


def test_fedprox_and_fedper_from_outside_have_fewer_than_60_lines_together():
    code = re.search(r"```python title=\"mine\.py\"\n(.*?)```", TUTORIAL.read_text(), re.S).group(1)
    assert {"FedProx", "FedPer"} <= {
        each.name for each in ast.parse(code).body if isinstance(each, ast.ClassDef)
    }
    assert len(code.splitlines()) < 60
