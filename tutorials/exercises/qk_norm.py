"""Exercise: the gradient through QK-norm

    q_n = gamma_q * q / sqrt(mean(q^2) + eps)        an RMS norm of every query, over its last axis
    k_n = gamma_k * k / sqrt(mean(k^2) + eps)        an RMS norm of every key, with another gamma
    scores = q_n k_n^T / sqrt(d_k)

This file has the forward. Write qk_norm_backward(dscores, cache), which returns dq, dk, dgamma_q, dgamma_k.

One gamma multiplies the vectors of all sequences, heads and positions.

    python -m numpy_attention grade tutorials/exercises/qk_norm.py            check your function
    python -m numpy_attention grade tutorials/exercises/qk_norm.py --hint 1   the first of three hints
"""

import math

import numpy as np


def normalize(x, gamma, eps):
    """x (..., d_k), gamma (d_k,) -> y, with the shape of x, and a cache."""
    r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    x_hat = x * r
    return gamma * x_hat, (x_hat, r, gamma)


def qk_norm(q, k, gamma_q, gamma_k, eps=1e-6):
    """q (..., T_q, d_k), k (..., T_k, d_k), gamma_q and gamma_k (d_k,) -> scores (..., T_q, T_k)."""
    scale = 1 / math.sqrt(q.shape[-1])
    q_n, of_q = normalize(q, gamma_q, eps)
    k_n, of_k = normalize(k, gamma_k, eps)
    return q_n @ k_n.swapaxes(-1, -2) * scale, (q_n, k_n, scale, of_q, of_k)


def qk_norm_backward(dscores, cache):
    """dscores (..., T_q, T_k) -> dq and dk, with the shapes of q and k; dgamma_q and dgamma_k (d_k,)."""
    q_n, k_n, scale, of_q, of_k = cache
    raise NotImplementedError
