"""A served model against bare onnxruntime: the same graph, the same images, one thread each.

Arrays go and come as they are; PNG files are decoded and encoded, which counts as serving. Eight
arrays are one request, eight PNG files are eight requests at once.

What counts is the time that the processor works, for the server all of its process: how busy the
machine is with other things changes waiting times, but hardly that. They stand in the note.
"""

import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
from PIL import Image

from bench import Ratio
from polyclinic.data.synthetic import draw_site, federation
from polyclinic.predict import Model, load

SIDE, BATCHES, REPEATS = 256, (1, 8), 15
MOST = 1 / 1.1  # an overhead of 10 %


def run() -> list[Ratio]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.polyclinic")
        images = make_package(file)
        model = load(file, threads=1)
        with served(file) as (port, server):
            return [
                ratio
                for count in BATCHES
                for ratio in compared(model, images[:count], port, server)
            ]


def compared(model: Model, batch: Any, port: int, server: Callable[[], float]) -> list[Ratio]:
    """The batch by bare onnxruntime, and served as arrays and as PNG files."""
    count = len(batch)
    given = {"image": batch.astype(np.float32), "eight_bit": np.array(True)}
    links = [HTTPConnection("127.0.0.1", port) for _ in range(count)]
    array, pngs = as_npy(batch), [as_png(image[0]) for image in batch]
    with ThreadPoolExecutor(count) as clients:
        worked, waited = taking_turns(
            {
                "bare": (lambda: model._session.run(["classes"], given), process_time),
                "arrays": (lambda: asked(links[0], "array", array), server),
                "png": (lambda: [*clients.map(asked, links, ["mask"] * count, pngs)], server),
            }
        )
    ratios = []
    for way in ("arrays", "png"):
        name = f"serving {count} × {SIDE}² as {way} against bare onnxruntime"
        over, longer = (100 * (each[way] / each["bare"] - 1) for each in (worked, waited))
        bare, slow = 1000 * worked["bare"], 1000 * waited["bare"]
        told = f"{over:+.1f} % work, {longer:+.1f} % waiting; bare {bare:.0f} and {slow:.0f} ms"
        ratios.append(Ratio(name, worked[way], worked["bare"], MOST, told))
    return ratios


def taking_turns(
    sides: dict[str, tuple[Callable[[], Any], Callable[[], float]]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds that each side works, by a clock of its own, and that it is waited for."""
    worked: dict[str, list[float]] = {name: [] for name in sides}
    waited: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(REPEATS + 2):
        for name, (work, clock) in sides.items():
            before, started = clock(), perf_counter()
            work()
            if turn > 1:  # the first two warm up
                waited[name].append(perf_counter() - started)
                worked[name].append(clock() - before)
    return tuple({n: median(each) for n, each in of.items()} for of in (worked, waited))


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
def served(file: Path) -> Iterator[tuple[int, Callable[[], float]]]:
    """The port of `polyclinic serve` with one thread, in a process of its own, and its clock."""
    words = ["serve", str(file), "--port", "0", "--threads", "1"]
    command = [sys.executable, "-m", "polyclinic", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r":(\d+) ", process.stderr.readline())
            assert found is not None, "the server did not start"
            yield int(found[1]), lambda: worked_by(process.pid)
        finally:
            process.terminate()
            process.stderr.read()


def worked_by(process: int) -> float:
    """The seconds that all threads of a process have worked (Linux)."""
    files = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def asked(link: HTTPConnection, form: str, content: bytes) -> bytes:
    """The server's answer to one image or one array."""
    link.request("POST", f"/predict?as={form}", content)
    answer = link.getresponse()
    found = answer.read()
    link.close()  # or the server would, where its turn is long in coming
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
