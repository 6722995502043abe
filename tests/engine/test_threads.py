import subprocess
import sys

SCRIPT = """
import torch
from polyclinic.engine.local import prepare_process
prepare_process(1)
import numba
print(torch.get_num_threads(), numba.get_num_threads())
"""


def test_a_process_that_is_told_to_use_one_thread_uses_one_from_the_start():
    # In a process of its own: numba starts its threads only once, and then changes torch's number.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1"]
