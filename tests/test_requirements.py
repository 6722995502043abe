"""What `make install` installs: every pin with the hashes of its files."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def locked(name: str) -> dict[str, int]:
    """Pins of a file under requirements/, and how many hashes each has."""
    text = (ROOT / "requirements" / name).read_text()
    return {
        entry.split()[0].lower().replace("_", "-"): entry.count("--hash=sha256:")
        for entry in re.split(r"\n(?=\S)", text.strip())
    }


def test_every_pin_but_torch_has_the_hashes_of_its_files():
    pins = {
        line.lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()
    }
    everything = locked("all.txt")
    assert {pin for pin in pins if pin not in everything} == {"torch==2.13.0"}, "make lock"
    assert set(everything) <= pins, "make lock"
    assert min(everything.values()) >= 1


def test_build_tools_are_pinned_alike():
    build = locked("build.txt")
    assert build.items() <= locked("all.txt").items(), "make lock"
    assert {"hatchling", "setuptools"} <= {pin.split("==")[0] for pin in build}
