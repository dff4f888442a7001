"""The plain forms of the log-softmax and of the losses with class weights."""

import numpy as np

from numpy_attention.tutor.entry import Array
from tests.tutor.plain.losses import plain_cross_entropy, plain_negative_log_likelihood


def plain_log_softmax(x: Array, axis: int = -1) -> Array:
    """x - log sum exp(x), by the function of NumPy that adds two numbers given as logarithms."""
    return np.asarray(x - np.logaddexp.reduce(x, axis=axis, keepdims=True))


PLAIN = {
    "log_softmax": plain_log_softmax, "negative_log_likelihood": plain_negative_log_likelihood,
    "weighted_cross_entropy": plain_cross_entropy,
}
