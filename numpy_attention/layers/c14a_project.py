"""Chapter 14, appendix. A product whose matrix may be a layer

Larger layers own several matrices, and multiply by each of them with `project`. With a matrix, this is `linear` of
Chapter 1. A later chapter may put a layer in the place of a matrix, and nothing else in the larger layer changes: in
Chapter 37, it computes x w with a change that has few parameters; in Chapter 38, it looks at x before the product.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c13_layer import Layer
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
