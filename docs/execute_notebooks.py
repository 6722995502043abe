"""Executes the notebooks of this documentation and keeps what they show.

`.venv/bin/python docs/execute_notebooks.py` writes their outputs anew; tests execute them, too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
SECONDS = 600  # more than any cell takes on a busy machine


def executed(file: Path, where: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run in this folder; an error of a cell is raised."""
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(where)}},
        record_timing=False,
    )  # fmt: skip
    client.execute()
    notebook.metadata = {"language_info": {"name": "python"}}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("image/jpeg", None)  # a picture comes as PNG, too
    return notebook


def main() -> None:
    """Execute those that are named, else all, and write them back."""
    for file in [FOLDER / name for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        with TemporaryDirectory() as folder:
            nbformat.write(executed(file, Path(folder)), file)


if __name__ == "__main__":
    main()
