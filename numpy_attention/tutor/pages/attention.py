"""The questions of the exercise that writes the forward of attention."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Questions, Quiz


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


QUESTIONS = {"attention": Quiz(about_attention, ("y", "weights"), sums_of_rows)}
