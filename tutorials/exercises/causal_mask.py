"""Exercise: the causal mask, and a softmax with this mask

    mask_ij = [query i may look at key j]        a position sees itself and earlier positions, no later ones

The T_q queries are the LAST T_q of T_k positions: if T_q < T_k, the earlier keys come from the KV cache.

This file has the masked softmax. Write causal_mask(T_q, T_k), which returns the
mask, and causal_softmax_backward(dy, cache), which returns dx.

If all keys of a query are hidden, its row of weights is zero and its gradient is zero.

    python -m numpy_attention grade tutorials/exercises/causal_mask.py            check your function
    python -m numpy_attention grade tutorials/exercises/causal_mask.py --hint 1   three hints, one at a time
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
