"""The plain form of attention."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array
from tests.tutor.plain.softmax import plain_softmax


def plain_attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, bias: Array | None = None, scale: float | None = None,
    causal: bool = False, window: int | None = None, slopes: Array | None = None, dropout: float = 0.0,
    softcap: float | None = None, sink: Array | None = None, ahead: int | None = None, **_: Any,
) -> Array | None:
    """Computes one query at a time, over the visible keys of this query; returns None with dropout."""
    if dropout:
        return None
    T_q, T_k = q.shape[-2], k.shape[-2]
    if k.ndim > 2 and k.shape[-3] != q.shape[-3]:  # grouped heads
        k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    shape = (*q.shape[:-1], T_k)
    seen = np.broadcast_to(np.ones((), bool) if mask is None else mask, shape)
    added = np.broadcast_to(np.zeros(()) if bias is None else bias, shape)
    if causal or ahead is not None:
        seen = seen & np.tri(T_q, T_k, T_k - T_q + (ahead or 0), dtype=bool)
    if window is not None:
        seen = seen & ~np.tri(T_q, T_k, T_k - T_q - window, dtype=bool)
    if slopes is not None:
        added = added - slopes[:, None, None] * abs(np.subtract.outer(np.arange(T_k - T_q, T_k), np.arange(T_k)))
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    for place in np.ndindex(q.shape[:-1]):
        *lead, _i = place
        keys = np.flatnonzero(seen[place])
        if len(keys):
            scores = k[tuple(lead)][keys] @ q[place] * (q.shape[-1] ** -0.5 if scale is None else scale)
            scores = (scores if softcap is None else softcap * np.tanh(scores / softcap)) + added[place][keys]
            scores = np.append(scores, -np.inf if sink is None else sink[lead[-1]])  # one more key, with a value of 0
            y[place] = plain_softmax(scores)[:-1] @ v[tuple(lead)][keys]
    return y


PLAIN = {"scaled_dot_product_attention": plain_attention}
