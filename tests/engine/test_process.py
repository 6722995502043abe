import platform
import subprocess
import sys

import pytest

from polyclinic.engine.process import keep_freed_memory

SCRIPT = """
import torch
from polyclinic.engine.process import prepare_process
prepare_process(1)
import numba
print(torch.get_num_threads(), numba.get_num_threads())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_the_settings_are_taken_by_glibc():
    assert keep_freed_memory()


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()


def test_a_process_that_is_told_to_use_one_thread_uses_one_from_the_start():
    # In a process of its own: numba starts its threads only once, and then changes torch's number.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1"]
