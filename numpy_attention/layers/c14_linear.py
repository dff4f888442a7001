"""Chapter 14. Linear: the affine map with its own weights

    x (..., d_in) --> w (d_in, d_out) --> + b (d_out,) --> y (..., d_out)

The function and its gradient are those of Chapter 1. The layer adds the first weights: normal numbers with Glorot's
scale (Chapter 13), and biases of zero.
"""

from typing import Any

import numpy as np

from numpy_attention.errors import require_sizes
from numpy_attention.layers.c13_layer import Layer, Parameters, glorot, normal
from numpy_attention.ops.c01_linear import LinearCache, linear, linear_backward


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
