"""The notebooks of the documentation run from top to bottom, and show what they showed before."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def outputs(notebook):
    """Every output of every cell with its text."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            yield (
                output,
                str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", "")),
            )


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_lies_here_as_it_was_executed_and_names_no_machine(file):
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for output, _ in outputs(notebook) if output.output_type == "error"]
    assert not re.search(r"/(home|tmp|root|work|Users)/", file.read_text())
    assert not re.search(r"\\u001b|\x1b", file.read_text())
    assert any("Method" in text for _, text in outputs(notebook))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of the libraries around the kernel
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_from_top_to_bottom(file, tmp_path):
    where = importlib.util.spec_from_file_location("execute", DOCS / "execute_notebooks.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    before, now = nbformat.read(file, as_version=4), module.executed(file, tmp_path)
    tables = [
        [re.sub(r"[\d.–]+", "", text) for _, text in outputs(each) if text.startswith("Dice (%)")]
        for each in (before, now)
    ]
    assert [text.split() for text in tables[0]] == [text.split() for text in tables[1]]
    assert tables[0]
    progress = [text for _, text in outputs(now) if " seed 0  closing" in text]
    assert progress
    assert not any(re.search(r"\bround \d+/", text) for text in progress)
