"""Chapter 3. The softmax

The softmax turns scores into weights that are positive and sum to one:

    y_i = exp(x_i) / sum_k exp(x_k)

Stability. exp(1e4) overflows. But subtracting one number m from all scores of a row changes nothing, because exp(-m)
cancels. With m = max(x) the largest term is exp(0) = 1: nothing overflows, and the sum is at least 1.

Jacobian. Let [i = j] be 1 if i equals j, and 0 otherwise. The quotient rule gives

    dy_i/dx_j = y_i ([i = j] - y_j)

Every output depends on every input of its row. For a loss with gradient dy the chain rule sums over all i:

    dL/dx_j = sum_i dy_i y_i ([i = j] - y_j) = dy_j y_j - y_j sum_i dy_i y_i

               dx = y * (dy - sum(dy * y))

So the (T, T) Jacobian is never built: the backward is one line. If weight i rises by a small amount, the loss rises by
dy_i times this amount. So we call dy_i the price of weight i. Then dx compares this price with the average price of
the row: if the price of a weight is above the average, its score has a positive gradient, and a training step lowers
this score. You can make two checks in your head. Each row of dx sums to zero, because a constant added to all scores
changes nothing. If all elements of dy are 1, dx is zero, because the weights always sum to one. (So a gradient check
in which all elements of dy are 1 proves nothing here.)

If every score of a row is -inf, there is nothing to choose. We define the weights of this row as zeros. In attention,
a query that is not allowed to look at any position has such a row. The formula above then gives a zero gradient.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_number, shape_error
from numpy_attention.ops.c01a_sums import dot_in_rows, sum_in_rows
from numpy_attention.shapes import check_shapes

SHAPES = "x: ..."


class SoftmaxCache(NamedTuple):
    """The backward needs only the weights."""

    y: np.ndarray
    axis: int


def softmax(x: np.ndarray, axis: int = -1) -> tuple[np.ndarray, SoftmaxCache]:
    """Turn scores into weights that sum to one along an axis.

    Formula: y_i = exp(x_i - max x) / sum_k exp(x_k - max x); a row of -inf gives zeros.

    Shapes: x of any shape -> y of the same shape

    Units: x is in nats (natural logarithms): if a score is larger by 1 than another score, its weight is e = 2.718...
    times as large. y has no unit.

    Raises: ValueError when x has no such axis or no element along it; TypeError when x is not an array of floats.

    Source: Bridle, Probabilistic Interpretation of Feedforward Classification Network Outputs (1990), equation 3.

    >>> softmax(np.array([10000.0, 10000.0, -np.inf]))[0]
    array([0.5, 0.5, 0. ])
    """
    check_softmax("softmax", x, axis)
    m = np.maximum(x.max(axis, keepdims=True), float(np.finfo(x.dtype).min))  # finite, even in a row of -inf
    y = np.exp(x - m)
    y /= np.maximum(sum_in_rows(y, axis), 1.0)  # the sum is at least exp(0) = 1, or 0 in a row of -inf
    return y, SoftmaxCache(y, axis)


def softmax_backward(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """Gradient of `softmax`: dx = y * (dy - sum(dy * y)), the sum along the softmax's axis.

    Shapes: dy (the shape of y) -> dx (the shape of x)
    """
    y, axis = cache
    require_cotangent("softmax_backward", "dy", dy, y.shape, y.dtype)
    # y = softmax(x)
    average = dot_in_rows(dy, y, axis)  # sum(dy * y), the average price of the row
    return y * (dy - average)


def check_softmax(op: str, x: np.ndarray, axis: int) -> None:
    """Refuse an x that is not an array of floats, or that has no element along the axis."""
    check_shapes(op, SHAPES, x=x)
    require_number(op, "axis", axis, whole=True)
    if not -x.ndim <= axis < x.ndim or x.shape[axis] == 0:
        raise shape_error(op, "x", f"an array with at least one element along axis {axis}", x.shape)
