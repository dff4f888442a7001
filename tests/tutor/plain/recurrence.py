"""The plain form of recurrence."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_linear_attention(
    q: Array, k: Array, v: Array, decay: Array | None = None, beta: Array | None = None, state: Array | None = None,
    scale: float | None = None, chunk_size: int = 0,
) -> Array:
    """One query head at a time: S = (I - beta k^T k) diag(exp(decay)) S + beta k^T v."""
    d_k, y = k.shape[-1], np.zeros((*q.shape[:-1], v.shape[-1]))
    decays = np.broadcast_to(np.zeros(1) if decay is None else decay, k.shape)
    betas = np.broadcast_to(np.zeros(1) if beta is None else beta, (*k.shape[:-1], 1))
    groups = 1 if k.ndim == 2 else q.shape[-3] // k.shape[-3]
    for place in np.ndindex(q.shape[:-2]):
        head = (*place[:-1], place[-1] // groups) if place else ()
        S = np.zeros((d_k, v.shape[-1])) if state is None else state[head]
        for t in range(k.shape[-2]):
            key, b = k[head][t], betas[head][t]
            turn = np.eye(d_k) - b * np.outer(key, key)
            S = turn @ np.diag(np.exp(decays[head][t])) @ S + (1 if beta is None else b) * np.outer(key, v[head][t])
            y[place][t] = q[place][t] @ S * (d_k**-0.5 if scale is None else scale)
    return y


PLAIN = {"linear_attention": plain_linear_attention, "chunked_linear_attention": plain_linear_attention}
