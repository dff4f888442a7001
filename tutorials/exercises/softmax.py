"""Exercise: the gradient of the softmax

    y_i = exp(x_i) / sum_k exp(x_k)        along one axis

This file has the forward. Write softmax_backward(dy, cache), which returns dx.

The softmax works along one axis, which can be any axis of x. A row means the numbers along this axis. Each y_i of a row
depends on every x_j of the same row, so dx_j is a sum over all dy_i of the row.

    python -m numpy_attention grade tutorials/exercises/softmax.py            check your function
    python -m numpy_attention grade tutorials/exercises/softmax.py --hint 1   the first of three hints
"""

import numpy as np


def softmax(x, axis=-1):
    """Scores x of any shape -> weights y of the same shape, which sum to one along the axis."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    y = e / e.sum(axis=axis, keepdims=True)
    return y, (y, axis)


def softmax_backward(dy, cache):
    """Take dy (same shape as y) and return dx (same shape as x)."""
    y, axis = cache
    raise NotImplementedError
