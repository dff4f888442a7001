"""Chapter 27, continued. Texts larger than memory

A training step needs only a few blocks of T + 1 ids at random places, a few kilobytes, even if the text is very long.
So we read the text piece by piece, write its ids to a file once, and map the file into memory: the operating system
reads the pages of a block when the block is used, and drops them again when memory is short.

    text -> pieces of a megabyte -> ids -> ids-<fingerprint>.npy in the run's directory -> np.load(mmap_mode="r")

An id takes the smallest possible number of bytes for the vocabulary: one byte for bytes and most characters, two bytes
for byte pairs. The file is a plain .npy array, followed by four bytes that NumPy does not read: the checksum of the
ids. The name of the file contains the fingerprint of text and vocabulary, and the file is written atomically. So a
resumed run finds the file and does not encode the text again, unless the length or the checksum has changed.
"""

import contextlib
import io
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.files import atomic_write

READ_AT_ONCE = 2**20  # ids of a file
CHECKSUM = 4  # bytes


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer type that holds all ids."""
    return np.min_scalar_type(vocabulary_size - 1)


def write_ids(path: Path, arrays: Iterable[np.ndarray], dtype: np.dtype[Any]) -> None:
    """Write ids, given piece by piece, as one .npy array followed by a checksum, in one atomic write.

    Raises: ValueError if the header does not fit into its reserved space.
    """
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        file.write(_header(0, dtype))
        count, checksum = 0, 0
        for ids in arrays:
            raw = ids.astype(dtype).data
            file.write(raw)
            count, checksum = count + len(ids), zlib.crc32(raw, checksum)
        file.write(checksum.to_bytes(CHECKSUM, "little"))
        # NumPy reserves space in the header for the length of the first axis, which is known now
        head = _header(count, dtype)
        if len(head) != len(_header(0, dtype)):
            raise ValueError(f"write_ids: the header of {count} ids does not fit into the reserved space")
        file.seek(0)
        file.write(head)


def map_ids(path: Path, vocabulary_size: int) -> np.ndarray | None:
    """The ids in a file, mapped into memory; None if the file does not exist or has changed since it was written."""
    dtype = id_dtype(vocabulary_size)
    start = len(_header(0, dtype))
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:  # ValueError: the file shrinks meanwhile
        count = (os.fstat(file.fileno()).st_size - start - CHECKSUM) // dtype.itemsize
        if count < 1 or file.read(start) != _header(count, dtype):
            return None
        # read piece by piece and not through the map: all pages read through the map would stay in memory
        largest, checksum = 0, 0
        for i in range(0, count, READ_AT_ONCE):
            piece = np.frombuffer(file.read(min(READ_AT_ONCE, count - i) * dtype.itemsize), dtype)
            largest, checksum = max(largest, int(piece.max())), zlib.crc32(piece.data, checksum)
        if file.read() == checksum.to_bytes(CHECKSUM, "little") and largest < vocabulary_size:
            return np.memmap(file, dtype, "r", start, (count,))
    return None


def _header(count: int, dtype: np.dtype[Any]) -> bytes:
    head, file = {"shape": (count,), "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}, io.BytesIO()
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()
