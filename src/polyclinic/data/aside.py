"""Arrays put aside on disk while a site is read, so that memory holds a few of them only."""

import mmap
import os
from collections.abc import Iterable
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
BLOCK = 2**24  # bytes of one file
ALIGNED = 64  # bytes


class Aside:
    """Files without a name in a folder, gone with the last array that lies in them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = Lock()
        self._blocks: list[mmap.mmap] = []
        self._file, self._end = -1, BLOCK

    def put(self, array: Array) -> Array:
        """The same array, mapped read-only: it takes memory only while it is used."""
        if not array.size:
            return array
        with self._lock:
            size = -(-array.nbytes // ALIGNED) * ALIGNED
            if self._end + size > BLOCK:
                self._open(max(size, BLOCK))
            begin, self._end = self._end, self._end + size
            _write(self._file, array, begin)
            block = self._blocks[-1]
        flat = np.frombuffer(block, array.dtype, array.size, begin)
        return flat.reshape(array.shape)

    def stacked(self, arrays: Iterable[Array], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """The arrays, of which there are `shape[0]`, as one, mapped copy on write."""
        kind = np.dtype(dtype)
        if not prod(shape):
            return np.empty(shape, kind)
        with TemporaryFile(dir=self._folder) as file:
            self.write(arrays, kind, file)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._blocks.append(mapped)
        return np.frombuffer(mapped, kind).reshape(shape)

    def write(self, arrays: Iterable[Array], kind: np.dtype[Any], file: IO[bytes]) -> None:
        """Write the arrays one after the other; of those that lie here few are in memory."""
        written = 0
        for array in arrays:
            written += file.write(np.ascontiguousarray(array, kind).data)
            if written >= BLOCK:
                self._rest()
                written = 0
        self._rest()

    def _rest(self) -> None:
        """Give the memory back that what lies here takes; it is read again when it is used."""
        for block in self._blocks:
            block.madvise(mmap.MADV_DONTNEED)

    def _open(self, size: int) -> None:
        with TemporaryFile(dir=self._folder) as file:
            file.truncate(size)
            self._blocks.append(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
            if self._file >= 0:
                os.close(self._file)
            self._file, self._end = os.dup(file.fileno()), 0

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def _write(file: int, array: Array, begin: int) -> None:
    rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while rest:
        written = os.pwrite(file, rest, begin)
        rest, begin = rest[written:], begin + written
