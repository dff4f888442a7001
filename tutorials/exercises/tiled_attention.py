"""Exercise: the gradients of attention, tile by tile

Attention has T_q x T_k weights, but this forward never stores all of them. It computes tile by tile; a tile has some
of the queries and some of the keys. For each query, the forward stores one number in L: the logarithm of the sum of
exp(scores). With L you can recompute each weight: w_ij = exp(scale q_i k_j - L_i).

This file has the forward. Write tiled_attention_backward(dy, cache), which returns dq, dk, dv. Use two loops over the
tiles, like the forward. Do not build an array of T_q x T_k: the grader measures how much memory your function needs.

    python -m numpy_attention grade tutorials/exercises/tiled_attention.py            check your function
    python -m numpy_attention grade tutorials/exercises/tiled_attention.py --hint 1   the first of three hints
"""

import math

import numpy as np


def tiles(length, block_size):
    """Slices that divide range(length) into tiles: a tile has at most block_size elements."""
    return [slice(start, min(start + block_size, length)) for start in range(0, length, block_size)]


def tiled_attention(q, k, v, mask=None, block_size=2):
    """q (T_q, d_k), k (T_k, d_k), v (T_k, d_v), mask (T_q, T_k) or None -> y (T_q, d_v)."""
    scale = 1 / math.sqrt(q.shape[-1])
    y = np.zeros((q.shape[0], v.shape[1]), q.dtype)
    L = np.zeros((q.shape[0], 1), q.dtype)
    for rows in tiles(q.shape[0], block_size):
        m = np.full((rows.stop - rows.start, 1), np.finfo(q.dtype).min, q.dtype)  # the largest score so far
        total = np.zeros_like(m)
        for columns in tiles(k.shape[0], block_size):
            s = scale * q[rows] @ k[columns].T  # (t_q, t_k)
            if mask is not None:
                s = np.where(mask[rows, columns], s, -np.inf)
            new_m = np.maximum(m, s.max(axis=-1, keepdims=True))
            w = np.exp(s - new_m)
            total = total * np.exp(m - new_m) + w.sum(axis=-1, keepdims=True)
            y[rows] = y[rows] * np.exp(m - new_m) + w @ v[columns]
            m = new_m
        total = np.maximum(total, 1)  # if the mask hides all keys of a query, then y = 0
        y[rows] /= total
        L[rows] = m + np.log(total)
    return y, (q, k, v, mask, y, L, scale, block_size)


def tiled_attention_backward(dy, cache):
    """dy (T_q, d_v) -> dq, dk, dv, with the shapes of q, k, v."""
    q, k, v, mask, y, L, scale, block_size = cache
    raise NotImplementedError
