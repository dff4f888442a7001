"""Chapter 27, continued. Texts bigger than memory

Training asks for a few blocks of T + 1 ids at random places, a few kilobytes a step, however long the text is. So the
text is read piece by piece, its ids are written to a file once, and the file is mapped into memory: the operating
system reads the pages in which a block lies when the block is asked for, and forgets them again when memory is short.

    text -> pieces of a megabyte -> ids -> ids-<fingerprint>.npy in the run's directory -> np.load(mmap_mode="r")

An id takes the smallest number of bytes that holds the vocabulary: one for bytes and most characters, two for byte
pairs. The file is a plain .npy array, with four bytes behind it that NumPy does not look at: the checksum of the ids.
Its name holds the fingerprint of text and vocabulary, and like a checkpoint it gets that name only when it is whole; so
a run that is resumed finds it and need not encode the text again, unless length or checksum say that it has changed.
"""

import contextlib
import io
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.files import atomic_write, open_regular

LOOKED_AT_ONCE = 2**20  # ids of a file
CHECKSUM = 4  # bytes


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest unsigned integers that hold all ids."""
    return np.min_scalar_type(vocabulary_size - 1)


def write_ids(path: Path, arrays: Iterable[np.ndarray], dtype: np.dtype[Any]) -> None:
    """Write ids that come piece by piece as one .npy array, whole or not at all, with their checksum behind it.

    Raises: ValueError if its header grows.
    """
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        file.write(_header(0, dtype))
        count, checksum = 0, 0
        for ids in arrays:
            raw = ids.astype(dtype).data
            file.write(raw)
            count, checksum = count + len(ids), zlib.crc32(raw, checksum)
        file.write(checksum.to_bytes(CHECKSUM, "little"))
        # NumPy leaves room in the header for the length of the first axis, which is known now
        head = _header(count, dtype)
        if len(head) != len(_header(0, dtype)):
            raise ValueError(f"write_ids: the header of {count} ids does not fit into its place")
        file.seek(0)
        file.write(head)


def map_ids(path: Path, vocabulary_size: int) -> np.ndarray | None:
    """The ids in a file, mapped; None where there is no such file, or one that is not as it was written."""
    dtype = id_dtype(vocabulary_size)
    start = len(_header(0, dtype))
    with contextlib.suppress(OSError, ValueError), open_regular(path) as file:  # ValueError: it shrinks meanwhile
        count = (os.fstat(file.fileno()).st_size - start - CHECKSUM) // dtype.itemsize
        if count < 1 or file.read(start) != _header(count, dtype):
            return None
        # read piece by piece and not through the map, of which all pages that were looked at would stay in memory
        largest, checksum = 0, 0
        for i in range(0, count, LOOKED_AT_ONCE):
            piece = np.frombuffer(file.read(min(LOOKED_AT_ONCE, count - i) * dtype.itemsize), dtype)
            largest, checksum = max(largest, int(piece.max())), zlib.crc32(piece.data, checksum)
        if file.read() == checksum.to_bytes(CHECKSUM, "little") and largest < vocabulary_size:
            return np.memmap(file, dtype, "r", start, (count,))
    return None


def _header(count: int, dtype: np.dtype[Any]) -> bytes:
    head, file = {"shape": (count,), "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}, io.BytesIO()
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()
