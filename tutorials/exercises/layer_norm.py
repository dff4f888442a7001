"""Exercise: the gradients of layer norm

    mean and var are computed over the last axis; var is divided by d, not by d - 1
    x_hat = (x - mean) / sqrt(var + eps)        y = gamma * x_hat + beta

This file has the forward. Write layer_norm_backward(dy, cache), which returns dx, dgamma, dbeta.

Each x_j changes x_hat_j directly. Through the mean and the variance, x_j also changes all x_hat of its row.

    python -m numpy_attention grade tutorials/exercises/layer_norm.py            check your function
    python -m numpy_attention grade tutorials/exercises/layer_norm.py --hint 1   the first of three hints
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
