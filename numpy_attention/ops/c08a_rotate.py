"""Chapter 8, appendix. Rotation by given cosines and sines

`rotary` computes the cosines and sines from positions. Here the caller passes them. They may be any numbers, also
learned ones; then they have gradients too:

    y_1 = x_1 cos - x_2 sin        dx_1 = dy_1 cos + dy_2 sin        dcos = dy_1 x_1 + dy_2 x_2
    y_2 = x_2 cos + x_1 sin        dx_2 = dy_2 cos - dy_1 sin        dsin = dy_2 x_1 - dy_1 x_2
"""

from typing import Any

import numpy as np

from numpy_attention.errors import broadcasts_to, require_choice, require_cotangent, require_float, shape_error
from numpy_attention.ops.c01a_sums import sum_to_shape
from numpy_attention.ops.c08_positions import PAIRINGS, SHAPES, pairs_of, turn
from numpy_attention.shapes import check_shapes


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairing: str = "half") -> tuple[np.ndarray, Any]:
    """Turn the first 2 n columns of each vector, pair by pair; cos and sin may be any numbers.

    Formula: (y_1, y_2) = (x_1 cos - x_2 sin, x_1 sin + x_2 cos) for each pair

    Shapes: x (..., T, d_k), cos and sin broadcastable to (..., T, n) with 2 n <= d_k -> y as x.
    pairing "half": (x_1, x_2) = columns (i, i + n); "interleaved": columns (2i, 2i + 1).

    Raises: ValueError for an unknown pairing or shapes that do not fit; TypeError unless all are floats of one dtype.

    Source: Su et al., RoFormer (2021), section 3.4.2; part of the width: Black et al., GPT-NeoX-20B (2022).

    >>> rotate(np.array([[1.0, 2.0, 5.0]]), cos=np.array([0.0]), sin=np.array([1.0]))[0]
    array([[-2.,  1.,  5.]])
    """
    _check_rotate(x, cos, sin, pairing)
    return turn(x, cos, sin, pairing), (x, cos, sin, pairing)


def rotate_backward(dy: np.ndarray, cache: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of `rotate`: dx = turn dy back, dcos = dy_1 x_1 + dy_2 x_2, dsin = dy_2 x_1 - dy_1 x_2.

    Shapes: dy as y -> dx, dcos, dsin with the shapes of x, cos, sin
    """
    x, cos, sin, pairing = cache
    require_cotangent("rotate_backward", "dy", dy, x.shape, x.dtype)
    (x_1, x_2), (dy_1, dy_2) = pairs_of(x, cos, pairing), pairs_of(dy, cos, pairing)  # (..., T, n) each
    # y_1 = x_1 cos - x_2 sin, y_2 = x_2 cos + x_1 sin
    dx = turn(dy, cos, -sin, pairing)
    dcos = sum_to_shape(dy_1 * x_1 + dy_2 * x_2, cos.shape)
    dsin = sum_to_shape(dy_2 * x_1 - dy_1 * x_2, sin.shape)
    return dx, dcos, dsin


def _check_rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairing: str) -> None:
    check_shapes("rotate", SHAPES, x=x)
    require_float("rotate", x=x, cos=cos, sin=sin)
    require_choice("rotate", "pairing", pairing, PAIRINGS, '"half" or "interleaved"')
    n = cos.shape[-1] if cos.ndim else x.shape[-1]
    for name, one in {"cos": cos, "sin": sin}.items():
        if 2 * n > x.shape[-1] or not broadcasts_to(one.shape, (*x.shape[:-1], n)):
            expected = f"broadcastable to (..., T, n) with 2 n <= d_k, for x {x.shape}"
            raise shape_error("rotate", name, expected, one.shape, "one number for each pair of columns")
