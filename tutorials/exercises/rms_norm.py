"""Exercise: RMS norm from scratch

    r = 1 / sqrt(mean(x^2) + eps)        with the mean over the last axis
    y = gamma * x r

Write rms_norm(x, gamma, eps), which returns y and a cache, and rms_norm_backward(dy, cache), which returns dx, dgamma.

RMS norm is layer norm without the mean and without beta; the derivation is similar.
You choose the contents of the cache.

    python -m numpy_attention grade tutorials/exercises/rms_norm.py            check your function
    python -m numpy_attention grade tutorials/exercises/rms_norm.py --hint 1   three hints, one at a time
"""

import numpy as np


def rms_norm(x, gamma, eps=1e-6):
    """x (..., d), gamma (d,) -> y (..., d) and a cache."""
    raise NotImplementedError


def rms_norm_backward(dy, cache):
    """dy (..., d) -> dx (..., d), dgamma (d,)."""
    raise NotImplementedError
