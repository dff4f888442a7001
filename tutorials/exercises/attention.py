"""Exercise: the gradients of scaled dot-product attention

    scores  = q k^T / sqrt(d_k)      (..., T_q, T_k)      -inf where the mask is False
    weights = softmax(scores)        row by row           a row of zeros if all its keys are hidden
    y       = weights v              (..., T_q, d_v)

This file has the forward. Write scaled_dot_product_attention_backward(dy, cache), which returns dq, dk, dv.

T_q and T_k may be different numbers, and d_k and d_v may be different numbers.

    python -m numpy_attention grade tutorials/exercises/attention.py            check your function
    python -m numpy_attention grade tutorials/exercises/attention.py --hint 1   the first of three hints
"""

import math

import numpy as np


def scaled_dot_product_attention(q, k, v, mask=None):
    """q (..., T_q, d_k), k (..., T_k, d_k), v (..., T_k, d_v), mask (True: visible key) -> y (..., T_q, d_v)."""
    scale = 1 / math.sqrt(q.shape[-1])
    scores = scale * q @ k.swapaxes(-1, -2)  # (..., T_q, T_k)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), np.finfo(scores.dtype).min)
    e = np.exp(scores - largest)
    weights = e / np.maximum(e.sum(axis=-1, keepdims=True), 1)  # (..., T_q, T_k)
    return weights @ v, (q, k, v, weights, scale)


def scaled_dot_product_attention_backward(dy, cache):
    """Take dy (..., T_q, d_v) and return dq, dk, dv. They have the shapes of q, k and v."""
    q, k, v, weights, scale = cache
    raise NotImplementedError
