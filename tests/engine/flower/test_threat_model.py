"""The threat model names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "threat-model.md"


def test_every_finding_has_tests_that_exist():
    rows = [row for row in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", row)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 19))
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (TESTS / file).read_text(), f"{file} has no {test}"
