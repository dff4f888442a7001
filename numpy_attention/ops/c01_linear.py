"""Chapter 1. The linear map

Every query, key and value is a linear map of an input vector, so this is the first gradient to learn by heart:

    y = x w + b        y_nj = sum_i x_ni w_ij + b_j

A loss depends on x, w and b only through y. Write dy_nj for its derivative with respect to y_nj, and dx_ni, dw_ij and
db_j in the same way. The gradient of a result, dy, is also called its **cotangent**. Every backward of this book gets
the cotangent of the result, checks it (`require_cotangent`), and returns the gradients of the arguments. Apply the
chain rule and keep only the terms of y that contain the variable:

    dx_ni = sum_j dy_nj w_ij       x_ni is in every output j of its row n         ->  dx = dy w^T
    dw_ij = sum_n x_ni dy_nj       every row n uses w_ij, so we sum over rows     ->  dw = x^T dy
    db_j  = sum_n dy_nj            every row n uses b_j, so we sum over rows      ->  db = sum of the rows

The shapes help you remember the formulas: dx must be (N, d_in), and only one product of dy (N, d_out) and
w (d_in, d_out) has this shape. If d_in = d_out, the shapes do not help: dy w in place of dy w^T raises no error. Then
only the chain rule decides. A batch (B, T, d_in) is N = B T rows. We flatten it, because one large matrix product is
many times faster than B small ones, and because the sums over n then include batch and time.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent
from numpy_attention.ops.c01a_sums import as_rows, sum_over_rows
from numpy_attention.shapes import check_shapes

SHAPES = "x: ... d_in, w: d_in d_out, b?: d_out"
FIXES = {"w": "the last axis of x must match the first axis of w"}


class LinearCache(NamedTuple):
    """What the backward needs: both factors of the product."""

    x: np.ndarray  # (..., d_in)
    w: np.ndarray  # (d_in, d_out)
    has_bias: bool


def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> tuple[np.ndarray, LinearCache]:
    """Multiply rows by a matrix and add a bias.

    Formula: y = x w + b

    Shapes: x (..., d_in), w (d_in, d_out), b (d_out,) or None -> y (..., d_out)

    Raises: ValueError when the sizes do not fit; TypeError when the dtypes are not floats or differ.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 6.5.6 (the backward of a matrix product).

    >>> y, cache = linear(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 3.0], [0.0, 1.0, 4.0]]))
    >>> y
    array([[ 1.,  2., 11.]])
    """
    check_shapes("linear", SHAPES, fixes=FIXES, x=x, w=w, b=b)
    d_out = w.shape[1]
    y = as_rows(x) @ w  # (N, d_out), N = B T
    if b is not None:
        y += b
    return y.reshape(*x.shape[:-1], d_out), LinearCache(x, w, b is not None)


def linear_backward(dy: np.ndarray, cache: LinearCache) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Gradients of `linear`: dx = dy w^T, dw = x^T dy, db = the sum of dy's rows.

    Shapes: dy (..., d_out) -> dx (..., d_in), dw (d_in, d_out), db (d_out,) or None
    """
    x, w, has_bias = cache
    d_out = w.shape[1]
    require_cotangent("linear_backward", "dy", dy, (*x.shape[:-1], d_out), x.dtype)
    dy_rows = as_rows(dy)  # (N, d_out)

    # y = x @ w + b
    dx = dy_rows @ w.T  # (N, d_in)
    dw = as_rows(x).T @ dy_rows  # (d_in, d_out)
    db = sum_over_rows(dy_rows) if has_bias else None  # (d_out,)
    return dx.reshape(x.shape), dw, db
