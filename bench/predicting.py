"""Memory and time of `polyclinic predict` on folders of 100 and of 1,000 images.

`python -m bench predicting` prints the ratio of the largest memory; it is 1 where cases are
streamed. Images are drawn, and the model is made by hand; `python -m bench.predicting MODEL` takes
a package instead.
"""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from bench import Ratio

SIDE = 256


def run() -> list[Ratio]:
    with TemporaryDirectory() as folder:
        from tests.predict.hand_made import written

        return [compared(written(Path(folder)), Path(folder))]


def compared(model: Path, folder: Path) -> Ratio:
    """The largest memory with 1,000 images against that with 100."""
    (few, quick), (many, slow) = (measured(model, folder, count) for count in (100, 1000))
    note = (
        f"{few:.0f} MB with 100 images, {many:.0f} MB with 1,000; {slow:.0f} s for 1,000, "
        f"{(slow - quick) / 900 * 1000:.0f} ms an image"
    )
    return Ratio(
        "memory of predicting 1,000 images against 100 (ours = 1,000)", many, few, None, note
    )


def measured(model: Path, folder: Path, count: int) -> tuple[float, float]:
    """Most megabytes, and seconds, of the command in a process of its own."""
    images = folder / f"images-{count}"
    images.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        noise = rng.integers(0, 200, (SIDE, SIDE)).astype(np.uint8)
        noise[60:180, 80:170] += 50
        Image.fromarray(noise).save(images / f"{number:04d}.png")
    words = ["predict", model, images, "--to", folder / f"out-{count}", "--threads", "1"]
    # Not ru_maxrss, which begins with the memory of the process that started this one.
    code = (
        "import sys; from pathlib import Path; from polyclinic.cli import app; "
        "app(sys.argv[1:], standalone_mode=False); "
        "print(int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]) / 1024)"
    )
    started = time.perf_counter()
    command = [sys.executable, "-c", code, *map(str, words)]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return float(told.splitlines()[-1]), time.perf_counter() - started


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        print(compared(Path(sys.argv[1]), Path(place)).note)
