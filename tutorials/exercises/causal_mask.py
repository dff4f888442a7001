"""Exercise: the causal mask, and a softmax with this mask

    mask_ij = [query i may look at key j]        key j must be at the position of query i, or earlier

The sequence has T_k positions, and each position has a key. The queries are at the LAST T_q
positions. If T_q < T_k, the first positions have keys, but no queries. This happens when a model
writes text: it computed and stored these keys before. (This store is called the KV cache.)

This file has the masked softmax. Write causal_mask(T_q, T_k), which returns the mask, and
causal_softmax_backward(dy, cache), which returns dx.

If all keys of a query are hidden, its row of y is zero, and its row of dx is zero.

    python -m numpy_attention grade tutorials/exercises/causal_mask.py            check your function
    python -m numpy_attention grade tutorials/exercises/causal_mask.py --hint 1   the first of three hints
"""

import numpy as np


def causal_mask(T_q, T_k):
    """Lengths T_q and T_k -> boolean mask (T_q, T_k), True = may look."""
    raise NotImplementedError


def causal_softmax(x, mask):
    """Scores x (..., T_q, T_k), mask (T_q, T_k) -> weights y (..., T_q, T_k)."""
    scores = np.where(mask, x, -np.inf)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), np.finfo(scores.dtype).min)
    e = np.exp(scores - largest)
    y = e / np.maximum(e.sum(axis=-1, keepdims=True), 1)
    return y, (x, mask, y)


def causal_softmax_backward(dy, cache):
    """dy, with the shape of y -> dx, with the shape of x."""
    x, mask, y = cache
    raise NotImplementedError
