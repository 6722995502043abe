"""The documentation as a site: it builds without a warning and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=\"?(https?:)?//", re.I)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Building documentation" in done.stderr  # with --quiet warnings would not count
    return folder


def test_a_broken_link_or_a_missing_page_would_fail_and_there_is_none(site):
    assert (site / "index.html").exists()


def test_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert pages
    assert not [page.name for page in pages if LOADED.search(page.read_text())]
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text())


def test_every_setting_method_and_command_is_in_the_reference(site):
    from polyclinic.config.study import TrainingSettings
    from polyclinic.methods import FINISHING_STEPS, METHODS

    reference = {page.stem: page.read_text() for page in (site / "reference").glob("*.html")}
    for name in (*METHODS, *FINISHING_STEPS):
        assert f"<code>{name}</code>" in reference["methods"]
    for name in TrainingSettings.model_fields:
        assert name in reference["configuration"]
    for name in ("run", "data check", "deploy init", "ledger verify"):
        assert f"polyclinic {name}" in reference["commands"]


def test_links_in_pages_outside_the_site_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
