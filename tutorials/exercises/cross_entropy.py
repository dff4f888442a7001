"""Exercise: the gradient of the cross-entropy

    loss = the mean of -sum_v q_v log p_v over all counted positions; padding is not counted
    p = softmax(logits)
    q_v = (1 - s) [v = target] + s / V

V is the number of classes, and s is the label smoothing (0: no smoothing). [v = target] is 1 if v is the target, and 0
if not.
If the target of a position is ignore_index (padding), this position is not counted: its loss is not in the mean.

This file has the forward function. Write cross_entropy_backward(dloss, cache), which returns dlogits.

    python -m numpy_attention grade tutorials/exercises/cross_entropy.py            check your function
    python -m numpy_attention grade tutorials/exercises/cross_entropy.py --hint 1   the first of three hints
"""

import numpy as np


def cross_entropy(logits, targets, ignore_index=-100, label_smoothing=0.0):
    """logits (..., V), integer targets (...) -> loss, a single number."""
    V = logits.shape[-1]
    counted = (targets != ignore_index)[..., None]  # (..., 1)
    safe = np.where(counted[..., 0], targets, 0)  # (...)
    one_hot = np.arange(V) == safe[..., None]  # (..., V)
    q = np.where(one_hot, 1 - label_smoothing, 0) + label_smoothing / V  # (..., V)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # (..., V)
    N = max(int(counted.sum()), 1)
    loss = -(counted * q.astype(logits.dtype) * log_p).sum() / N
    return loss.astype(logits.dtype), (np.exp(log_p), q.astype(logits.dtype), counted, N)


def cross_entropy_backward(dloss, cache):
    """dloss, a single number -> dlogits (..., V)."""
    p, q, counted, N = cache
    raise NotImplementedError
