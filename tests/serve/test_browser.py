"""A person uploads an image in a real browser and sees what was found on it."""

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyclinic.predict import load
from tests.predict.hand_made import disc, written
from tests.serve.browser import tab
from tests.serve.servers import served

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
WAIT = """new Promise(seen => { const look = () => {
  const picture = document.getElementById("overlay");
  const shown = !document.getElementById("result").hidden && picture.complete;
  const state = document.getElementById("state");
  shown || state.className === "warning" ? seen(shown) : setTimeout(look, 20); }; look(); })"""
TEXT = "document.body.innerText"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium (apt-get install chromium)"),
]


def keep(name: str, picture: bytes) -> None:
    """Keep a screenshot where somebody wants to look at it."""
    if folder := os.environ.get("POLYCLINIC_SCREENSHOTS"):
        Path(folder, name).write_bytes(picture)


def seen(picture: bytes):
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))


def tinted(picture):
    """Where the colour of the class lies on grey."""
    red, green, blue = np.moveaxis(picture.astype(int), 2, 0)
    return (red - green > 40) & (blue - green > 20)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(written(tmp_path_factory.mktemp("model")), threads=1)


def test_an_uploaded_image_is_shown_with_its_overlay_and_its_note(model, tmp_path):
    image = disc((300, 400))
    Image.fromarray(image).save(tmp_path / "eye <b>.tiff")
    Image.fromarray(image * 0 + 5).save(tmp_path / "dark.png")
    (tmp_path / "broken.png").write_bytes(b"hello")
    with served(model) as client, tab(BROWSER, tmp_path / "profile") as page:
        page.go(f"http://127.0.0.1:{client.base_url.port}/")
        before = seen(page.screenshot())
        page.choose("#file", tmp_path / "eye <b>.tiff")
        assert page.value(WAIT)
        picture = page.screenshot()
        keep("upload.png", picture)
        after, text = seen(picture), page.value(TEXT)
        count = np.count_nonzero(model.predict(image))
        assert f"{count:,}" in text
        assert "eye <b>.tiff · 400 × 300" in text
        assert "bright is faz" in text
        # The overlay is on the screen, in the right half only.
        assert not tinted(before).any()
        assert np.count_nonzero(tinted(after)[:, 640:]) > 20_000
        assert not tinted(after)[:, :600].any()
        page.choose("#file", tmp_path / "dark.png")
        assert page.value(WAIT)
        keep("doubt.png", page.screenshot())
        text = page.value(TEXT)
        assert "Look closely: do not trust this mask as it is." in text
        assert "faz is empty" in text
        page.choose("#file", tmp_path / "broken.png")
        assert not page.value(WAIT)
        assert "This did not work: what was sent is no image of a known format" in page.value(TEXT)


def test_a_token_is_typed_into_the_page(model, tmp_path):
    Image.fromarray(disc((60, 80))).save(tmp_path / "a.png")
    token = "0123456789abcdef0123"
    with served(model, token=token) as client, tab(BROWSER, tmp_path / "profile") as page:
        page.go(f"http://127.0.0.1:{client.base_url.port}/")
        page.choose("#file", tmp_path / "a.png")
        assert not page.value(WAIT)
        assert "a token is needed" in page.value(TEXT)
        page.value(f'document.getElementById("token").value = "{token}"')
        page.value('document.getElementById("state").className = ""')
        page.choose("#file", tmp_path / "a.png")
        assert page.value(WAIT)
