"""A model over HTTP, on real sockets."""

import gzip
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import nibabel
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import polyclinic
from polyclinic.cli import app
from polyclinic.data.formats.reading import stacks_of
from polyclinic.data.formats.segmentation import read_segmentation
from polyclinic.predict import load
from polyclinic.serve.guard import check_token, is_loopback
from polyclinic.serve.web import WAITING, Limits
from tests.data.volumes import plain_dicom, write_nifti
from tests.predict.hand_made import disc, hand_made, written
from tests.serve.servers import served

SECRET = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(written(tmp_path_factory.mktemp("model")), threads=1)


@pytest.fixture(scope="module")
def client(model):
    with served(model) as client:
        yield client


def encoded(pixels, kind="PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind)
    return file.getvalue()


def as_npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def opened(content: bytes):
    return np.asarray(Image.open(io.BytesIO(content)))


IMAGE = disc((40, 50))


def test_a_mask_is_what_python_gives_whether_in_a_form_or_bare(client, model):
    content = encoded(IMAGE)
    bare = client.post("/predict?as=mask", content=content)
    form = client.post("/predict?as=mask", files={"image": ("any.name", content)})
    assert bare.headers["content-type"] == "image/png"
    assert bare.content == form.content
    mask = opened(bare.content)
    assert (mask == model.predict(IMAGE)).all()
    assert 0 < np.count_nonzero(mask) < mask.size


def test_facts_are_areas_and_a_note_in_words(client, model):
    facts = client.post("/predict", content=encoded(IMAGE)).json()
    expected = model.look(IMAGE[None])
    assert facts["size"] == [1, 40, 50]
    assert facts["classes"]["faz"]["pixels"] == np.count_nonzero(expected.classes == 1)
    assert facts["doubt"] == pytest.approx(expected.note.doubt)
    assert facts["reasons"] == list(expected.note.reasons)
    dark = client.post("/predict", content=encoded(IMAGE * 0 + 5)).json()
    assert any("faz is empty" in reason for reason in dark["reasons"])
    assert "faz is empty" in dark["note"]


def test_an_overlay_shows_the_colour_of_the_class(client):
    answer = client.post("/predict?as=overlay", content=encoded(IMAGE))
    picture = opened(answer.content)
    assert picture.shape == (40, 50, 3)
    assert (picture == (255, 0, 210)).all(axis=2).any()


def test_arrays_are_answered_with_arrays_of_all_their_images(client, model):
    batch = np.stack([IMAGE, IMAGE[::-1], IMAGE // 2])[:, None]
    answer = client.post("/predict?as=array", content=as_npy(batch))
    masks = np.load(io.BytesIO(answer.content))
    assert masks.shape == (3, 40, 50)
    for image, mask in zip(batch, masks, strict=True):
        assert (mask == model.classes(image)).all()
    single = client.post("/predict?as=array", content=as_npy(np.asfortranarray(IMAGE)))
    assert (np.load(io.BytesIO(single.content))[0] == masks[0]).all()


def test_a_nifti_volume_comes_back_in_its_place(client, tmp_path):
    volume = np.stack([disc((30, 26), levels=4000, dtype=np.int16)] * 3, axis=2)
    affine = np.diag([-0.5, -0.7, 2.5, 1.0])
    file = write_nifti(tmp_path / "v.nii.gz", volume, affine)
    answer = client.post("/predict?as=mask", content=file.read_bytes())
    (tmp_path / "mask.nii.gz").write_bytes(answer.content)
    mask = nibabel.load(tmp_path / "mask.nii.gz")
    assert mask.shape == volume.shape
    assert np.allclose(mask.affine, affine)
    facts = client.post("/predict", content=gzip.decompress(file.read_bytes())).json()
    found = np.count_nonzero(np.asarray(mask.dataobj))
    assert facts["classes"]["faz"]["volume"] == pytest.approx(found * 0.5 * 0.7 * 2.5)


def test_dicom_comes_back_as_a_segmentation(client, tmp_path):
    plain_dicom(disc((30, 26), levels=4000, dtype=np.uint16)).save_as(
        tmp_path / "one.dcm", enforce_file_format=True
    )
    answer = client.post("/predict?as=mask", content=(tmp_path / "one.dcm").read_bytes())
    assert answer.headers["content-type"] == "application/dicom"
    (tmp_path / "seg").mkdir()
    (tmp_path / "seg" / "mask.dcm").write_bytes(answer.content)
    (stack,), _ = stacks_of([tmp_path / "one.dcm"])
    mask = read_segmentation(tmp_path / "seg" / "mask.dcm", stack.read(), stack.instances)
    assert mask.any()


def test_a_single_pixel_is_an_image(client):
    answer = client.post("/predict?as=mask", content=encoded(np.full((1, 1), 9, np.uint8)))
    assert opened(answer.content).shape == (1, 1)


def huge_png() -> bytes:
    """A PNG whose header says that it has 60,000 × 60,000 pixels."""
    import struct
    import zlib

    small = bytearray(encoded(IMAGE))
    small[16:24] = struct.pack(">II", 60000, 60000)
    small[29:33] = struct.pack(">I", zlib.crc32(bytes(small[12:29])))
    return bytes(small)


def torn_dicom() -> bytes:
    file = io.BytesIO()
    plain_dicom(IMAGE).save_as(file, enforce_file_format=True)
    return file.getvalue()[:1500]


@pytest.mark.parametrize(
    ("query", "content", "status", "words"),
    [
        ("", b"", 422, "nothing was sent"),
        ("", b"hello", 422, "no image of a known format; known are PNG, JPEG"),
        ("as=mask", encoded(IMAGE)[:200], 422, "the image cannot be read"),
        ("as=mask", huge_png(), 422, "pixels"),
        ("as=overlay", torn_dicom(), 422, "the image"),
        ("", b"\x1f\x8b" + bytes(50), 422, "the image"),
        ("", bytes(344) + b"n+1\0" + bytes(90), 422, "the image"),
        ("", as_npy(np.full((4, 4), np.nan)), 422, "NaN"),
        ("as=array", as_npy(np.zeros((2, 3, 9, 9))), 422, "N×1×H×W, not 2×3×9×9"),
        ("as=array", as_npy(np.zeros((9, 9)))[:-3], 422, "torn"),
        ("as=array", as_npy(np.array(["a"])), 422, "no numbers of pixels"),
        ("as=array", as_npy(np.full((4, 4), np.inf)), 422, "infinite"),
        ("as=array", b"\x93NUMPY\1\0\5\0hello", 422, "the array cannot be read"),
        ("as=array", encoded(IMAGE), 422, "send an NPY file"),
        ("as=song", encoded(IMAGE), 400, "known are json, mask, overlay, array"),
        ("", bytes(1_000_001), 413, "more than 1 MB"),
    ],
)
def test_what_cannot_be_used_is_answered_with_a_sentence(client, query, content, status, words):
    answer = client.post(f"/predict?{query}", content=content)
    told = answer.json()["error"]
    assert (answer.status_code, words in told) == (status, True), told
    assert "Traceback" not in told
    assert "/tmp" not in told
    assert client.get("/health").json()["waiting"] == 0


def test_a_body_without_a_length_is_limited_too(client):
    answer = client.post("/predict", content=iter([bytes(400_000)] * 3))
    assert (answer.status_code, answer.json()["error"]) == (413, "the image has more than 1 MB")


def test_a_form_without_a_file_is_said(client):
    answer = client.post("/predict", files={"note": (None, "hello")})
    assert (answer.status_code, answer.json()["error"][:22]) == (400, "the form holds no file")
    torn = client.post(
        "/predict", content=b"--x\r\n", headers={"content-type": "multipart/form-data"}
    )
    assert torn.status_code == 400


def test_the_card_and_the_page_need_nothing_else(client, model):
    assert client.get("/card?as=markdown").text == model.card
    card = client.get("/card")
    assert "What it must not be used for" in card.text
    page = client.get("/")
    assert 'type="file"' in page.text
    assert "http://" not in page.text + card.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/predict").status_code == 405
    assert client.get("/elsewhere").json() == {"error": "Not Found"}


def test_a_name_that_only_points_here_is_refused(client):
    answer = client.get("/card", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["error"][:16]) == (403, "this server is f")
    assert client.get("/card", headers={"host": "[::1]:8000"}).status_code == 200
    assert client.get("/card", headers={"host": "[broken"}).status_code == 403


def test_with_a_token_nothing_is_told_without_it(model):
    with served(model, token=SECRET) as client:
        assert client.get("/health").json()["status"] == "ok"
        page = client.get("/").text
        assert 'id="token"' in page
        assert model.facts.title not in page
        for given in (None, SECRET, f"Bearer {SECRET}x", "Bearer", "Bearer é"):
            headers = {} if given is None else {"authorization": given.encode()}
            for ask in (
                client.get("/card", headers=headers),
                client.post("/predict", headers=headers),
            ):
                assert ask.status_code == 401
                assert ask.headers["www-authenticate"] == "Bearer"
        good = {"authorization": f"Bearer {SECRET}", "host": "model.hospital.example"}
        assert client.get("/card", headers=good).status_code == 200
        assert client.post("/predict", content=encoded(IMAGE), headers=good).status_code == 200


def test_other_addresses_need_a_token_that_cannot_be_guessed():
    assert is_loopback("127.0.0.5")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("localhost.example")
    check_token("localhost", None)
    check_token("0.0.0.0", SECRET)
    with pytest.raises(ValueError, match=r"other machines can reach 0\.0\.0\.0: give a token"):
        check_token("0.0.0.0", None)
    with pytest.raises(ValueError, match="can be guessed"):
        check_token("0.0.0.0", "short")


class Held:
    """A model that predicts when it is let."""

    def __init__(self, model):
        self.begun, self.let = threading.Event(), threading.Event()
        self.facts, self.task, self._model = model.facts, model.task, model

    def classes(self, image):
        self.begun.set()
        self.let.wait()
        return self._model.classes(image)


def test_health_answers_while_an_image_is_predicted_and_a_queue_has_an_end(model):
    held = Held(model)
    with served(held) as client:
        url = f"{client.base_url}/predict?as=mask"
        answers = []

        def ask():
            answers.append(httpx.post(url, content=encoded(IMAGE), timeout=60, trust_env=False))

        threads = [threading.Thread(target=ask) for _ in range(WAITING)]
        for thread in threads:
            thread.start()
        held.begun.wait()
        while client.get("/health").json()["waiting"] < WAITING:
            pass
        refused = client.post("/predict?as=mask", content=encoded(IMAGE))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        held.let.set()
        for thread in threads:
            thread.join()
        assert [each.status_code for each in answers] == [200] * WAITING


def test_what_takes_too_long_is_given_up(model):
    held = Held(model)
    with served(held, Limits(seconds=0.2)) as client:
        answer = client.post("/predict?as=mask", content=encoded(IMAGE))
        assert (answer.status_code, answer.json()["error"]) == (
            503,
            "predicting took longer than 0.2 seconds",
        )
        with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nx")
            assert b" 408 " in slow.recv(100)
        held.let.set()


def test_a_failing_model_is_no_traceback(model):
    class Failing(Held):
        def classes(self, image):
            raise RuntimeError("secret")

    with served(Failing(model)) as client:
        answer = client.post("/predict?as=mask", content=encoded(IMAGE))
        assert (answer.status_code, answer.json()) == (
            500,
            {"error": "the model failed on this image"},
        )
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "give a token"),
        (["--dicom", "11112"], "--dicom and --send-to go together"),
        (["--dicom", "11112", "--send-to", "PACS"], "write AE@host:port"),
        (
            ["--host", "0.0.0.0", "--token", SECRET, "--dicom", "1", "--send-to", "A@b:2"],
            "name the AE titles that may send",
        ),
    ],
)
def test_what_must_not_be_served_is_refused_at_the_start(tmp_path, words, told):
    done = CliRunner().invoke(app, ["serve", str(written(tmp_path)), *words])
    assert isinstance(done.exception, ValueError)
    assert told in str(done.exception)


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", str(written(tmp_path)), "--port", port])
    assert re.search(rf"127.0.0.1, port {port} cannot be served", str(done.exception))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_ended(tmp_path, number):
    hand_made().write(tmp_path / "m.polyclinic")
    command = [sys.executable, "-m", "polyclinic", "serve", str(tmp_path / "m.polyclinic")]
    source = str(Path(polyclinic.__file__).parents[1])
    with subprocess.Popen(
        [*command, "--port", "0", "--dicom", "0", "--send-to", "PACS@127.0.0.1:1"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as process:
        lines = [process.stderr.readline() for _ in range(2)]
        url = re.search(r"http://\S+", lines[1])[0]
        answer = httpx.post(url + "/predict", content=encoded(IMAGE), trust_env=False, timeout=60)
        assert json.loads(answer.content)["title"] == "bright is faz"
        process.send_signal(number)
        assert process.stderr.read() == "ended\n"
    assert process.returncode == 0
