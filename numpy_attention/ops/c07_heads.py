"""Chapter 7. Many heads: split and concat

One attention gives one average for each query. To look for several things at once, we cut the vector of width d_model
into H heads of width d_k = d_model / H. Each head attends separately, and the results are joined again:

    (B, T, d_model)  --cut-->  (B, T, H, d_k)  --swap-->  (B, H, T, d_k)

Cutting is a reshape: head h gets the columns from h d_k up to (h + 1) d_k - 1. Swapping T and H moves the head axis
next to the batch axis, so the matrix products of Chapter 6 treat it like any leading axis. Both steps only move
numbers, so both gradients only move them back:

    split_heads_backward  = concat of dy        concat_heads_backward = split of dy

A common mistake: a reshape without the swap also gives (B, T, d_model), but it mixes positions with heads. No error is
raised, because the shapes agree.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_size, value_error
from numpy_attention.shapes import check_shapes

SHAPES = {"split_heads": "x: ... T d_model", "concat_heads": "x: ... H T d_v; H >= 1"}


class HeadsCache(NamedTuple):
    """The shape with separate heads, and the dtype; the backward needs no values."""

    shape: tuple[int, ...]  # (..., num_heads, T, d_k)
    dtype: np.dtype


def _split(x: np.ndarray, num_heads: int) -> np.ndarray:
    *lead, T, d_model = x.shape
    cut = x.reshape(*lead, T, num_heads, d_model // num_heads)  # (..., T, H, d_k)
    return cut.swapaxes(-3, -2)  # (..., H, T, d_k)


def _concat(x: np.ndarray) -> np.ndarray:
    *lead, num_heads, T, d_v = x.shape
    return x.swapaxes(-3, -2).reshape(*lead, T, num_heads * d_v)  # (..., T, H d_v)


def split_heads(x: np.ndarray, num_heads: int) -> tuple[np.ndarray, HeadsCache]:
    """Cut the last axis into heads and move the heads before the time axis.

    Formula: y_htj = x_t(h d_k + j)

    Shapes: x (..., T, d_model) -> y (..., num_heads, T, d_k), a view of x: nothing is copied

    Raises: ValueError when d_model is not divisible by num_heads; TypeError when x is not an array of floats.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.2.

    >>> split_heads(np.arange(8.0).reshape(2, 4), num_heads=2)[0].tolist()
    [[[0.0, 1.0], [4.0, 5.0]], [[2.0, 3.0], [6.0, 7.0]]]
    """
    check_shapes("split_heads", SHAPES["split_heads"], x=x)
    require_size("split_heads", "num_heads", num_heads)
    if x.shape[-1] % num_heads:
        expected = f"a divisor of d_model = {x.shape[-1]}"
        raise value_error("split_heads", "num_heads", expected, num_heads, "each head gets d_model / num_heads columns")
    y = _split(x, num_heads)
    return y, HeadsCache(y.shape, y.dtype)


def split_heads_backward(dy: np.ndarray, cache: HeadsCache) -> np.ndarray:
    """Gradient of `split_heads`: dx = concat_heads(dy), each number at its old place.

    Shapes: dy (..., num_heads, T, d_k) -> dx (..., T, d_model)
    """
    require_cotangent("split_heads_backward", "dy", dy, *cache)
    # y = split(x)
    return _concat(dy)


def concat_heads(x: np.ndarray) -> tuple[np.ndarray, HeadsCache]:
    """Join the heads along the last axis: the inverse of `split_heads`.

    Formula: y_t(h d_v + j) = x_htj

    Shapes: x (..., H, T, d_v) -> y (..., T, H d_v)

    Raises: ValueError when x has fewer than three axes or zero heads; TypeError when x is not an array of floats.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.2.

    >>> heads, _ = split_heads(np.arange(8.0).reshape(2, 4), num_heads=2)
    >>> concat_heads(heads)[0].tolist()
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    """
    check_shapes("concat_heads", SHAPES["concat_heads"], x=x)
    return _concat(x), HeadsCache(x.shape, x.dtype)


def concat_heads_backward(dy: np.ndarray, cache: HeadsCache) -> np.ndarray:
    """Gradient of `concat_heads`: dx = split_heads(dy), each number at its old place.

    Shapes: dy (..., T, H d_v) -> dx (..., H, T, d_v)
    """
    *lead, num_heads, T, d_v = cache.shape
    require_cotangent("concat_heads_backward", "dy", dy, (*lead, T, num_heads * d_v), cache.dtype)
    # y = concat(x)
    return _split(dy, num_heads)
