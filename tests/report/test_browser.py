"""The report in a real browser, opened from disk."""

import os
import shutil
from pathlib import Path

import pytest

from polyclinic.report import write_report
from tests.report.invented import write_run
from tests.serve.browser import tab

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
FIRST = "[...document.querySelector('table.scores').tBodies[0].rows].map(r => r.cells[1].innerText)"
HEAD = "document.querySelector('table.scores').tHead.rows[1].cells[1]"
KEY = "new KeyboardEvent('keydown', {key: '%s', bubbles: true})"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    for number, title in enumerate(("A", "B", "C")):
        write_run(root, title, cases=6, metrics=("dice", "hd95"), started=f"2026-0{number + 1}")
    path = write_report([root / "demo"], root)
    assert path.stat().st_size < 20e6
    with tab(BROWSER, root / "profile") as browser:
        browser.value("window.x = 1")
        errors = browser.watch_errors()
        browser.go(path.as_uri())
        yield browser, errors


def numbers(texts):
    return [float(text.split()[0].strip("≈")) for text in texts]


def test_it_opens_from_disk_without_errors_and_asks_for_nothing(page):
    browser, errors = page
    assert (
        browser.value(
            "performance.getEntriesByType('resource').filter("
            "e => !e.name.startsWith('data:')).length"
        )
        == 0
    )
    broken = "[...document.images].filter(i => i.src && i.complete && !i.naturalWidth).length"
    assert browser.value(broken) == 0
    assert browser.value("document.querySelectorAll('nav a[href^=\"#\"]').length") > 8
    missing = "[...document.querySelectorAll('nav a')].filter(a => !document.querySelector("
    assert browser.value(missing + "a.getAttribute('href'))).map(a => a.href)") == []
    if folder := os.environ.get("POLYCLINIC_SCREENSHOTS"):
        Path(folder, "report.png").write_bytes(browser.screenshot())
    assert errors() == []


def test_a_click_or_enter_on_a_head_sorts_and_a_third_restores(page):
    browser, errors = page
    before = browser.value(FIRST)
    browser.value(f"{HEAD}.click()")
    assert numbers(browser.value(FIRST)) == sorted(numbers(before), reverse=True)
    assert browser.value(f"{HEAD}.getAttribute('aria-sort')") == "descending"
    browser.value(f"{HEAD}.dispatchEvent({KEY % 'Enter'})")
    assert numbers(browser.value(FIRST)) == sorted(numbers(before))
    browser.value(f"{HEAD}.click()")
    assert browser.value(FIRST) == before
    assert errors() == []


def test_pictures_zoom_and_are_walked_through_by_keys(page):
    browser, errors = page
    browser.value("document.querySelector('main figure').focus()")
    browser.value(f"document.activeElement.dispatchEvent({KEY % 'Enter'})")
    assert browser.value("document.getElementById('zoom').open")
    source = "document.querySelector('#zoom img').src"
    first = browser.value(source)
    assert first == browser.value("document.querySelector('main figure img').src")
    browser.value(f"document.getElementById('zoom').dispatchEvent({KEY % 'ArrowRight'})")
    assert browser.value(source) != first
    browser.value(f"document.getElementById('zoom').dispatchEvent({KEY % 'ArrowLeft'})")
    assert browser.value(source) == first
    browser.press("Escape")
    assert not browser.value("document.getElementById('zoom').open")
    assert browser.value("document.activeElement === document.querySelector('main figure')")
    assert errors() == []
