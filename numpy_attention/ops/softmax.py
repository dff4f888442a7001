"""Chapter 3. The softmax

The softmax turns scores into weights that are positive and sum to one:

    y_i = exp(x_i) / sum_k exp(x_k)

Stability. exp(1e4) overflows. But subtracting one number m from all scores of a row changes nothing, because exp(-m)
cancels. With m = max(x) the largest term is exp(0) = 1: nothing overflows, and the sum is at least 1.

Jacobian. By the quotient rule, with [i = j] one on the diagonal and zero elsewhere,

    dy_i/dx_j = y_i ([i = j] - y_j)

Every output depends on every input of its row. For a loss with gradient dy the chain rule sums over all i:

    dL/dx_j = sum_i dy_i y_i ([i = j] - y_j) = dy_j y_j - y_j sum_i dy_i y_i

               dx = y * (dy - sum(dy * y))

So the (T, T) Jacobian is never built: the backward is one line. Read dy as a price, which the loss pays for a little
more of a weight. Then dx compares this price with the average of the row: a score with a price above the average has a
positive gradient, and a step lowers it. Two checks that you can make in your head: the rows of dx sum to zero, because
a constant added to all scores changes nothing; and if dy is all ones, dx is zero, because the weights always sum to
one. (That is why a gradient check with dy of ones proves nothing here.)

In a row where every score is -inf, there is nothing to choose. We define its weights as zeros, so that a query that
may look at nothing gets zeros; the formula above then gives a zero gradient as well.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_float, require_number, shape_error
from numpy_attention.ops.sums import dot_in_rows, max_in_rows, sum_in_rows, wide


class SoftmaxCache(NamedTuple):
    """The backward needs only the weights."""

    y: np.ndarray
    axis: int


def softmax(x: np.ndarray, axis: int = -1, out: np.ndarray | None = None) -> tuple[np.ndarray, SoftmaxCache]:
    """Turn scores into weights that sum to one along an axis.

    Formula: y_i = exp(x_i - max x) / sum_k exp(x_k - max x); a row of -inf gives zeros.

    Shapes: x of any shape -> y of the same shape, written into `out` if given; `out` may be x itself

    Units: x in nats (a score higher by 1 has e times the weight); y is dimensionless.

    Raises: ValueError when x has no such axis or no element along it; TypeError when x is not an array of floats.

    Source: Bridle, Probabilistic Interpretation of Feedforward Classification Network Outputs (1990), equation 3.

    >>> softmax(np.array([10000.0, 10000.0, -np.inf]))[0]
    array([0.5, 0.5, 0. ])
    """
    _check_softmax(x, axis, out)
    y = np.empty_like(x) if out is None else out
    if x.dtype == np.float16:
        wide_y, _ = softmax(wide(x), axis)
        y[...] = wide_y
        return y, SoftmaxCache(y, axis)

    row_max = max_in_rows(x, axis)
    row_max = np.maximum(row_max, float(np.finfo(x.dtype).min))  # for a row of -inf: -inf - (-inf) would be NaN
    np.subtract(x, row_max, out=y)
    np.exp(y, out=y)
    total = sum_in_rows(y, axis)
    y /= np.maximum(total, 1.0)  # total is at least exp(0) = 1, except in a row of -inf: there 0 / 1 = 0
    return y, SoftmaxCache(y, axis)


def softmax_backward(dy: np.ndarray, cache: SoftmaxCache, out: np.ndarray | None = None) -> np.ndarray:
    """Gradient of `softmax`: dx = y * (dy - sum(dy * y)), the sum along the softmax's axis.

    Shapes: dy as y -> dx as x, written into `out` if given; `out` may be dy itself
    """
    y, axis = cache
    require_cotangent("softmax_backward", "dy", dy, y.shape, y.dtype)
    if out is not None:
        require_cotangent("softmax_backward", "out", out, y.shape, y.dtype)
    dx = np.empty_like(y) if out is None else out
    # y = softmax(x)
    average = dot_in_rows(wide(dy), wide(y), axis)  # the average price of the row
    np.subtract(dy, average, out=dx)
    dx *= y
    return dx


def _check_softmax(x: np.ndarray, axis: int, out: np.ndarray | None) -> None:
    require_float("softmax", x=x)
    require_number("softmax", "axis", axis, whole=True)
    if not -x.ndim <= axis < x.ndim or x.shape[axis] == 0:
        raise shape_error("softmax", "x", f"an array with at least one element along axis {axis}", x.shape)
    if out is not None:
        require_cotangent("softmax", "out", out, x.shape, x.dtype)
