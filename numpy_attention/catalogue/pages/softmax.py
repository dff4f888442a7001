"""The softmax and its logarithm (Chapter 3), along any axis and for scores of 500; 13 mistakes, one exercise."""

import numpy as np

from numpy_attention.catalogue.entry import Array, op_entry, times
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.ops.softmax import SoftmaxCache

CHAPTER = 3

ENTRIES = (
    op_entry("softmax", "x: ... d", wrong="x:int64 x[list]"),
    op_entry("softmax", "x: A B C", "axis 0", options={"axis": 0}),
    op_entry("softmax", "x: A B C", "axis 1", options={"axis": 1}),
    op_entry("softmax", "x: A B C D", "axis -2", options={"axis": -2}),
    op_entry("softmax", "x: B d", "scores of 500", prepare=times("x", 500.0)),
    op_entry("log_softmax", "x: ... d", wrong="x:int64 x[list]"),
    op_entry("log_softmax", "x: A B C", "axis 0", options={"axis": 0}),
    op_entry("log_softmax", "x: A B C D", "axis -2", options={"axis": -2}),
    op_entry("log_softmax", "x: B d", "scores of 500", prepare=times("x", 500.0)),
)


def plain_softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum exp(x); subtracts the maximum first, because exp would overflow for large scores."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def plain_log_softmax(x: Array, axis: int = -1) -> Array:
    """x - log sum exp(x), by the function of NumPy that adds two numbers given as logarithms."""
    return np.asarray(x - np.logaddexp.reduce(x, axis=axis, keepdims=True))


PLAIN = {"softmax": plain_softmax, "log_softmax": plain_log_softmax}


@backward_of("softmax", diagnosis="is the softmax's `- sum(dy * w)` missing, or not weighted by w?")
def sum_without_weights(dy: Array, cache: SoftmaxCache) -> Array:
    """It subtracts the plain sum of dy instead of the sum weighted by y.

    Hides: with a width of 1 both sums are equal, and the signs of the gradient are often right.
    """
    y, axis = cache
    return y * (dy - dy.sum(axis=axis, keepdims=True))


@backward_of("softmax", diagnosis="the backward returns zero")
def zero(dy: Array, cache: SoftmaxCache) -> Array:
    """The gradient is always zero.

    Hides: with a dy of ones the right gradient of any softmax is exactly zero, because its rows always sum to one.
    """
    return np.zeros_like(dy)


@backward_of("softmax", diagnosis="only the diagonal of the Jacobian")
def diagonal_only(dy: Array, cache: SoftmaxCache) -> Array:
    """It uses only the diagonal of the Jacobian, y (1 - y), as if a higher score did not lower the other weights.

    Hides: the direction is roughly right, so for typical scores the loss still falls.
    """
    y, _ = cache
    return y * (1.0 - y) * dy


@backward_of("softmax", diagnosis="right without the option axis")
def always_the_last_axis(dy: Array, cache: SoftmaxCache) -> Array:
    """The sum in the backward runs over the last axis, even if the softmax used a different axis.

    Hides: right for axis=-1, the only axis in most tests.
    """
    y, _ = cache
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


@backward_of("softmax", diagnosis="once too often")
def divided_by_the_batch(dy: Array, cache: SoftmaxCache) -> Array:
    """It divides by the batch size, but only the loss takes a mean over the batch.

    Hides: the learning rate absorbs the factor; right for a batch of one.
    """
    y, axis = cache
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True)) / (dy.shape[0] if dy.ndim > 1 else 1)


@backward_of("softmax")
def sum_left_out(dy: Array, cache: SoftmaxCache) -> Array:
    """dx = y dy, as if the sum of the exponentials did not depend on x: it must be dx = y (dy - sum(dy y)).

    Hides: the shapes agree, and a row is right if its sum(dy y) is zero.
    """
    y, _ = cache
    return y * dy


@backward_of("softmax")
def sign_of_the_sum(dy: Array, cache: SoftmaxCache) -> Array:
    """The sum has the wrong sign: it must be dx = y (dy - sum(dy y)), because a higher score lowers the other weights.

    Hides: right only if sum(dy y) of a row is zero.
    """
    y, axis = cache
    return y * (dy + (dy * y).sum(axis=axis, keepdims=True))


@backward_of("softmax")
def mean_not_weighted(dy: Array, cache: SoftmaxCache) -> Array:
    """The plain mean of dy is subtracted instead of the mean weighted by y, which is sum(dy y).

    Hides: right if all weights of a row are equal, as they nearly are at the start of training.
    """
    y, axis = cache
    return np.asarray(y * (dy - dy.mean(axis=axis, keepdims=True)))


@backward_of("softmax")
def y_missing_from_dy(dy: Array, cache: SoftmaxCache) -> Array:
    """The sum is right, but the factor y of dy is missing: it must be dx = y dy - y sum(dy y).

    Hides: right for a row with one element, where y is 1.
    """
    y, axis = cache
    return dy - y * (dy * y).sum(axis=axis, keepdims=True)


@backward_of("softmax")
def y_missing_before_the_bracket(dy: Array, cache: SoftmaxCache) -> Array:
    """The difference dy - sum(dy y) is right, but its factor y is missing.

    Hides: right for a row with one element, and the signs are always right.
    """
    y, axis = cache
    return dy - (dy * y).sum(axis=axis, keepdims=True)


@backward_of("softmax")
def log_softmax(dy: Array, cache: SoftmaxCache) -> Array:
    """dy - y sum(dy) is the gradient of log(softmax(x)), as in the cross-entropy, not the gradient of the softmax.

    Hides: it is the right gradient of a different function.
    """
    y, axis = cache
    return dy - y * dy.sum(axis=axis, keepdims=True)


@backward_of("log_softmax", diagnosis="is a sum missing")
def sum_of_dy_left_out(dy: Array, cache: SoftmaxCache) -> Array:
    """dx = dy, as if the logarithm of the sum did not depend on x: it must be dx = dy - p sum(dy).

    Hides: right for a dy whose rows sum to zero.
    """
    return dy.copy()


@backward_of("log_softmax", diagnosis="right without the option axis")
def sum_of_dy_over_the_last_axis(dy: Array, cache: SoftmaxCache) -> Array:
    """The sum of dy runs over the last axis, even if the log-softmax used a different axis.

    Hides: right for axis=-1, the only axis in most tests.
    """
    return np.asarray(dy - cache.y * dy.sum(axis=-1, keepdims=True))


EXERCISES = (
    Exercise("softmax", 3, (
        Try("softmax", "x: ... d", "last axis"), Try("softmax", "x: A C D", "axis 0", {"axis": 0}),
        Try("softmax", "x: A C D", "axis 1", {"axis": 1}),
    )),
)
