"""Chapter 1, appendix. Sums

Half of the gradients in this book are sums over rows, and half of its statistics are sums within a row. `x.sum` is the
simple code, but on the long, narrow arrays of a transformer it takes two to five times as long as the functions here,
because of the order in which it reads the array. So the chapters call the functions of this file. Each of them is one
NumPy sum in another order; its docstring gives the simple code.
"""

import math

import numpy as np


def as_rows(x: np.ndarray) -> np.ndarray:
    """All vectors of x as the rows of one matrix. It also works for empty x, where `reshape(-1, d)` may fail.

    Shapes: x (..., d) -> (N, d)
    """
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def sum_over_rows(x: np.ndarray) -> np.ndarray:
    """x.sum(axis=0), computed as a row of ones times x, which reads the rows in the order of memory.

    Shapes: x (N, d) -> (d,)
    """
    return np.ones_like(x, shape=len(x)) @ x


def sum_in_rows(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """x.sum(axis, keepdims=True), three times as fast on the short rows of attention.

    Shapes: x (..., d) -> (..., 1), for axis -1
    """
    return np.einsum("...i->...", x.swapaxes(axis, -1))[..., None].swapaxes(axis, -1)


def dot_in_rows(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """(x * y).sum(axis, keepdims=True), without an array of the products.

    Shapes: x (..., d), y (..., d) -> (..., 1), for axis -1
    """
    return np.einsum("...i,...i->...", x.swapaxes(axis, -1), y.swapaxes(axis, -1))[..., None].swapaxes(axis, -1)


def sum_to_shape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Undo a broadcast: sum over the axes that are missing or 1 in `shape`. The result is a new array.

    Shapes: x of any shape, shape broadcastable to it -> shape
    """
    extra = x.ndim - len(shape)
    widened = tuple(i for i in range(x.ndim) if i < extra or (shape[i - extra] == 1 and x.shape[i] != 1))
    if not widened:
        return x.reshape(shape).copy()
    return x.sum(axis=widened).reshape(shape)
