"""The command line as a function."""

import sys

import pytest

from polyclinic.cli import main


@pytest.fixture
def polyclinic(monkeypatch, capsys):
    """A function that runs the command line and gives its exit code, output and errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["polyclinic", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
