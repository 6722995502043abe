"""A served model against bare onnxruntime: the same graph, the same images, one thread each.

Arrays go and come as they are; PNG files are decoded and encoded, which counts as serving. Eight
arrays are one request, eight PNG files are eight requests at once.
"""

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from bench import Ratio, interleaved
from polyclinic.data.synthetic import draw_site, federation
from polyclinic.predict import load

SIDE, BATCHES, REPEATS = 256, (1, 8), 15
MOST = 1 / 1.1  # an overhead of 10 %


def run() -> list[Ratio]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.polyclinic")
        images = make_package(file)
        model = load(file, threads=1)
        with served(file) as port, ThreadPoolExecutor(max(BATCHES)) as clients:
            ratios = []
            for count in BATCHES:
                batch = images[:count]
                tensor = batch.astype(np.float32)
                given = {"image": tensor, "eight_bit": np.array(True)}
                links = [HTTPConnection("127.0.0.1", port) for _ in range(count)]
                array, pngs = as_npy(batch), [as_png(image[0]) for image in batch]
                seconds = interleaved(
                    {
                        "bare": partial(model._session.run, ["classes"], given),
                        "arrays": partial(asked, links[0], "array", array),
                        "png": lambda links=links, pngs=pngs: [
                            *clients.map(lambda link, png: asked(link, "mask", png), links, pngs)
                        ],
                    },
                    REPEATS,
                )
                note = f"bare {1000 * seconds['bare']:.0f} ms"
                for way in ("arrays", "png"):
                    name = f"serving {count} × {SIDE}² as {way} against bare onnxruntime"
                    over = seconds[way] / seconds["bare"] - 1
                    told = f"{100 * over:+.1f} % time; {note}"
                    ratios.append(Ratio(name, seconds[way], seconds["bare"], MOST, told))
    return ratios


def make_package(file: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Write the model of a U-Net that hardly trained, and give images (8×1×256×256) for it."""
    from polyclinic.api.running import do_runs
    from polyclinic.catalog import BUILT_IN
    from polyclinic.config import load_study
    from polyclinic.exporting.choosing import origins
    from polyclinic.exporting.packaging import packaged

    study = file.with_name("serving.toml")
    study.write_text(f'task = {{ name = "octa", resolution = {SIDE} }}\nmethod = "fedavg"\n')
    changes = ["federation.rounds=1", "training.iterations=1", "evaluation.every=0", "seeds=[0]"]
    changes += ["data.size=0.1", "evaluation.pictures=false", 'evaluation.metrics=["dice"]']
    settings = load_study(study, changes, BUILT_IN)
    done = do_runs(settings, file.parent, resume=False, fresh=False)
    packaged(origins(done, BUILT_IN, server=True)).write(file)
    site = federation("octa")[0].name
    return draw_site("octa", site, resolution=SIDE, seed=0).images[: max(BATCHES)]


@contextmanager
def served(file: Path) -> Iterator[int]:
    """The port of `polyclinic serve` as a process of its own, with one thread."""
    words = ["serve", str(file), "--port", "0", "--threads", "1"]
    command = [sys.executable, "-m", "polyclinic", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r":(\d+) ", process.stderr.readline())
            assert found is not None, "the server did not start"
            yield int(found[1])
        finally:
            process.terminate()
            process.stderr.read()


def asked(link: HTTPConnection, form: str, content: bytes) -> bytes:
    """The server's answer to one image or one array."""
    link.request("POST", f"/predict?as={form}", content)
    answer = link.getresponse()
    found = answer.read()
    assert answer.status == 200, found
    return found


def as_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_png(image: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return file.getvalue()
