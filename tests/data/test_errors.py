import pickle
from pathlib import Path

import pytest

from polyclinic.data.errors import DataError, Findings, listed, refuse


def test_all_mistakes_are_said_at_once():
    with pytest.raises(DataError, match="2 mistakes in the data:\n  first\n  second"):
        refuse(["first", "second"])


def test_no_mistake_is_no_error():
    refuse([])


def test_the_error_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(DataError(["one"])))

    assert error.mistakes == ("one",)
    assert str(error) == "1 mistake in the data:\n  one\nHow folders should look: docs/data.md"


def test_findings_name_site_and_file():
    findings = Findings("alpha", Path("data/alpha"))
    findings.add("is odd", Path("data/alpha/masks/07.png"))
    findings.add("is empty")

    assert findings.lines == ["site alpha, masks/07.png: is odd", "site alpha: is empty"]


def test_what_is_true_of_many_files_is_said_once():
    folder = Path("data/alpha")
    findings = Findings("alpha", folder)
    findings.include(["site alpha: from elsewhere"])
    for number in range(60):
        findings.add("is odd", folder / f"masks/{number:02d}.png")
        if number < 3:
            findings.add("is dark", folder / f"images/{number:02d}.png")

    assert findings.lines == [
        "site alpha: from elsewhere",
        "site alpha, masks/00.png and 59 more: is odd",
        "site alpha, images/00.png: is dark",
        "site alpha, images/01.png: is dark",
        "site alpha, images/02.png: is dark",
    ]


def test_long_lists_are_cut_short():
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg"), most=3) == "a, b, c and 4 more"
