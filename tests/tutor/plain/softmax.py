"""The plain form of the softmax."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum exp(x); subtracts the maximum first, because exp would overflow for large scores."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


PLAIN = {"softmax": plain_softmax}
