"""Chapter 1, appendix. Sums

Half of the gradients of this book are sums over rows, and half of its statistics are sums within a row. `x.sum` says
that well, but walks in an order that costs two to five times the time on the long, narrow arrays of a transformer; in
a training step that is felt. So the sums that stand in every step go by these names, and a maximum with them.

A sum needs more digits than its terms have. float16 has ten bits and ends at 65504: what is to be summed,
squared or exponentiated is made float32 before, by `wide`, and float16 again when it is done.
"""

import math

import numpy as np


def as_rows(x: np.ndarray) -> np.ndarray:
    """All vectors of x as the rows of one matrix, also where there are none; `reshape(-1, d)` cannot tell how many.

    Shapes: x (..., d) -> (N, d)
    """
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def sum_over_rows(x: np.ndarray) -> np.ndarray:
    """x.sum(axis=0), as the product of a row of ones with x: the rows are read one after the other, as they lie.

    Shapes: x (N, d) -> (d,)
    """
    return np.ones_like(x, shape=len(x)) @ x


def sum_in_rows(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """x.sum(axis, keepdims=True), three times as fast on the short rows of attention.

    Shapes: x (..., d) -> (..., 1), for axis -1
    """
    return np.einsum("...i->...", x.swapaxes(axis, -1))[..., None].swapaxes(axis, -1)


def dot_in_rows(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """(x * y).sum(axis, keepdims=True), without an array for the products.

    Shapes: x (..., d), y (..., d) -> (..., 1), for axis -1
    """
    return np.einsum("...i,...i->...", x.swapaxes(axis, -1), y.swapaxes(axis, -1))[..., None].swapaxes(axis, -1)


def max_in_rows(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """x.max(axis, keepdims=True), by its place: on short rows NumPy finds the place of the maximum in half the time.

    Shapes: x (..., d) -> (..., 1), for axis -1
    """
    x = x.swapaxes(axis, -1)
    rows = as_rows(x)
    largest = rows[np.arange(len(rows), like=x), rows.argmax(axis=1)]
    return largest.reshape(*x.shape[:-1], 1).swapaxes(axis, -1)


def sum_to_shape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Undo a broadcast: sum over the axes that the smaller shape lacks or holds as 1; an array of the caller's own.

    Shapes: x of any shape, shape broadcastable to it -> shape
    """
    extra = x.ndim - len(shape)
    widened = tuple(i for i in range(x.ndim) if i < extra or (shape[i - extra] == 1 and x.shape[i] != 1))
    if not widened:
        return x.reshape(shape).copy()
    return x.sum(axis=widened).reshape(shape)


def wide(x: np.ndarray) -> np.ndarray:
    """x itself, but in float32 where it is float16.

    Shapes: unchanged
    """
    return x.astype(np.float32) if x.dtype == np.float16 else x
