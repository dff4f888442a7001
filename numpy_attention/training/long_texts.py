"""Chapter 27, continued. Texts bigger than memory

Training asks for a few blocks of T + 1 ids at random places, a few kilobytes a step, however long the text is. So the
text is read piece by piece, its ids are written to a file once, and the file is mapped into memory: the operating
system reads the pages in which a block lies when the block is asked for, and forgets them again when memory is short.

    text -> pieces of a megabyte -> ids -> ids-<fingerprint>.npy in the run's directory -> np.load(mmap_mode="r")

An id takes the smallest number of bytes that holds the vocabulary: one for bytes and most characters, two for byte
pairs. The file is a plain .npy array. Its name holds the fingerprint of text and vocabulary, and like a checkpoint it
gets that name only when it is whole; so a run that is resumed finds it and need not encode the text again.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.files import whole_or_not_at_all

LOOKED_AT_ONCE = 2**20  # ids of a file


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest unsigned integers that hold all ids."""
    return np.min_scalar_type(vocabulary_size - 1)


def write_ids(path: Path, arrays: Iterable[np.ndarray], dtype: np.dtype[Any]) -> None:
    """Write ids that come piece by piece as one .npy array, whole or not at all.

    Raises: ValueError if its header grows.
    """
    with whole_or_not_at_all(path) as temporary, open(temporary, "wb") as file:
        # NumPy leaves room in the header for the length of the first axis, which is known at the end
        _write_header(file, 0, dtype)
        start, count = file.tell(), 0
        for ids in arrays:
            file.write(ids.astype(dtype).data)
            count += len(ids)
        file.seek(0)
        _write_header(file, count, dtype)
        if file.tell() != start:
            raise ValueError(f"write_ids: the header of {count} ids does not fit into {start} bytes")


def map_ids(path: Path, vocabulary_size: int) -> np.ndarray | None:
    """The ids in a file, mapped; None where there is no such file, or one that is not whole or holds other ids."""
    with contextlib.suppress(OSError, ValueError, EOFError):  # what NumPy says of no file and of damaged ones
        ids: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        if ids.ndim == 1 and len(ids) and ids.dtype == id_dtype(vocabulary_size) and _largest(ids) < vocabulary_size:
            return ids
    return None


def _largest(ids: Any) -> int:
    """The largest of mapped ids, read piece by piece: the pages of a map that has been walked stay in memory."""
    pieces = (
        np.fromfile(ids.filename, ids.dtype, min(LOOKED_AT_ONCE, len(ids) - i), offset=ids.offset + i * ids.itemsize)
        for i in range(0, len(ids), LOOKED_AT_ONCE)
    )
    return max(int(piece.max()) for piece in pieces)


def _write_header(file: Any, count: int, dtype: np.dtype[Any]) -> None:
    head = {"shape": (count,), "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
    np.lib.format.write_array_header_1_0(file, head)
