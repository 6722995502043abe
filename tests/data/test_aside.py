import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polyclinic.data import aside
from polyclinic.data.aside import Aside

PUT_AND_STACK = """
import resource
import sys
from pathlib import Path

import numpy as np

from polyclinic.data.aside import Aside


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


before, room = peak(), Aside(Path(sys.argv[1]))
arrays = [room.put(np.full((512, 512), number, np.float32)) for number in range(256)]
stack = room.stacked(arrays, (256, 512, 512), np.float32)
assert stack[200, 5, 5] == 200
print(peak() - before)
"""


def drawn(count=40, seed=0):
    rng = np.random.default_rng(seed)
    kinds = (np.uint8, np.float32, np.bool_, np.int16)
    sizes = rng.integers(1, 40, (count, 2))
    return [
        (rng.random(tuple(size)) * 200).astype(kinds[number % 4])
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("block", [4096, 256])  # more than one array in a block, and less
def test_arrays_put_aside_side_by_side_stay_what_they_are(tmp_path, monkeypatch, block):
    monkeypatch.setattr(aside, "BLOCK", block)
    room, arrays = Aside(tmp_path), drawn()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(room.put, arrays))
    del room

    for one, other in zip(found, arrays, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
        assert not one.flags.writeable
    assert not list(tmp_path.iterdir())


def test_a_stack_is_numpys_and_may_be_changed(tmp_path):
    room = Aside(tmp_path)
    arrays = [np.full((3, 5), number, np.uint8) for number in range(7)]
    found = room.stacked(map(room.put, arrays), (7, 3, 5), np.float32)
    found[0] += 1

    assert np.array_equal(found[1:], np.stack(arrays)[1:])
    assert (found[0] == 1).all()
    assert room.stacked([], (0, 3, 5), np.uint8).shape == (0, 3, 5)


def test_what_lies_aside_is_not_in_memory(tmp_path):
    command = (sys.executable, "-c", PUT_AND_STACK, str(tmp_path))
    told = subprocess.run(command, capture_output=True, text=True, check=True)

    assert float(told.stdout) < 96  # megabytes, of 256 that are put and 256 that are stacked
