"""Long arrays, processed in pieces that fit the processor's fast memory (cache).

A formula such as GELU's or Adam's makes a dozen passes over its arrays. Arrays that do not fit the cache are read from
slow memory again in every pass, and this takes most of the time. If all passes over one piece are done before the next
piece, each piece is read only once. The arithmetic is the same, but two to three times as fast.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from numpy_attention.backend import on_host

PIECE = 65_536  # elements: 256 KiB in float32, so a piece and a few temporary arrays of its size fit the cache


def in_pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The same piece of every array, one piece after the other, flattened; all arrays have the same size.

    Pieces of contiguous arrays are views, and the caller may write to them. A GPU gets whole arrays, since it is faster
    with long arrays.
    """
    flat = [array.reshape(-1) for array in arrays]
    size = flat[0].size
    if size <= PIECE or not on_host(arrays[0]):
        yield tuple(flat)
        return
    for start in range(0, size, PIECE):
        yield tuple([array[start : start + PIECE] for array in flat])


def piece_by_piece(f: Callable[[np.ndarray], Any], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two results of f(x), for an f that acts on each element; f sees one piece of x at a time."""
    y, slope = np.empty_like(x, order="C"), np.empty_like(x, order="C")
    for x_piece, y_piece, slope_piece in in_pieces(x, y, slope):  # the pieces are views of y and slope
        y_piece[...], slope_piece[...] = f(x_piece)
    return y, slope


def non_finite(array: np.ndarray) -> str:
    """The first NaN or infinity of an array and its place; an empty text if all elements are finite.

    The test goes piece by piece: for a whole float32 array, np.isfinite needs a quarter of its memory again.

    >>> non_finite(np.array([[1.0, 2.0], [3.0, np.inf]]))
    'inf at [1, 1]'
    """
    if all(np.isfinite(piece).all() for (piece,) in in_pieces(array)):
        return ""
    index = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
    return f"{array[index]} at {[int(i) for i in index]}"
