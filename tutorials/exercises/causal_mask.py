"""Exercise: the causal mask, and a softmax that minds it

    mask_ij = [query i may look at key j]        a position sees itself and what came before, nothing later

The T_q queries are the LAST T_q of T_k positions: with T_q < T_k the earlier keys are stored ones.

Given: the masked softmax. Write: causal_mask(T_q, T_k) and causal_softmax_backward(dy, cache), which returns dx.

A query that may look at nothing gets a row of zeros, and passes no gradient.

    python -m numpy_attention grade tutorials/exercises/causal_mask.py            what is right already
    python -m numpy_attention grade tutorials/exercises/causal_mask.py --hint 1   three hints, one at a time
"""

import numpy as np


def causal_mask(T_q, T_k):
    """Two lengths -> mask (T_q, T_k) of bool, True = may look."""
    raise NotImplementedError


def causal_softmax(x, mask):
    """Scores x (..., T_q, T_k), mask (T_q, T_k) -> weights y (..., T_q, T_k)."""
    scores = np.where(mask, x, -np.inf)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), np.finfo(scores.dtype).min)
    e = np.exp(scores - largest)
    y = e / np.maximum(e.sum(axis=-1, keepdims=True), 1)
    return y, (x, mask, y)


def causal_softmax_backward(dy, cache):
    """dy as y -> dx as x."""
    x, mask, y = cache
    raise NotImplementedError
