"""Long arrays, walked in pieces that fit the processor's fast memory.

A formula such as GELU's or Adam's passes a dozen times over its arrays. Arrays that do not fit fast memory come from
the slow one anew in every pass, and that is what takes the time. Walking in pieces, all passes over one piece before
the next, reads them once: the same arithmetic, two to three times as fast.
"""

from collections.abc import Iterator

import numpy as np

from numpy_attention.backend import on_host

PIECE = 65_536  # elements: 256 KiB in float32, so that a piece and a few temporaries of its size fit fast memory


def in_pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The same piece of every array, one piece after the other, flattened; all arrays have one size.

    Pieces of contiguous arrays are views, to be written to. A GPU gets everything at once: it wants long arrays.
    """
    flat = [array.reshape(-1) for array in arrays]
    size = flat[0].size
    if size <= PIECE or not on_host(arrays[0]):
        yield tuple(flat)
        return
    for start in range(0, size, PIECE):
        yield tuple([array[start : start + PIECE] for array in flat])


def non_finite(array: np.ndarray) -> str:
    """The first NaN or infinity of an array, and its place; nothing where all of it is finite.

    It is looked for in pieces: of a gigabyte of parameters no second array of a quarter of that is made.

    >>> non_finite(np.array([[1.0, 2.0], [3.0, np.inf]]))
    'inf at [1, 1]'
    """
    if all(np.isfinite(piece).all() for (piece,) in in_pieces(array)):
        return ""
    index = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
    return f"{array[index]} at {[int(i) for i in index]}"
