"""The documentation as a site: it builds without a warning and needs nothing from elsewhere."""

import re
from pathlib import Path

import pytest

from polyclinic.config import TrainingSettings
from polyclinic.methods import FINISHING_STEPS, METHODS

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=\"?(https?:)?//", re.I)


@pytest.mark.filterwarnings("default")  # those of the libraries that build it
def test_the_site_builds_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
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
    from mkdocs.commands import build as command
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        command.build(config)
    finally:
        config.plugins.on_shutdown()


def test_links_in_pages_outside_the_site_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
