"""Exercise: the gradients of a low-rank change

    y = x w + scale (x a) b        x (..., d_in), w (d_in, d_out), a (d_in, r), b (r, d_out), scale = alpha / r

This file has the forward. Write LowRank.backward(dy, cache), which returns dx, grads; grads is {"a": ..., "b": ...}.

w is frozen: do not compute its gradient; that is what saves memory. x is used twice.

    python -m numpy_attention grade tutorials/exercises/low_rank.py            check your function
    python -m numpy_attention grade tutorials/exercises/low_rank.py --hint 1   three hints, one at a time
"""

import numpy as np

from numpy_attention.layers import Layer


class LowRank(Layer):
    """A layer that replaces a matrix w by w plus a change of rank r."""

    frozen = ("w",)  # used in the forward, but not trained

    def __init__(self, w, rank, alpha, rng):
        d_in, d_out = w.shape
        self.scale = alpha / rank
        self.w = w
        self.a = (rng.standard_normal((d_in, rank)) / d_in**0.5).astype(w.dtype)
        self.b = np.zeros((rank, d_out), w.dtype)

    def forward(self, x):
        """x (..., d_in) -> y (..., d_out)."""
        z = x @ self.a  # (..., r)
        y = x @ self.w + self.scale * (z @ self.b)  # (..., d_out)
        return y, (x, z)

    def backward(self, dy, cache):
        """dy (..., d_out) -> dx (..., d_in), grads {"a": (d_in, r), "b": (r, d_out)}."""
        x, z = cache
        raise NotImplementedError
