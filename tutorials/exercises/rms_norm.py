"""Exercise: RMS norm from scratch

    r = 1 / sqrt(mean(x^2) + eps)        the mean is computed over the last axis
    y = gamma * x r

Write rms_norm(x, gamma, eps), which returns y and a cache, and rms_norm_backward(dy, cache), which returns dx, dgamma.

RMS norm is like layer norm, but it does not subtract the mean and does not add beta. The derivation is similar.
You decide what the cache contains.

    python -m numpy_attention grade tutorials/exercises/rms_norm.py            check your function
    python -m numpy_attention grade tutorials/exercises/rms_norm.py --hint 1   the first of three hints
"""

import numpy as np


def rms_norm(x, gamma, eps=1e-6):
    """x (..., d), gamma (d,) -> y (..., d) and a cache."""
    raise NotImplementedError


def rms_norm_backward(dy, cache):
    """dy (..., d) -> dx (..., d), dgamma (d,)."""
    raise NotImplementedError
