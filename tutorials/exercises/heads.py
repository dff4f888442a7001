"""Exercise: the gradients of splitting and joining heads

    split_heads     (..., T, H d_k) -> (..., H, T, d_k)        head h gets columns h d_k to (h + 1) d_k - 1
    concat_heads    (..., H, T, d_v) -> (..., T, H d_v)        the inverse of split_heads

This file has both forwards. Write split_heads_backward(dy, cache) and concat_heads_backward(dy, cache).
Each returns dx.

The forwards only move elements; they change no value. So the backwards only move gradients.

    python -m numpy_attention grade tutorials/exercises/heads.py            check your function
    python -m numpy_attention grade tutorials/exercises/heads.py --hint 1   the first of three hints
"""

import numpy as np


def split_heads(x, num_heads):
    """x (..., T, d_model) -> y (..., num_heads, T, d_k)."""
    *lead, T, d_model = x.shape
    cut = x.reshape(*lead, T, num_heads, d_model // num_heads)  # (..., T, H, d_k)
    return np.swapaxes(cut, -3, -2), x.shape


def split_heads_backward(dy, cache):
    """dy (..., H, T, d_k) -> dx (..., T, d_model)."""
    x_shape = cache
    raise NotImplementedError


def concat_heads(x):
    """x (..., H, T, d_v) -> y (..., T, H d_v)."""
    *lead, H, T, d_v = x.shape
    return np.swapaxes(x, -3, -2).reshape(*lead, T, H * d_v), x.shape


def concat_heads_backward(dy, cache):
    """dy (..., T, H d_v) -> dx (..., H, T, d_v)."""
    x_shape = cache
    raise NotImplementedError
