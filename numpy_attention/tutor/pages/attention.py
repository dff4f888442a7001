"""The plain form of attention, and the questions of the exercise that writes its forward."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Questions, Quiz
from numpy_attention.tutor.pages.softmax import plain_softmax


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


def about_attention(rng: np.random.Generator) -> Questions:
    """No mask, a batch, very large scores, float32, masks."""

    def qkv(*lead: int, T_q: int = 2, T_k: int = 3, dtype: Any = np.float64) -> tuple[Array, ...]:
        shapes = (*lead, T_q, 4), (*lead, T_k, 4), (*lead, T_k, 1)
        return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)

    yield "two queries and three keys, no mask", (*qkv(), None)
    yield "a batch of heads", (*qkv(2, 3, T_k=5), None)
    q, k, v = qkv()
    yield "scores above a thousand, whose exponentials overflow", (1000 * q, k, v, None)
    yield "arrays of float32", (*qkv(2, dtype=np.float32), None)
    yield "a mask", (*qkv(), np.array([[True, True, False], [False, True, True]]))
    yield "a mask that hides all keys of the second query", (*qkv(), np.array([[False, True, False], [False] * 3]))


def sums_of_rows(answer: Any) -> str:
    """A text about the sums of the rows of the weights, if they are not one; a row of zeros is fully masked."""
    weights = answer[1] if isinstance(answer, tuple) and len(answer) == 2 else None
    if not isinstance(weights, np.ndarray) or weights.ndim < 2 or not np.isfinite(weights).all():
        return ""
    sums = weights.sum(axis=-1)
    if np.isclose(sums, 1, atol=1e-3).all() or (weights == 0).all(axis=-1).any():
        return ""
    together = " All weights together sum to 1: the softmax needs sums with axis=-1 and keepdims=True."
    return (
        f"The rows of your weights sum to {', '.join(f'{one:.2f}' for one in sums.reshape(-1)[:4])}, but each row must "
        f"sum to 1.{together if np.isclose(weights.sum(), 1) else ''}"
    )


PLAIN = {"scaled_dot_product_attention": plain_attention}
QUESTIONS = {"attention": Quiz(about_attention, ("y", "weights"), sums_of_rows)}
