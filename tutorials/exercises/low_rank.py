"""Exercise: the gradients of a low-rank change

    y = x w + scale (x a) b        x (..., d_in), w (d_in, d_out), a (d_in, r), b (r, d_out), scale = alpha / r

The layer adds a small change to a matrix w. The change is the product of two thin matrices, which the layer learns:
a has r columns, and b has r rows. alpha is a constant.

This file has the forward. Write LowRank.backward(dy, cache), which returns dx and grads = {"a": ..., "b": ...}.

w is frozen: it is not trained, so do not compute the gradient of w. This saves memory. The forward uses x twice.

    python -m numpy_attention grade tutorials/exercises/low_rank.py            check your function
    python -m numpy_attention grade tutorials/exercises/low_rank.py --hint 1   the first of three hints
"""

import numpy as np

from numpy_attention.layers import Layer


class LowRank(Layer):
    """A linear layer with the matrix w + scale a b, that is, w plus a change of rank r."""

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
