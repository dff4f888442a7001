"""Chapter 27, continued. Texts larger than memory

A training step needs only a few blocks of T + 1 ids at random places, a few kilobytes, even if the text is very long.
So we read the text piece by piece, write its ids to a file once, and map the file into memory: the operating system
reads the pages of a block when the block is used, and drops them again when memory is short.

    text -> pieces of a megabyte -> ids -> ids-<fingerprint>.bin in the run's directory -> np.memmap

An id takes the smallest possible number of bytes for the vocabulary: one byte for bytes and most characters, two bytes
for byte pairs. The ids are followed by their checksum, four bytes. The name of the file contains the fingerprint of
text and vocabulary, and the file is written atomically. So a resumed run finds the file and does not encode the text
again, unless the checksum shows that the file has changed.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.files import atomic_write, reading

READ_AT_ONCE = 2**20  # bytes of a file
CHECKSUM = 4  # bytes


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer type that holds all ids."""
    return np.min_scalar_type(vocabulary_size - 1)


def write_ids(path: Path, arrays: Iterable[np.ndarray], dtype: np.dtype[Any]) -> None:
    """Write ids, given piece by piece, and their checksum, in one atomic write."""
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        checksum = 0
        for ids in arrays:
            raw = ids.astype(dtype).data
            file.write(raw)
            checksum = zlib.crc32(raw, checksum)
        file.write(checksum.to_bytes(CHECKSUM, "little"))


def map_ids(path: Path, dtype: np.dtype[Any]) -> np.ndarray | None:
    """The ids in a file, mapped into memory; None if the file does not exist or has changed since it was written."""
    if not path.exists():
        return None
    size = max(path.stat().st_size - CHECKSUM, 0)
    with reading(path), open(path, "rb") as file:
        checksum = 0
        # read piece by piece and not through the map: all pages read through the map would stay in memory
        for start in range(0, size, READ_AT_ONCE):
            checksum = zlib.crc32(file.read(min(READ_AT_ONCE, size - start)), checksum)
        if size < dtype.itemsize or file.read() != checksum.to_bytes(CHECKSUM, "little"):
            return None
    return np.memmap(path, dtype, "r", shape=(size // dtype.itemsize,))
