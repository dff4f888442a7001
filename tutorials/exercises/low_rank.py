"""Exercise: the gradients of a change of low rank

    y = x w + scale (x a) b        x (..., d_in), w (d_in, d_out), a (d_in, r), b (r, d_out), scale = alpha / r

Given: the forward. Write: LowRank.backward(dy, cache), which returns dx, grads; grads is {"a": ..., "b": ...}.

w is frozen: it has no gradient, and to leave it out is the point of the whole. x has been used twice.

    python -m numpy_attention grade tutorials/exercises/low_rank.py            what is right already
    python -m numpy_attention grade tutorials/exercises/low_rank.py --hint 1   three hints, one at a time
"""

import numpy as np

from numpy_attention.layers import Layer


class LowRank(Layer):
    """In the place of a matrix w, a layer that changes it by rank r."""

    frozen = ("w",)  # takes part, but is no parameter

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
