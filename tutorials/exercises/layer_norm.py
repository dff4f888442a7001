"""Exercise: the gradients of layer norm

    mean and var over the last axis, the variance divided by d
    x_hat = (x - mean) / sqrt(var + eps)        y = gamma * x_hat + beta

Given: the forward. Write: layer_norm_backward(dy, cache), which returns dx, dgamma, dbeta.

x moves its own x_hat, and, through the mean and the variance, all others of its row.

    python -m numpy_attention grade tutorials/exercises/layer_norm.py            what is right already
    python -m numpy_attention grade tutorials/exercises/layer_norm.py --hint 1   three hints, one at a time
"""

import numpy as np


def layer_norm(x, gamma, beta, eps=1e-5):
    """x (..., d), gamma (d,), beta (d,) -> y (..., d)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    var = (centred * centred).mean(axis=-1, keepdims=True)  # (..., 1)
    r = 1 / np.sqrt(var + eps)  # (..., 1)
    x_hat = centred * r  # (..., d)
    return gamma * x_hat + beta, (x_hat, r, gamma)


def layer_norm_backward(dy, cache):
    """dy (..., d) -> dx (..., d), dgamma (d,), dbeta (d,)."""
    x_hat, r, gamma = cache
    raise NotImplementedError
