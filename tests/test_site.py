"""The documentation as a site: it builds without a warning and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

from polyclinic.config import TrainingSettings
from polyclinic.methods import FINISHING_STEPS, METHODS

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=\"?(https?:)?//", re.I)


def test_the_site_builds_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path):
    build(tmp_path)
    pages = list(tmp_path.rglob("*.html"))
    assert pages
    assert not [page.name for page in pages if LOADED.search(page.read_text())]
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text())
    reference = {page.stem: page.read_text() for page in (tmp_path / "reference").glob("*.html")}
    for name in (*METHODS, *FINISHING_STEPS):
        assert f"<code>{name}</code>" in reference["methods"]
    for name in TrainingSettings.model_fields:
        assert name in reference["configuration"]
    for name in ("run", "data check", "deploy init", "ledger verify"):
        assert f"polyclinic {name}" in reference["commands"]


def build(folder: Path) -> None:
    """Build the site; broken links, missing pages and pages that no menu names are errors."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Building documentation" in done.stderr  # with --quiet warnings would not count


def test_links_in_pages_outside_the_site_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
