"""Chapter 14. Linear: the affine map with its own weights

    x (..., d_in) --> w (d_in, d_out) --> + b (d_out,) --> y (..., d_out)

The function and its gradient are those of Chapter 1. The layer adds the first weights: normal numbers with Glorot's
scale (Chapter 13), and biases of zero.

Larger layers own several matrices and call `project` with each. Instead of a matrix w, they may own a layer that
computes x w and the gradients of this product: Chapter 37 uses a layer with few parameters.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_sizes
from numpy_attention.layers.c13_layer import Layer, Parameters, glorot, normal
from numpy_attention.ops.c01_linear import LinearCache, linear, linear_backward
from numpy_attention.ops.c01a_sums import as_rows, sum_over_rows

Matrix = np.ndarray | Layer


class LayerCache(NamedTuple):
    """What backward needs if a layer replaces the matrix."""

    of_layer: Any
    has_bias: bool


ProjectionCache = LinearCache | LayerCache


def project(x: np.ndarray, w: Matrix, b: np.ndarray | None = None) -> tuple[np.ndarray, ProjectionCache]:
    """y = x w + b, where w is a matrix or a layer that replaces it."""
    if not isinstance(w, Layer):
        return linear(x, w, b)
    y, cache = w.forward(x)
    if b is not None:
        y += b
    return y, LayerCache(cache, b is not None)


def project_backward(dy: np.ndarray, w: Matrix, cache: Any) -> tuple[np.ndarray, Any, np.ndarray | None]:
    """Return dx, dw and db; if w is a layer, dw is the dict of its gradients."""
    if not isinstance(w, Layer):
        return linear_backward(dy, cache)
    dx, grads = w.backward(dy, cache.of_layer)
    return dx, grads, sum_over_rows(as_rows(dy)) if cache.has_bias else None


class Linear(Layer):
    """y = x w + b, over any number of leading axes.

    Shapes: x (..., d_in) -> y (..., d_out).

    Raises: TypeError or ValueError for invalid sizes.
    """

    def __init__(
        self, d_in: int, d_out: int, rng: np.random.Generator | None, bias: bool = True, dtype: Any = np.float32
    ) -> None:
        require_sizes("Linear", d_in=d_in, d_out=d_out)
        self.w = normal(rng, (d_in, d_out), glorot(d_in, d_out), dtype)
        self.b = np.zeros(d_out, dtype) if bias else None

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, LinearCache]:
        return linear(x, self.w, self.b)

    def backward(self, dy: np.ndarray, cache: LinearCache) -> tuple[np.ndarray, Parameters]:
        dx, dw, db = linear_backward(dy, cache)
        return dx, {"w": dw} if db is None else {"w": dw, "b": db}
