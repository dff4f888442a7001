"""The plain form of the softmax and its logarithm."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum exp(x); subtracts the maximum first, because exp would overflow for large scores."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def plain_log_softmax(x: Array, axis: int = -1) -> Array:
    """x - log sum exp(x), by the function of NumPy that adds two numbers given as logarithms."""
    return np.asarray(x - np.logaddexp.reduce(x, axis=axis, keepdims=True))


PLAIN = {"softmax": plain_softmax, "log_softmax": plain_log_softmax}
