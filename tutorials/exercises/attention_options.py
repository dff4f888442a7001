"""Exercise: attention with all its options (first do attention.py)

    scores  = q k^T / sqrt(d_k) + bias        bias can be broadcast to (B, H_q, T_q, T_k)
    weights = softmax(scores)                 zero where the mask is False
    dropped = weights * factor                dropout: factor is 0 or 1 / (1 - dropout), at random
    y       = dropped v                       G query heads share one key head and one value head

This file has the forward. Write scaled_dot_product_attention_backward(dy, cache), which returns dq, dk, dv, dbias.
If there is no bias, return None for dbias.

    python -m numpy_attention grade tutorials/exercises/attention_options.py            check your function
    python -m numpy_attention grade tutorials/exercises/attention_options.py --hint 1   the first of three hints
"""

import math

import numpy as np


def scaled_dot_product_attention(q, k, v, mask=None, bias=None, dropout=0.0, rng=None):
    """q (B, H_q, T_q, d_k), k (B, H_kv, T_k, d_k), v (B, H_kv, T_k, d_v) -> y (B, H_q, T_q, d_v)."""
    scale = 1 / math.sqrt(q.shape[-1])
    G = q.shape[1] // k.shape[1]  # query heads G j to G j + G - 1 share key head j
    k_wide = np.repeat(k, G, axis=1)  # (B, H_q, T_k, d_k)
    v_wide = np.repeat(v, G, axis=1)  # (B, H_q, T_k, d_v)
    scores = scale * q @ k_wide.swapaxes(-1, -2)  # (B, H_q, T_q, T_k)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), np.finfo(scores.dtype).min)
    e = np.exp(scores - largest)
    weights = e / np.maximum(e.sum(axis=-1, keepdims=True), 1)  # (B, H_q, T_q, T_k)
    factor = np.ones_like(weights)
    if rng is not None and dropout > 0:
        kept = rng.random(weights.shape, dtype=np.float32) >= dropout
        factor = (kept / (1 - dropout)).astype(weights.dtype)
    dropped = weights * factor
    bias_shape = None if bias is None else bias.shape
    return dropped @ v_wide, (q, k, v, weights, factor, dropped, scale, bias_shape)


def scaled_dot_product_attention_backward(dy, cache):
    """dy (B, H_q, T_q, d_v) -> dq, dk, dv, dbias, with the shapes of q, k, v, bias; dbias is None without a bias."""
    q, k, v, weights, factor, dropped, scale, bias_shape = cache
    raise NotImplementedError
